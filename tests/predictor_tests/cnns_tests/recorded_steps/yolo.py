"""Small detectors as people write them, whose losses assign targets to positions: by scores, and by anchors."""

import torch  # noqa: TID253 - made of it
from torch import nn  # noqa: TID253 - made of it
from torch.nn import functional  # noqa: TID253 - made of it

CLASSES, BINS, STRIDES = 4, 8, (8, 16)
ANCHORS = torch.tensor([[[10.0, 13], [16, 30]], [[30.0, 61], [62, 45]]])


def block(inputs, outputs, stride=2):
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.SiLU(inplace=True))


class Residual(nn.Module):
    """Two convolutions beside their input."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(block(channels, channels // 2, 1), block(channels // 2, channels, 1))

    def forward(self, maps):
        return maps + self.body(maps)


class Yolo(nn.Module):
    """Gives one map of `outputs` numbers for each stride."""

    def __init__(self, outputs, width=1, depth=0):
        super().__init__()

        def stage(inputs, channels):
            deeper = (Residual(width * channels) for _ in range(depth))
            return nn.Sequential(block(inputs, width * channels), *deeper)

        self.stem = nn.Sequential(stage(3, 8), stage(8 * width, 16), stage(16 * width, 32))
        self.down = stage(32 * width, 64)
        self.heads = nn.ModuleList(nn.Conv2d(width * channels, outputs, 1) for channels in (32, 64))

    def forward(self, images):
        first = self.stem(images)
        return [head(maps) for head, maps in zip(self.heads, (first, self.down(first)), strict=True)]


def overlap(a, b):
    """Intersection over union of boxes (x1, y1, x2, y2)."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    areas = sum((boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (a, b))
    return inner / (areas - inner + 1e-7)


def padded(targets, n_images, size):
    """Targets (image, class, box) as one row of boxes an image, padded with zeros."""
    image = targets[:, 0]
    _, counts = image.unique(return_counts=True)
    rows = targets.new_zeros(n_images, int(counts.max()), 5)
    for i in range(n_images):
        own = image == i
        if n := own.sum():
            rows[i, :n] = targets[own, 1:]
    rows[..., 1:] *= size
    return rows


def centres(maps, stride):
    """Position of each number of a map in the image, (height x width, 2)."""
    sides = (torch.arange(n, device=maps.device) + 0.5 for n in maps.shape[2:])
    return torch.stack(torch.meshgrid(*sides, indexing="ij"), -1).view(-1, 2) * stride


def task_aligned_loss(maps, targets, size):
    """Distances to the sides as distributions; each object takes the ten positions that fit it best."""
    n_images = maps[0].shape[0]
    points = torch.cat(
        [centres(scale_maps, stride) for scale_maps, stride in zip(maps, STRIDES, strict=True)]
    )
    joined = torch.cat([scale_maps.flatten(2) for scale_maps in maps], 2).transpose(1, 2)
    sides, scores = joined.split((4 * BINS, CLASSES), -1)
    steps = torch.arange(BINS, dtype=torch.float, device=sides.device)
    lengths = sides.unflatten(-1, (4, BINS)).softmax(-1).matmul(steps) * 8
    boxes = torch.cat([points - lengths[..., :2], points + lengths[..., 2:]], -1)

    with torch.no_grad():
        rows = padded(targets, n_images, size)
        labels, truth = rows[..., 0].long(), rows[..., 1:]
        exists = truth.sum(-1, keepdim=True) > 0
        low, high = points - truth[:, :, None, :2], truth[:, :, None, 2:] - points
        inside = torch.cat([low, high], -1).amin(-1) > 1e-9
        mask = inside & exists
        fit = boxes.new_zeros(n_images, truth.shape[1], len(points))
        every = torch.arange(n_images, device=labels.device)[:, None].expand(-1, truth.shape[1])
        pairs = boxes[:, None].expand(-1, truth.shape[1], -1, -1)[mask]
        fit[mask] = overlap(truth[:, :, None].expand(-1, -1, len(points), -1)[mask], pairs)
        aligned = scores.sigmoid()[every, :, labels].sqrt() * fit.pow(6)
        best = aligned.topk(10, -1).indices
        chosen = torch.zeros_like(aligned).scatter_(-1, best, 1.0) * mask
        taken = chosen.sum(1)
        if (taken.max() > 1).item():
            chosen = torch.where(
                (taken > 1)[:, None], functional.one_hot(fit.argmax(1), fit.shape[1]).mT.float(), chosen
            )
        foreground = chosen.sum(1) > 0
        owner = chosen.argmax(1)
        goals = truth.gather(1, owner[..., None].expand(-1, -1, 4))
        classes = functional.one_hot(labels.gather(1, owner), CLASSES) * foreground[..., None]
    total = max(classes.sum(), 1)
    loss = (
        functional.binary_cross_entropy_with_logits(scores, classes.float(), reduction="none").sum() / total
    )
    if foreground.sum():
        loss = loss + (1 - overlap(boxes[foreground], goals[foreground])).sum() / total
        wanted = (goals[foreground] / 8).clamp(0, BINS - 1.01)
        predicted = sides[foreground].view(-1, BINS)
        loss = loss + functional.cross_entropy(predicted, wanted.long().view(-1), reduction="none").mean()
    return loss


def anchor_loss(maps, targets, size):
    """Each object takes the anchors whose sides are like its own, at its position."""
    box_loss = class_loss = object_loss = 0
    for scale_maps, anchors, stride in zip(maps, ANCHORS.to(targets), STRIDES, strict=True):
        n, _, height, width = scale_maps.shape
        predicted = (
            scale_maps.view(n, len(anchors), 5 + CLASSES, height, width).permute(0, 1, 3, 4, 2).contiguous()
        )
        in_cells = targets.clone()
        in_cells[:, 2:] *= size / stride
        middles, sides = (in_cells[:, 2:4] + in_cells[:, 4:]) / 2, in_cells[:, 4:] - in_cells[:, 2:4]
        ratio = sides[None] / (anchors / stride)[:, None]
        fits = torch.max(ratio, 1 / ratio).amax(2) < 4.0
        anchor, row = fits.nonzero(as_tuple=True)
        image, label = in_cells[row, 0].long(), in_cells[row, 1].long()
        cell = middles[row].long()
        objectness = torch.zeros_like(predicted[..., 0])
        if n_rows := row.shape[0]:
            near = predicted[image, anchor, cell[:, 1].clamp(0, height - 1), cell[:, 0].clamp(0, width - 1)]
            middle, spread = (
                near[:, :2].sigmoid() * 2 - 0.5,
                (near[:, 2:4].sigmoid() * 2) ** 2 * anchors[anchor] / stride,
            )
            boxes = torch.cat([middle - spread / 2, middle + spread / 2], 1)
            wanted = torch.cat(
                [middles[row] - cell - sides[row] / 2, middles[row] - cell + sides[row] / 2], 1
            )
            fit = overlap(boxes, wanted)
            box_loss = box_loss + (1 - fit).mean()
            objectness[image, anchor, cell[:, 1].clamp(0, height - 1), cell[:, 0].clamp(0, width - 1)] = (
                fit.detach()
            )
            classes = torch.zeros_like(near[:, 5:])
            classes[range(n_rows), label] = 1.0
            class_loss = class_loss + functional.binary_cross_entropy_with_logits(near[:, 5:], classes)
        object_loss = object_loss + functional.binary_cross_entropy_with_logits(predicted[..., 4], objectness)
    return box_loss + class_loss + object_loss


LOSSES = {
    "task aligned": (task_aligned_loss, 4 * BINS + CLASSES),
    "anchors": (anchor_loss, 2 * (5 + CLASSES)),
}


def step_of(name, n_images=4, size=64, objects=3, width=1, depth=0):
    """One training step of a detector with this loss."""
    loss_of, outputs = LOSSES[name]
    model, images = Yolo(outputs, width, depth), torch.rand(n_images, 3, size, size)
    low = torch.rand(n_images * objects, 2) * 0.5
    image_of_object = torch.arange(n_images).repeat_interleave(objects)[:, None].float()
    targets = torch.cat([image_of_object, torch.randint(CLASSES, (len(low), 1)).float(), low, low + 0.4], 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)

    def step():
        optimizer.zero_grad()
        loss_of(model(images), targets, size).backward()
        optimizer.step()

    return step
