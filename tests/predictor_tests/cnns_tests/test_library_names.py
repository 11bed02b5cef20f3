"""CNNs named by an installed library: built without weights and network, refused with the nearest names."""

import json

import pytest

from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import BackendUnavailableError, SchemaError, UnknownCnnError


@pytest.mark.usefixtures("torchvision_models")
def test_a_cnn_of_torchvision_is_that_of_the_zoo():
    table = resolve_cnn("torchvision:resnet18")
    assert (table.cnn, table.image_size, table.parameters) == ("torchvision:resnet18", 224, 11_689_512)
    assert [row.type for row in table] == [row.type for row in zoo_cnn("resnet18")]
    with pytest.raises(UnknownCnnError, match=r"torchvision has no CNN 'resnet19'\. Nearest: 'resnet18'"):
        resolve_cnn("torchvision:resnet19")


@pytest.mark.usefixtures("torchvision_models")  # transformers imports it, too
def test_a_configuration_of_hugging_face_is_built_from_the_file(torch, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    config = {
        "model_type": "resnet",
        "hidden_sizes": [16, 32, 64, 128],
        "depths": [1, 1, 1, 1],
        "num_channels": 1,
    }
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["ResNetForImageClassification"]})
    )
    table = resolve_cnn(f"hf:{tmp_path}/config.json", 64)
    assert (table.layers[0].in_channels, table.image_size) == (1, 64)
    with pytest.raises(SchemaError, match="nothing is fetched"):
        resolve_cnn("hf:microsoft/resnet-50")


def test_a_cnn_of_timm_is_read_at_its_own_size(torch):
    pytest.importorskip("timm", reason="timm is not installed")
    assert resolve_cnn("timm:resnet26d").layers[0].out_channels == 32


def test_a_library_that_is_not_installed_is_named(torch, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(BackendUnavailableError, match="needs timm, which is not installed"):
        resolve_cnn("timm:resnet26d")
