"""Training steps that were once recorded otherwise than they run, or show one rule each, smaller than whole habits."""

import copy
import itertools
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch  # noqa: TID253 - made of it
import torch.nn.functional as F  # noqa: N812, TID253 - its usual name
from habits import Net, Step, images, sgd, trained_by
from torch import nn  # noqa: TID253 - made of it
from torch.utils.checkpoint import checkpoint, checkpoint_sequential  # noqa: TID253 - made of it

STEPS: dict[str, Callable[[], Step]] = {}
"""Makers of the steps, by name."""

small_images = partial(images, height=16, width=16)


def blocks(n: int = 3, width: int = 8) -> nn.Sequential:
    def block(inputs: int, outputs: int) -> nn.Sequential:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

    return nn.Sequential(*itertools.starmap(block, itertools.pairwise([3, *[width] * n])))


def cnn(width: int = 8) -> nn.Sequential:
    return nn.Sequential(blocks(width=width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5))


def supervised(module: nn.Module, forward: Callable[..., Any] | None = None, optimizer: Any = None) -> Step:
    """Step of cross entropy on four images of 16 x 16, by `forward` or the whole module."""
    x, y = small_images(), torch.randint(5, (4,))
    return trained_by(lambda: F.cross_entropy((forward or module)(x), y), optimizer or sgd(module))


def backward(loss: Callable[[], torch.Tensor]) -> Step:
    """Step without an update."""
    return lambda: loss().backward()  # type: ignore[no-untyped-call]


def recorded(make: Callable[[], Step]) -> Callable[[], Step]:
    STEPS[make.__name__] = make
    return make


def cases(name: str, values: Iterable[Any]) -> Callable[[Callable[[Any], Step]], Callable[[Any], Step]]:
    """One step for each value, whose name ends in it."""

    def add(make: Callable[[Any], Step]) -> Callable[[Any], Step]:
        for value in values:
            words = "_".join(map(str, value)) if isinstance(value, tuple) else value
            STEPS[f"{make.__name__}_{name}_{words}".lower()] = partial(make, value)
        return make

    return add


@cases("kept", [False, True])
def what_a_mask_of_constants_keeps(kept: bool) -> Step:
    module, x, mask = nn.Conv2d(3, 8, 3), small_images(), [torch.tensor(kept)] * 4

    def loss() -> torch.Tensor:
        maps = module(x)
        return maps.mean() + maps.permute(0, 2, 3, 1)[torch.stack(mask)].square().sum()

    return trained_by(loss, sgd(module))


@cases("by", ["NAdam", "RAdam", "Adadelta", "RMSprop", "Adagrad"])
def updated(optimizer: str) -> Step:
    """NAdam divides by 1 less the number that it reads: the step was refused for a division by zero."""
    module = cnn()
    return supervised(module, optimizer=getattr(torch.optim, optimizer)(module.parameters()))


@recorded
def frozen_block_behind_a_trained_one() -> Step:
    module = cnn()
    module[0][1].requires_grad_(False)
    return supervised(module)


@recorded
def factor_that_is_a_view_of_a_parameter() -> Step:
    def forward(self: Net, x: Any) -> Any:
        return self.head((x + self.body(x).mul(self.scale.reshape(1, -1, 1, 1))).mean((2, 3)))

    scale = nn.Parameter(torch.ones(3))
    return supervised(Net(forward, body=nn.Conv2d(3, 3, 3, padding=1), scale=scale, head=nn.Linear(3, 5)))


@cases("reentrant", [False, True])
def checkpointed_blocks(use_reentrant: bool) -> Step:
    module = cnn()

    def forward(x: Any) -> Any:
        maps = module[0][0](x)
        for block in module[0][1:]:
            maps = checkpoint(block, maps, use_reentrant=use_reentrant)
        return module[1:](maps)

    return supervised(module, forward)


@recorded
def checkpointed_segments() -> Step:
    """Each segment is recomputed alone, and the last one not."""
    module = cnn()
    return supervised(
        module, lambda x: module[1:](checkpoint_sequential(module[0], 3, x, use_reentrant=False))
    )


@recorded
def checkpointed_residual_blocks() -> Step:
    """The sum goes backward once."""
    stem, body, head = blocks(1), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5)

    def residual(maps: Any) -> Any:
        return torch.relu(body(maps) + maps)

    def forward(x: Any) -> Any:
        maps = checkpoint(residual, stem(x), use_reentrant=False)
        maps = checkpoint(residual, maps, use_reentrant=False)
        return head(F.max_pool2d(maps, 16).flatten(1))

    return supervised(nn.ModuleList([stem, body, head]), forward)


@recorded
def momentum_encoder_by_data() -> Step:
    module, encoder = cnn(), cnn()
    train = supervised(module, lambda x: module(x) + encoder(x).detach())

    def step() -> None:
        for slow, fast in zip(encoder.parameters(), module.parameters(), strict=True):
            slow.data = slow.data * 0.99 + fast.data * 0.01
        train()

    return step


@recorded
def step_for_a_gpu() -> Step:
    module, x, y, losses = cnn(), small_images(), torch.randint(5, (4,)), []
    optimizer, scaler = torch.optim.SGD(module.parameters(), 0.1), torch.amp.GradScaler("cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(module(x.cuda()), y.to("cuda"))
        if torch.isnan(loss):
            raise ArithmeticError
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())

    return step


@cases("waits", ["for_16_bits", "for_a_loss", "for_nothing"])
def update_that(waits: str) -> Step:
    """Without a GPU a scaler is off, and was not seen: a super-resolution in 16 bits was answered 27 % too short."""
    module, x, is_half = cnn(), small_images(), waits == "for_16_bits"
    scaler = torch.amp.GradScaler("cuda", enabled=is_half)
    optimizer = torch.optim.Adam(module.parameters())

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16 if is_half else torch.bfloat16):
            loss = module(x).mean()
        scaler.scale(loss).backward()
        _ = waits == "for_a_loss" and loss.item()
        scaler.step(optimizer)
        scaler.update()
        loss.item()

    return step


@recorded
def parts_in_autocast() -> Step:
    """Weights that autocast converts counted as images: the step of a part, and an epoch of four times as many."""
    module, x, y = cnn(), small_images(batch=16), torch.randint(5, (16,))
    optimizer = torch.optim.AdamW(module.parameters())

    def step() -> None:
        optimizer.zero_grad()
        for part_images, part_labels in zip(x.chunk(4), y.chunk(4), strict=True):
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(module(part_images), part_labels) / 4
            loss.backward()
        optimizer.step()

    return step


@recorded
def two_passes_over_images_that_autocast_converts() -> Step:
    """They counted as two parts of a mini-batch: half of an epoch."""
    module, x, y = cnn(), small_images(), torch.randint(5, (4,))
    optimizer = sgd(module)

    def step() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(module(x), y)
            loss.backward()
        optimizer.step()

    return step


@cases("images", ["new", "same"])
def rounds_of_a_critic(kind: str) -> Step:
    critic, maker = cnn(), nn.ConvTranspose2d(10, 3, 16)
    of_critic, of_maker = (torch.optim.Adam(module.parameters()) for module in (critic, maker))
    rounds = [small_images() for _ in range(5)]

    def step() -> None:
        for real in rounds if kind == "new" else rounds[:1] * 5:
            made = maker(torch.randn(4, 10, 1, 1)).detach()
            (critic(made).mean() - critic(real).mean()).backward()
            of_critic.step()
        critic(maker(torch.randn(4, 10, 1, 1))).mean().backward()
        of_maker.step()

    return step


@cases("order", [(4, 12), (12, 4)])
def unequal_mini_batches(order: tuple[int, int]) -> Step:
    module, mini_batches = cnn(), [small_images(batch=n) for n in order]
    return backward(lambda: sum(module(x).square().mean() for x in mini_batches))  # type: ignore[arg-type,return-value]


@recorded
def fewer_labels_than_images() -> Step:
    module, x, y = cnn(), small_images(batch=8), torch.zeros(4).long()
    return backward(lambda: F.cross_entropy(module(x)[:4], y))


@recorded
def images_left_to_a_second_pass() -> Step:
    module, x = cnn(), small_images(batch=8)
    return backward(lambda: module(x[:4]).sum() + module(x[4:]).sum())


@recorded
def blurred_one_by_one() -> Step:
    """A filter of each image before the network is not its mini-batch."""
    module, x, blur = cnn(), small_images(), torch.ones(3, 1, 3, 3) / 9
    return backward(
        lambda: module(torch.cat([F.conv2d(image[None], blur, padding=1, groups=3) for image in x])).sum()
    )


@cases("of", [(judge, start) for judge in ("convolution", "linear") for start in ("images", "parameter")])
def mini_batch_folded_into_groups(kinds: tuple[str, str]) -> Step:
    """The mini-batch is told by another convolution, or by the maps before they were folded."""
    convolves, weight = kinds[0] == "convolution", nn.Parameter(torch.rand(6, 3, 3, 3))
    start = torch.rand(4, 3, 8, 8) if kinds[1] == "images" else nn.Parameter(torch.rand(1, 3, 8, 8))
    last = nn.Conv2d(6, 1, 6) if convolves else nn.Linear(6 * 6 * 6, 1)

    def loss() -> torch.Tensor:
        styles = (torch.rand(4, 6, 1, 1, 1) * weight).reshape(24, 3, 3, 3)
        maps = start.expand(4, -1, -1, -1).reshape(1, 12, 8, 8)
        made = F.conv2d(maps, styles, groups=4).reshape(4, 6, 6, 6)
        return last(made if convolves else made.flatten(1)).mean()

    return backward(loss)


@cases("detached", [False, True])
def images_of_a_generator(detached: bool) -> Step:
    maker = nn.Sequential(nn.ConvTranspose2d(10, 3, 16), nn.LeakyReLU(), nn.Tanh())
    critic = cnn()

    def loss() -> torch.Tensor:
        made = maker(torch.randn(4, 10, 1, 1)) + 1
        return critic(made.detach() if detached else made).mean()

    return backward(loss)


@cases("given", ["nchw", "images_channels_last", "weights_channels_last"])
def maps_permuted_inside(kind: str) -> Step:
    """ConvNeXt's block; the memory format is that of what is given."""

    def forward(self: Net, maps: Any) -> Any:
        inner = self.norm(self.depthwise(maps).permute(0, 2, 3, 1))
        return maps + self.narrow(F.gelu(self.widen(inner))).permute(0, 3, 1, 2)

    def block() -> Net:
        depthwise, norm = nn.Conv2d(16, 16, 7, padding=3, groups=16), nn.LayerNorm(16)
        return Net(forward, depthwise=depthwise, norm=norm, widen=nn.Linear(16, 64), narrow=nn.Linear(64, 16))

    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)
    module, x = nn.Sequential(nn.Conv2d(3, 16, 4, 4), block(), block(), *head), images()
    x = x.to(memory_format=torch.channels_last) if "images" in kind else x
    module = module.to(memory_format=torch.channels_last) if "weights" in kind else module
    return backward(lambda: module(x).sum())


@cases("go_back", ["together", "one_after_the_other"])
def two_networks(order: str) -> Step:
    """What one backward pass frees is not held in the next."""
    networks, x = (cnn(64), cnn(64)), images(batch=256)

    def step() -> None:
        if order == "together":
            (networks[0](x).sum() + networks[1](x).sum()).backward()
            return
        for network in networks:
            network(x).sum().backward()

    return step


@cases("skips", [False, True])
def maps_without_gradients(skips: bool) -> Step:
    """A map is held until its last reader."""
    convs = [nn.Conv2d(16, 16, 3, padding=1).requires_grad_(False) for _ in range(4)]
    head, x = nn.Linear(16, 2), images(16, batch=64)

    def loss() -> torch.Tensor:
        maps = first = convs[0](x)
        for conv in convs[1:]:
            maps = conv(maps)
        return head((maps + first if skips else maps).mean((2, 3))).sum()

    return backward(loss)


@cases("lengths", ["in_lists", "in_tensors"])
def text_lines_of_two_lstms(kind: str) -> Step:
    maps = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, 1))
    reads, head = nn.LSTM(8 * 8, 32, num_layers=2, bidirectional=True), nn.Linear(64, 11)
    lines, texts = torch.zeros(4, 1, 32, 64), torch.ones(4, 6).long()
    positions, lengths = ([n] * 4 if kind == "in_lists" else torch.full((4,), n) for n in (16, 6))

    def loss() -> torch.Tensor:
        scores = head(reads(maps(lines).flatten(1, 2).permute(2, 0, 1))[0]).log_softmax(-1)
        return F.ctc_loss(scores, texts, positions, lengths)

    return backward(loss)


@recorded
def norm_of_few_channels_where_boxes_are_chosen() -> Step:
    """Its channels did not divide by the mini-batch, so it kept no map: an SSDlite's memory was 26 % too low."""
    module, x = nn.Sequential(nn.Conv2d(3, 7, 3), nn.BatchNorm2d(7), nn.ReLU()), small_images()

    def loss() -> torch.Tensor:
        maps = module(x)
        return maps[maps > 0.5].sum()

    return backward(loss)


@recorded
def map_of_a_template_slides_over_a_region() -> Step:
    """Each image has filters of its own: the row had the channels of the mini-batch."""
    module, template, region = nn.Conv2d(3, 8, 3), images(height=8, width=8), images(height=24, width=24)
    return backward(lambda: F.conv2d(module(region).flatten(0, 1)[None], module(template), groups=4).mean())


@cases("calls", ["prelu", "grid_sample"])
def function_of_a_tracker(name: str) -> Step:
    module, factors, grid = (
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Parameter(torch.ones(8)),
        torch.zeros(4, 16, 16, 2),
    )
    functions = {
        "prelu": lambda maps: F.prelu(maps, factors),
        "grid_sample": lambda maps: F.grid_sample(maps, grid, align_corners=False),
    }
    return backward(lambda: functions[name](module(small_images())).mean())


@cases("contiguous", [True, False])
def attention_to_heads(contiguous: bool) -> Step:
    """Transposed, they run no fused kernel: scores of a diffusion U-Net were not counted, 27 % of its memory."""
    qkv, x = nn.Conv2d(3, 48, 1), images(height=8, width=8)

    def loss() -> torch.Tensor:
        heads = qkv(x).view(4, 3, 2, 8, 64).mT
        return F.scaled_dot_product_attention(*(heads.contiguous() if contiguous else heads).unbind(1)).sum()

    return backward(loss)


@recorded
def phase_of_a_schedule_among_constants() -> Step:
    """As fastai finds the phase of its cycle: everything on constants was counted as a detector's."""
    train = supervised(cnn())

    def step() -> None:
        phases = torch.cumsum(torch.tensor([0.0, 0.25, 0.75]), 0)
        assert (phases <= 0.1).nonzero().max() == 0
        train()

    return step


@recorded
def averages_of_weights_by_number() -> Step:
    """They were left out of time: an EfficientNet's took the host 10 ms."""
    module = cnn()
    train, averages = supervised(module), [nn.Parameter(p.detach().clone()) for p in module.parameters()]

    def step() -> None:
        train()
        with torch.no_grad():
            for slow, fast in zip(averages, module.parameters(), strict=True):
                slow.mul_(0.99).add_(fast, alpha=0.01)

    return step


@recorded
def gradients_clipped_by_value() -> Step:
    """It was refused: it asks for foreach functions of a device by its name."""
    module, x = cnn(), small_images()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        module(x).mean().backward()
        nn.utils.clip_grad_value_(module.parameters(), 1.0)
        optimizer.step()

    return step


@recorded
def standardised_weights() -> Step:
    class Standardised(nn.Conv2d):
        def forward(self, maps: Any) -> Any:
            weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
            return self._conv_forward(maps, weight / weight.std((1, 2, 3), keepdim=True), None)

    module, x = nn.Sequential(Standardised(3, 16, 3), nn.ReLU()), images()
    return backward(lambda: module(x).mean())


@recorded
def weights_updated_by_no_optimizer() -> Step:
    """As fastai updates them."""
    module, x = cnn(), small_images()

    def step() -> None:
        module(x).mean().backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.data.add_(parameter.grad.data, alpha=-0.1)
                parameter.grad = None

    return step


@recorded
def numbers_scaled_in_place_before_a_mask() -> Step:
    """The mask was counted by the numbers before: none."""
    head, x = nn.Conv2d(3, 4, 1), images(batch=2, height=8, width=8)

    def loss() -> torch.Tensor:
        sides = torch.full((12,), 2.0)
        sides[:12] *= 2
        return head(x).mean() + torch.zeros(12, 4)[sides > 3].sum()

    return backward(loss)


@recorded
def mask_of_labels() -> Step:
    """It is counted exactly."""
    head, x, y = nn.Conv2d(3, 4, 1), images(batch=6, height=1, width=1), torch.tensor([0, 1, 1, 0, 2, 1])
    return backward(lambda: head(x).flatten(1)[y == 1].square().mean())


@cases("by", ["Adam", "SGD", "Adam_three_times"])
def norms_updated_beside_a_wide_convolution(kind: str) -> Step:
    """Two optimizers were answered as the larger one: 57 norms by Adam as by SGD; each update counts."""
    name, _, times = kind.partition("_")
    module = nn.Sequential(nn.Conv2d(3, 64, 9), *(nn.BatchNorm2d(64) for _ in range(57)))
    x, of_convolution = small_images(), torch.optim.SGD(module[0].parameters(), 0.1, 0.9)
    of_norms = getattr(torch.optim, name)(module[1:].parameters(), 0.1)

    def step() -> None:
        module(x).mean().backward()
        of_convolution.step()
        for _ in range(3 if times else 1):
            of_norms.step()

    return step


@recorded
def compiled_cnn() -> Step:
    module, x = torch.compile(cnn()), small_images()
    return backward(lambda: module(x).mean())


@cases("foreach", [True, False])
def learning_rate_for_each_parameter(foreach: bool) -> Step:
    """It takes the host a call for each: 0.54 of a layer's passes by lists, else 0.29 for each tensor."""
    module = cnn()
    groups = [{"params": [parameter], "lr": 0.1} for parameter in module.parameters()]
    return supervised(module, optimizer=torch.optim.SGD(groups, momentum=0.9, foreach=foreach))


@cases("given", ["by_position", "by_name"])
def passes_in_a_closure(kind: str) -> Step:
    """As Lightning writes them; they counted as the optimizer's own: one layer was left."""
    module, x, y = cnn(), small_images(), torch.randint(5, (4,))
    optimizer = sgd(module)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        return loss

    return lambda: optimizer.step(closure) if kind == "by_position" else optimizer.step(closure=closure)  # type: ignore[arg-type]


@recorded
def random_numbers_that_decide_nothing() -> Step:
    module, x, y = cnn(), small_images(), torch.randint(5, (4,))
    return backward(lambda: F.cross_entropy(module(x + random.gauss()), y))


@recorded
def copy_of_a_loss_and_a_size_drawn_in_place() -> Step:
    """As Lightning copies what it logs, and torchvision draws a size, which was answered 1 whatever the range."""
    module, x = cnn(), small_images()

    def step() -> None:
        size = (0,)[int(torch.empty(1).uniform_(0.0, 1.0).item())]
        loss = module(x)[size:].mean()
        loss.backward()
        (copy.deepcopy(loss.detach()) + loss.detach()).clone()

    return step
