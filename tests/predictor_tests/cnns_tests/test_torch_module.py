"""PyTorch modules: the user's module is left alone, whatever its mode, and refusals help."""

import re
from typing import Any

import pytest
from own_module import own_module

from predictor.cnns.torch_module import from_torch
from predictor.errors import OutOfRangeError, SchemaError


@pytest.fixture
def small(torch: Any) -> Any:
    nn = torch.nn
    conv, pool = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.MaxPool2d(2)
    layers = conv, nn.BatchNorm2d(8), nn.ReLU(inplace=True), pool, nn.Flatten(), nn.Dropout()
    return nn.Sequential(*layers, nn.Linear(8 * 8 * 8, 10))


def test_the_users_module_is_left_as_it_was(torch, small):
    small.eval()
    before = {name: tensor.clone() for name, tensor in small.state_dict().items()}
    from_torch(small, 16)
    assert not small.training
    assert not small[0]._forward_hooks
    assert all(tensor.device.type == "cpu" for tensor in small.state_dict().values())
    assert all(torch.equal(tensor, before[name]) for name, tensor in small.state_dict().items())


def test_a_module_is_read_as_training_whatever_its_mode_its_batch_and_what_spreads_it(torch, small):
    layers = from_torch(small.train(), 16).layers
    assert [row.parameters for row in layers] == [216, 16, 0, 0, 0, 0, 5130]
    for module, batch in ((small, 7), (torch.nn.DataParallel(small), 2), (small.eval(), 2)):
        assert from_torch(module, 16, batch=batch).layers == layers


@pytest.mark.parametrize("channels", [1, 4, 12])
def test_images_have_the_channels_that_the_first_layer_reads(torch, channels):
    nn = torch.nn
    conv, head = nn.Conv2d(channels, 8, 3), [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)]
    for first in (
        [conv],
        [nn.BatchNorm2d(channels), conv],
        [nn.Flatten(), nn.Linear(channels * 28 * 28, 10)],
    ):
        row, *_ = from_torch(nn.Sequential(*first, *(head if conv in first else [])), 28)
        assert (row.in_channels, row.in_height) == (channels, 28)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_read_is_refused_with_the_reason(torch, small):
    nn = torch.nn
    scripted = torch.jit.trace(nn.ReLU(), torch.zeros(1))
    own = lambda forward: own_module(torch, lambda _, x: forward(x))  # noqa: E731
    by_batch = "2x2 at batch size 2 but 3x3 at 3.*depends on the batch size"
    lazy = nn.Sequential(nn.LazyConv2d(8, 3), nn.Flatten(), nn.LazyLinear(10))
    for module, size, error, words in (
        ("resnet50", 16, SchemaError, r"str is not a torch\.nn\.Module"),
        (scripted, 16, SchemaError, "scripted"),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(4, 8, 3)), 16, SchemaError, "2x3x16x16"),
        (nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(4, 8, 3)), 16, SchemaError, "2x1x16x16"),
        (nn.Conv2d(3, 8, 7), 4, OutOfRangeError, "larger image_size"),
        *((small, size, OutOfRangeError, "image_size") for size in (0, -1, 2.5, True)),
        (small, 20, SchemaError, "does not run on a batch of 2x3x20x20"),
        (own(lambda x: x.relu() if x.sum() > 0 else x), 16, SchemaError, "layer table CSV"),
        (own(lambda x: x.flatten(1) @ x.flatten(1).T), 32, SchemaError, by_batch),
        (
            own(lambda x: torch.stack([image.relu() for image in x])),
            32,
            SchemaError,
            "different operators at batch",
        ),
        (own(lambda x: x.view(2, 3, 32, 32).relu()), 32, SchemaError, "fixes no batch size"),
        (lazy, 16, SchemaError, r"lazy layers .*: 0, 2. Run it once"),
    ):
        with pytest.raises(error, match=words):
            from_torch(module, size)
    lazy(torch.zeros(2, 3, 16, 16))
    assert [row.type for row in from_torch(lazy, 16)] == ["conv2d", "flatten", "linear"]


def test_a_detector_is_refused_with_the_wrapper_to_write_and_that_is_read(torch, torchvision_models):
    with torch.device("meta"):
        detector = torchvision_models.get_model("retinanet_resnet50_fpn", weights=None, weights_backbone=None)
    instead = "`maps = list(self.detector.backbone(images).values()); return self.detector.head(maps)`"
    with pytest.raises(SchemaError, match=f"A detector trains on images with targets.*{re.escape(instead)}"):
        from_torch(detector, 224)

    def forward(self: Any, images: Any) -> Any:
        return self.detector.head(list(self.detector.backbone(images).values()))

    trained = sum(parameter.numel() for parameter in detector.parameters() if parameter.requires_grad)
    assert from_torch(own_module(torch, forward, detector=detector), 224).parameters == trained
