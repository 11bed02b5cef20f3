"""A service explains what the local core explains, field by field: through the client and the command."""

from dataclasses import asdict

import pandas as pd
import pytest

import epochcast
from predictor.errors import OutOfRangeError, SchemaError, ServiceError, UnknownCnnError, UnknownGpuError


def assert_same_value(remote, local):
    """Numbers to thirteen digits, all else exactly, types included."""
    assert type(remote) is type(local)
    if isinstance(local, dict):
        assert list(remote) == list(local)
        for name, value in local.items():
            assert_same_value(remote[name], value)
    elif isinstance(local, tuple | list):
        assert len(remote) == len(local)
        for one, other in zip(remote, local, strict=True):
            assert_same_value(one, other)
    elif isinstance(local, float):
        assert remote == pytest.approx(local, rel=1e-13, abs=0, nan_ok=True)
    else:
        assert remote == local


def assert_same(remote, local):
    pd.testing.assert_frame_equal(remote, local, rtol=1e-13, atol=0.0)
    assert remote.attrs["covers"] == local.attrs["covers"]
    for one, other in zip(remote.attrs["explanations"], local.attrs["explanations"], strict=True):
        assert type(one) is type(other)
        assert_same_value(asdict(one), asdict(other))


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (("resnet50", "H200", [1, 256]), {"precision": "tf32", "data_set": "imagenet"}),
        (("resnet50", ["T4", "H200"]), {}),
        (("resnet50", ["T4"], "64,8"), {"precision": "amp_fp16", "memory_format": "channels_last"}),
        ((["vgg11", "lenet5"], "V100-SXM2-16GB", 32), {"samples": 1000}),
        (("resnet18", "T4", 8), {"framework": "tensorflow", "optimizer": "sgd", "capture": "graph"}),
        (("resnet18", "T4", 8), {"image_size": 96, "capture": "graph", "method": "roofline"}),
        (("resnet50", "H200", [64, 128]), {"method": "gpu-specs"}),
        (("resnet18", "T4", 8), {"anchors": [{"gpu": "T4", "batch_size": 8, "iteration_time_ms": 77.0}]}),
    ],
)
def test_an_explanation_is_that_of_the_local_core(client, asked, options):
    assert_same(client.explain(*asked, **options), epochcast.explain(*asked, **options))


def test_more_gpus_than_a_question_may_name_are_several_questions(client):
    gpus = [gpu for gpu in client.gpus()["name"] if "A100" in gpu or "RTX 30" in gpu][:10]
    assert len(gpus) == 10
    assert_same(client.explain("alexnet", gpus, 64), epochcast.explain("alexnet", gpus, 64))


def test_all_gpus_are_those_with_the_precision(client):
    options = {"precision": "amp_bf16"}
    remote, local = (
        face.explain("lenet5", "all", 64, **options)["gpu"].tolist() for face in (client, epochcast)
    )
    assert remote == local


def test_a_cnn_of_ones_own_is_sent_as_its_layers(client, own_cnn):
    assert_same(client.explain(own_cnn, "T4", [1, 64]), epochcast.explain(own_cnn, "T4", [1, 64]))


@pytest.mark.parametrize(
    ("asked", "options", "kind"),
    [
        (("resnet50", "H2O0", 64), {}, UnknownGpuError),
        (("resnet51", "T4", 64), {}, UnknownCnnError),
        (("resnet50", "T4", 64), {"precision": "tf32"}, OutOfRangeError),
        (("resnet50", "T4", 64), {"precision": "fp8"}, SchemaError),
        (("resnet50", "T4", 0), {}, OutOfRangeError),
        (("resnet50", None, 64), {}, SchemaError),
    ],
)
def test_a_refusal_is_the_error_that_the_local_core_raises(client, asked, options, kind):
    for face in (epochcast, client):
        with pytest.raises(kind):
            face.explain(*asked, **options)


def test_a_table_is_not_sent(client):
    frame = pd.DataFrame({"gpu": ["T4"]})
    with pytest.raises(SchemaError, match="Leave the server out"):
        client.explain(frame, "T4")


def test_a_model_cannot_be_sent(client):
    with pytest.raises(SchemaError, match="model cannot be sent"):
        client.explain("resnet50", "T4", 8, model="m.json")


def test_a_service_of_another_version_is_refused(client, monkeypatch):
    monkeypatch.setattr(
        "epochcast.client.Client._ask",
        lambda *_: {"covers_together": "", "explanations": [{"cnn": "x"}]},
    )
    with pytest.raises(ServiceError, match="another version"):
        client.explain("resnet50", "T4", 8)


@pytest.mark.parametrize(
    ("option", "value"), [("spot", True), ("offers", "mine.csv"), ("validation_samples", 10)]
)
@pytest.mark.parametrize("face", [epochcast, "client"])
def test_an_option_without_effect_on_an_explanation_is_refused(face, option, value, client):
    asked = client if face == "client" else face
    with pytest.raises(SchemaError, match=f"{option} has no effect on an explanation"):
        asked.explain("resnet50", "T4", 8, samples=100, **{option: value})


def test_an_address_below_which_no_service_is_says_so(url):
    with pytest.raises(ServiceError, match="is it an epochcast service"):
        epochcast.Client(f"{url}/elsewhere").explain("resnet50", "T4", 8)


def test_a_recorded_step_with_frozen_layers_is_explained_at_its_own_batch_size(client, torch):
    nn = torch.nn
    body, head = nn.Conv2d(3, 8, 3, padding=1), nn.Sequential(nn.Flatten(), nn.Linear(2048, 10))
    images = torch.zeros(6, 3, 16, 16)
    optimizer = torch.optim.SGD(head.parameters(), 0.1)

    def step():
        optimizer.zero_grad()
        head(body.requires_grad_(False)(images)).mean().backward()
        optimizer.step()

    seen = epochcast.record(step)
    local = epochcast.explain(seen, "T4")
    assert_same(client.explain(seen, "T4"), local)
    [explanation] = local.attrs["explanations"]
    assert explanation.batch_sizes == (6,)
    assert [each.part for each in explanation.parts] == ["frozen"]
