"""Detectors are recorded with their own losses: what numbers decide is that of a stated number of objects."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from predictor.answers.answer import answer
from predictor.answers.question import Question
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import SUPPRESSION
from predictor.cnns.torch_step import record
from predictor.errors import SchemaError
from predictor.models.hosts import WAIT_MS
from predictor.operators.kernels import KERNEL_CLASSES, kernels_of
from predictor.operators.operators import functions_of_lists, operators_of
from predictor.operators.work import cnn_flops

RECORDED_STEPS = Path(__file__).with_name("recorded_steps")


def detector_of(torch, detection, name, num_classes=5):
    """A detector on images of 64 x 80, on one map of 16 channels."""
    sizes, nn = {"min_size": 64, "max_size": 80}, torch.nn
    conv = nn.Conv2d(3, 16, 3, 8, 1), nn.Conv2d(16, 16, 3, 1, 1)
    backbone = nn.Sequential(conv[0], nn.BatchNorm2d(16), nn.ReLU(), conv[1])
    backbone.out_channels = [16] if name == "SSD" else 16
    if name == "SSD":
        boxes = detection.anchor_utils.DefaultBoxGenerator([[2]])
        return detection.ssd.SSD(backbone, boxes, (64, 80), num_classes)
    anchors = detection.anchor_utils.AnchorGenerator(((32, 64),), ((0.5, 1.0, 2.0),))
    if name == "RetinaNet":
        return detection.RetinaNet(backbone, num_classes, anchor_generator=anchors, **sizes)
    more = {"box_batch_size_per_image": 64, "rpn_score_thresh": 0.05, "rpn_anchor_generator": anchors}
    if name == "MaskRCNN":
        more |= {"rpn_post_nms_top_n_train": 100, "box_batch_size_per_image": 32, "rpn_score_thresh": 0.0}
    return getattr(detection, name)(backbone, num_classes, **sizes, **more)


def step_of(torch, model, n_images=2, n_objects=3):
    torch.manual_seed(0)
    images, low = [torch.rand(3, 64, 80) for _ in range(n_images)], torch.rand(n_objects, 2) * 30
    target = {"boxes": torch.cat([low, low + 24], 1), "labels": torch.ones(n_objects).long()}
    target["masks"] = torch.ones(n_objects, 64, 80, dtype=torch.uint8)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)

    def step():
        optimizer.zero_grad()
        sum(model(images, [target] * n_images).values()).backward()
        optimizer.step()

    return step


DETECTORS = ("MaskRCNN", "RetinaNet", "FasterRCNN", "SSD")


@pytest.fixture(scope="module")
def recorded(torch, torchvision_models):
    """Table of a detector, recorded once."""
    detection = torchvision_models.detection
    return cache(lambda name: record(step_of(torch, detector_of(torch, detection, name))))


@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_is_answered_with_its_own_losses(recorded, name, tmp_path):
    table = recorded(name)
    assert (table.step.batch_size, table.step.optimizer) == (2, "momentum")
    caution = next(str(warning) for warning in table.warnings if "boxes_per_image" in str(warning))
    assert "8 objects in each image" in caution
    range_ = re.search(r"with 2 to 32 the layers compute (.*) to (.*) times as many", caution)
    least, largest = range_.groups()
    assert float(least) < 1 < float(largest) if name == "MaskRCNN" else float(least) <= 1 <= float(largest)
    assert f"the host waits for the GPU {table.step.waits} times" in caution
    assert answer(Question(table, "H200")).rows()[0].gpu_time_ms > 0
    table.to_csv(tmp_path / "detector.csv")
    assert read_layer_table_csv(tmp_path / "detector.csv").step == table.step


def test_all_parameters_of_a_detector_are_counted(torch, torchvision_models, recorded):
    model = detector_of(torch, torchvision_models.detection, "MaskRCNN")
    assert recorded("MaskRCNN").parameters == sum(parameter.numel() for parameter in model.parameters())


def test_heads_run_on_as_many_boxes_as_the_sampler_takes(recorded):
    rows = {row.name.partition(".")[2]: row for row in recorded("MaskRCNN")}
    assert rows["roi_heads.box_head.fc6"].out_height == 32
    assert rows["roi_heads.mask_head.0.0"].repeats == 8  # of each image those with an object


@pytest.mark.parametrize("count", [0, 1.5, True])
def test_objects_of_an_image_are_a_whole_number(count):
    with pytest.raises(SchemaError, match=r"boxes_per_image .* 1 or more"):
        record(lambda: None, boxes_per_image=count)


def test_of_a_box_only_its_samples_are_read(recorded):
    """The whole map was read and written for each box head: 13 of 46 ms of a Mask R-CNN."""
    boxes = [row for row in recorded("MaskRCNN") if "roi_align" in row.name]
    shrunk = {(row.type, row.in_height / row.out_height, row.in_width / row.out_width) for row in boxes}
    assert shrunk == {("avg_pool", 4, 4)}


def test_boxes_are_suppressed_one_after_the_other(recorded):
    """Thousands of boxes of each image took an H100 2 to 4 ms, and were not counted: 26 % of a Faster R-CNN's time."""
    table = recorded("MaskRCNN")
    rows = [replace(row, forwards=1) if row.name == SUPPRESSION else row for row in table]
    (calls,) = (row.forwards for row in table if row.name == SUPPRESSION)
    often, once = (
        answer(Question(variant, "H100 SXM")).rows()[0]
        for variant in (table, replace(table, layers=tuple(rows)))
    )
    assert calls > 20
    assert often.gpu_time_ms - once.gpu_time_ms == pytest.approx(0.0015 * calls, rel=0.3)
    assert often.host_time_ms == once.host_time_ms


def test_a_network_that_begins_to_train_proposes_most_of_its_boxes(recorded):
    """torchvision's mobile Faster R-CNN asks for scores of 0.05: 64 boxes were answered for 4,096."""
    table = recorded("FasterRCNN")
    (first,) = (row for row in table if row.name.endswith("box_head.fc6"))
    assert first.out_height * table.step.batch_size == 128


def test_a_function_of_lists_takes_as_long_as_a_sum_of_two(recorded):
    """Each took 11 us by like operators of maps, and 60 by specifications: an SSD 104 ms for 65."""
    table = recorded("SSD")
    lists = functions_of_lists(table)
    assert len(lists) > 100
    assert {table.layers[position].type for position in lists} > {"clamp", "concat", "multiply"}
    counted = operators_of(table)
    assert not any(operator.type == "clamp" and not operator.input_gradient for operator in counted)
    kernels = kernels_of(table)
    at = (kernels.kernel_class == KERNEL_CLASSES.index("add")) & (kernels["flops"] == 0)
    sums = sum(n for operator, n in counted.items() if (operator.type, operator.passes) == ("add", "forward"))
    assert kernels.count[at].sum() >= len(lists)
    assert sums >= len(lists)


def test_losses_on_the_maps_of_one_image_are_counted(recorded):
    """Each image's scores at all anchors were left out: they belong to no mini-batch."""
    losses, scores = (
        [
            row.out_channels * row.out_height * row.out_width
            for row in recorded("RetinaNet")
            if words in row.name
        ]
        for words in ("binary_cross_entropy", "classification_head.cls_logits")
    )
    assert losses == [sum(scores) // 2] * 2 > [0]  # two images, each with half of the mini-batch's numbers


def test_the_gpu_idles_where_the_host_waits_for_its_numbers(recorded):
    table = recorded("MaskRCNN")
    row = answer(Question(table, "H200")).rows()[0]
    host, gpu = row.host_time_ms, row.gpu_time_ms
    assert row.iteration_time_ms > max(host, gpu) + WAIT_MS * table.step.waits
    assert row.iteration_time_ms < host + 1.05 * gpu + WAIT_MS * table.step.waits


def test_an_anchor_holds_what_the_host_waits_for(recorded):
    table = recorded("RetinaNet")
    anchor = {"gpu": "NVIDIA H200", "batch_size": 2, "iteration_time_ms": 80.0}
    row = answer(Question(table, "H200", anchors=[anchor])).rows()[0]
    assert row.iteration_time_ms == pytest.approx(80.0, rel=0.02)


def pairs_by_assignment(torch, n_layers, n_targets):
    """A detector as DETR is: queries are paired with each image's targets after each layer of its decoder."""
    from scipy import optimize

    nn = torch.nn
    body = nn.Sequential(nn.Conv2d(3, 16, 3, 4), nn.ReLU())
    layers = nn.ModuleList(nn.TransformerDecoderLayer(16, 2, 16, batch_first=True) for _ in range(n_layers))
    head, queries = nn.Linear(16, 4), nn.Parameter(torch.rand(20, 16))
    images = torch.rand(2, 3, 64, 64)
    targets = [torch.tensor([[0.2, 0.2, 0.7, 0.7]]).repeat(n_targets, 1)] * len(images)
    adam = torch.optim.AdamW([*body.parameters(), *layers.parameters(), *head.parameters(), queries])

    def paired(boxes, boxes_of_targets):
        if not (boxes[:, 2:] >= boxes[:, :2]).all():
            raise ValueError("boxes have no size")
        costs = torch.cdist(boxes, boxes_of_targets, p=1).detach().cpu()
        rows, columns = map(torch.as_tensor, optimize.linear_sum_assignment(costs))
        return (boxes[rows] - boxes_of_targets[columns]).abs().sum()

    def step():
        adam.zero_grad()
        maps = body(images).flatten(2).transpose(1, 2)
        decoded = queries.expand(len(images), -1, -1)
        losses = []
        for layer in layers:
            decoded = layer(decoded, maps)
            losses += [paired(*pair) for pair in zip(head(decoded).sigmoid(), targets, strict=True)]
        sum(losses).backward()
        adam.step()

    return step


def test_a_target_is_assigned_one_prediction_and_the_host_waits_for_it(torch):
    pytest.importorskip("scipy", reason="scipy is not installed: nothing is assigned")
    step = pairs_by_assignment(torch, n_layers=2, n_targets=3)
    table = record(step)
    assert table.step.waits == 2 * 2 * 2  # whether its boxes have a size, and its costs, of each image
    assert any("the host waits for the GPU 8 times" in str(warning) for warning in table.warnings)
    [pairs, *_] = [row for row in table if row.type == "subtract" or row.name.endswith("sub")]
    assert pairs.in_channels * pairs.in_height * pairs.in_width * 2 == 3 * 4


def test_the_steps_of_the_page_lead_to_a_verdict(torch, torchvision_models, monkeypatch, capsys):
    monkeypatch.syspath_prepend(RECORDED_STEPS)
    page = (Path(__file__).parents[3] / "docs/recorded_steps.md").read_text(encoding="utf-8")
    detection = torchvision_models.detection
    tiny_detector = lambda num_classes, **_: detector_of(torch, detection, "SSD", num_classes)  # noqa: E731
    monkeypatch.setattr(detection, "maskrcnn_resnet50_fpn", tiny_detector)
    tiny = {
        "range(4)": "range(2)",
        "[target] * 4": "[target] * 2",
        "800, 1066": "64, 96",
        "[[100.0, 100, 400, 400]]": "[[8.0, 8, 40, 40]]",
        "n_images=16, size=640, objects=8, width=8, depth=3": "",
        "128, (32, 64, 128, 256, 320, 320)": "16, (4, 8, 16)",
    }
    for size, smaller in tiny.items():
        assert size in page
        page = page.replace(size, smaller)
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, {"__name__": "__main__"})  # noqa: S102 - the page's own code
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 3
    assert all("$" in line for line in lines)


def test_sizes_that_are_drawn_are_said_where_boxes_are_chosen(torch):
    """As of torchvision's keypoint R-CNN, which resizes each mini-batch to one of six sizes."""
    net, images = torch.nn.Conv2d(3, 4, 3), torch.rand(2, 3, 16, 16)

    def step():
        side = 16 + 8 * int(torch.rand(1).item() * 6)
        maps = net(torch.nn.functional.interpolate(images, size=(side, side)))
        maps[maps > 0.5].sum().backward()

    tables = [record(step) for _ in range(2)]
    fewer = record(step, boxes_per_image=2)
    assert cnn_flops(fewer, 2) < cnn_flops(tables[0], 2)
    texts = [warning.about for warning in tables[0].warnings]
    assert len({row.in_height for table in tables for row in table if row.type == "conv2d"}) == 1
    assert any("drawn at random" in text for text in texts), texts
    assert any("what numbers decide" in text for text in texts), texts
