"""Operators that popular CNNs run have a type."""

import pytest

from predictor.cnns.torch_module import from_torch
from predictor.errors import SchemaError


@pytest.fixture
def types_of(torch):
    """Types of the rows that a function of feature maps makes."""

    def types(function):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

            def forward(self, images):
                return function(self.conv(images))

        return [layer.type for layer in from_torch(Net(), 8)][1:]

    return types


def test_copies_reductions_and_joined_maps_are_counted(torch, types_of):
    functional = torch.nn.functional
    types = {
        "stack": types_of(lambda x: torch.stack([x, x], 1)),
        "repeat": types_of(lambda x: x.repeat(1, 2, 1, 1)),
        "unfold": types_of(lambda x: functional.unfold(x, 2, stride=2)),
        "norm": types_of(lambda x: torch.linalg.vector_norm(x, dim=1)),
        "max": types_of(lambda x: x.max(dim=1).values),
        "addcmul": types_of(lambda x: torch.addcmul(x, x, x)),
    }
    assert types == {
        "stack": ["concat"],
        "repeat": ["pad"],
        "unfold": ["pad"],
        "norm": ["mean"],
        "max": ["mean"],
        "addcmul": ["multiply"],
    }


def test_a_detector_is_refused_with_the_wrapper_to_write_and_that_is_read(torch, torchvision_models):
    with torch.device("meta"):
        detector = torchvision_models.get_model("retinanet_resnet50_fpn", weights=None, weights_backbone=None)
    with pytest.raises(SchemaError, match="A detector trains on images with targets") as refused:
        from_torch(detector, 224)
    assert "`maps = list(self.detector.backbone(images).values()); return self.detector.head(maps)`" in str(
        refused.value
    )

    class Dense(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.detector = detector

        def forward(self, images):
            maps = list(self.detector.backbone(images).values())
            return self.detector.head(maps)

    table = from_torch(Dense(), 224)
    assert table.parameters == sum(
        parameter.numel() for parameter in detector.parameters() if parameter.requires_grad
    )
