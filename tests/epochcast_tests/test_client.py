"""A service answers what the local core answers, field by field: through the client, over real HTTP."""

import json
import sys

import pandas as pd
import pytest

import epochcast
from api.store.keys import add_key
from epochcast.client import Client
from predictor.answers.bulk import predict_rows
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import (
    BackendUnavailableError,
    DataError,
    OutOfRangeError,
    SchemaError,
    ServiceError,
    UnknownCnnError,
    UnknownGpuError,
)
from predictor.operators.operators import operator_row, operators_of

GPUS = ["T4", "V100-SXM2-16GB", "H200"]


def assert_same(remote, local):
    # a product's last bit depends on where its array lies in memory
    pd.testing.assert_frame_equal(remote, local, rtol=1e-13, atol=0.0)
    assert remote.attrs == local.attrs


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data_set": "imagenet"},
        {"samples": 50_000, "validation_samples": 10_000, "image_size": 160},
        {"precision": "amp_fp16", "memory_format": "channels_last", "capture": "graph"},
        {"framework": "tensorflow", "optimizer": "sgd", "capture": "graph", "spot": True, "samples": 1000},
        {"anchors": [{"gpu": "T4", "batch_size": 32, "iteration_time_ms": 300.0}], "samples": 1000},
        {"method": "roofline"},
        {"method": "flops-ratio"},
    ],
)
def test_a_prediction_is_that_of_the_local_core(client, options):
    asked = ("resnet50", GPUS, [16, 64])
    assert_same(client.predict(*asked, **options), epochcast.predict(*asked, **options))


def test_batch_sizes_and_gpus_are_written_as_locally(client):
    assert_same(client.predict("vgg11", "t4", "64,32"), epochcast.predict("vgg11", "t4", "64,32"))
    assert_same(client.predict("vgg11", "all", 8), epochcast.predict("vgg11", "all", 8))


def test_several_cnns_are_several_questions(client):
    asked = (["resnet18", "vgg11"], GPUS, 64)
    assert_same(client.predict(*asked), epochcast.predict(*asked))


def test_a_cnn_of_ones_own_is_sent_as_its_layers(client, own_cnn, tmp_path):
    assert_same(client.predict(own_cnn, GPUS, 64), epochcast.predict(own_cnn, GPUS, 64))
    path = tmp_path / "file.csv"
    zoo_cnn("resnet18", 64).to_csv(path)
    assert_same(client.predict(path, GPUS, 64), epochcast.predict(path, GPUS, 64))
    assert_same(client.predict(str(path), GPUS, 64), epochcast.predict(str(path), GPUS, 64))


def test_a_pytorch_module_is_sent_as_its_layers(client, torch):
    nn = torch.nn
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))
    options = {"data_set": "cifar10"}
    assert_same(client.predict(module, "T4", 64, **options), epochcast.predict(module, "T4", 64, **options))


def test_a_recorded_step_in_a_csv_is_answered_alike_by_python_command_line_and_service(
    client, torch, epochcast_command, tmp_path
):
    nn = torch.nn
    backbone, head = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), nn.Linear(8, 5)
    backbone.requires_grad_(False)
    images, labels = torch.zeros(64, 4, 32, 24), torch.zeros(64).long()
    optimizer = torch.optim.AdamW(head.parameters())

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(backbone(images).mean((2, 3))), labels).backward()
        optimizer.step()

    seen, path = epochcast.record(step, name="mine"), tmp_path / "mine.csv"
    seen.to_csv(path)
    expected = epochcast.predict(seen, GPUS)
    assert_same(epochcast.predict(path, GPUS), expected)
    assert_same(client.predict(path, GPUS), expected)
    gpus = [word for gpu in GPUS for word in ("--gpu", gpu)]
    rows = json.loads(epochcast_command("predict", path, *gpus, "--format", "json").out)["rows"]
    columns = ["batch_size", "iteration_time_ms", "high_ms", "peak_memory_gib", "largest_batch_size"]
    assert [[row[name] for name in columns] for row in rows] == expected[columns].to_numpy().tolist()
    shown = epochcast_command("cnn", "show", path, "--format", "csv").out
    path.write_text(shown, encoding="utf-8")
    assert_same(epochcast.predict(path, GPUS), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("channels", "width", "activation"),
    [(1, 64, "ReLU"), (3, 64, "SiLU"), (3, 64, "Mish"), (4, 48, "Hardswish"), (12, 80, "GELU")],
)
def test_an_image_of_any_channels_and_sides_is_answered_alike_as_a_step_a_file_and_a_row(
    client, torch, tmp_path, channels, width, activation
):
    pytest.importorskip("onnx", reason="ONNX files are made by it")
    nn = torch.nn
    layers = (
        nn.Conv2d(channels, 16, 3),
        nn.BatchNorm2d(16),
        getattr(nn, activation)(),
        nn.AdaptiveAvgPool2d(1),
    )
    module, images = (
        nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 5)),
        torch.zeros(2, channels, 64, width),
    )
    path, mode = tmp_path / "mine.onnx", torch.onnx.TrainingMode.PRESERVE
    torch.onnx.export(module, images, path, training=mode, do_constant_folding=False, dynamo=False)
    expected = epochcast.predict(epochcast.record(module, images), GPUS, 64)
    numbers = ["iteration_time_ms", "gpu_time_ms", "low_ms", "high_ms", "peak_memory_gib"]
    for found in (epochcast.predict(path, GPUS, 64), client.predict(path, GPUS, 64)):
        pd.testing.assert_frame_equal(found[numbers], expected[numbers])
    (tmp_path / "rows.csv").write_text(
        "\n".join(["cnn,gpu,batch_size", *(f"{path},{gpu},64" for gpu in GPUS)])
    )
    predict_rows(tmp_path / "rows.csv", tmp_path / "out.csv")
    rows = pd.read_csv(tmp_path / "out.csv")
    pd.testing.assert_frame_equal(rows[numbers], expected[numbers])


def test_measurements_of_ones_own_go_along(client):
    gpu = "NVIDIA L40S"
    rows = pd.DataFrame(
        [
            {
                **operator_row(operator),
                "gpu": gpu,
                "framework": "pytorch",
                "image_size": operator.in_height or 1,
                "batch_size": 64,
                "precision": "fp32",
                "memory_format": "nchw",
                "iteration_time_ms": 0.1 + i / 7,
                "gpu_time_ms": 0.1 + i / 7,
                "host_time_ms": 0.02,
            }
            for i, operator in enumerate(operators_of(zoo_cnn("resnet18")))
        ]
    )
    remote = client.predict("resnet18", gpu, [32, 64], precision="fp32", measurements=rows)
    assert remote["method"].tolist() == ["layer-times"] * 2
    assert_same(remote, epochcast.predict("resnet18", gpu, [32, 64], precision="fp32", measurements=rows))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gpu": GPUS, "rank_by": "time", "relative_to": "T4"},
        {"epochs": 90, "budget_usd": 400, "deadline_h": 24, "setup_minutes": 10, "all_offers": True},
        {"precision": "amp_bf16", "memory_format": "channels_last", "spot": True},
    ],
)
def test_a_comparison_is_that_of_the_local_core(client, options):
    remote = client.compare("resnet50", batch_size=[64, 128], data_set="imagenet", **options)
    assert_same(remote, epochcast.compare("resnet50", batch_size=[64, 128], data_set="imagenet", **options))


def test_a_services_verdict_is_the_core_verdict(client):
    question = {"data_set": "imagenet", "epochs": 90, "budget_usd": 100.0, "deadline_h": 48.0}
    gpus = ["L4", "A100-SXM4-40GB", "H200"]
    remote, local = (
        client.compare("resnet50", gpus, **question),
        epochcast.compare("resnet50", gpus, **question),
    )
    assert remote.attrs["verdict"] == local.attrs["verdict"]


@pytest.mark.parametrize(
    ("asked", "options", "kind"),
    [
        (("resnet50", "H2O0", 64), {}, UnknownGpuError),
        (("resnet51", "T4", 64), {}, UnknownCnnError),
        (("resnet50", "T4", 64), {"precision": "tf32"}, OutOfRangeError),
        (("resnet50", "T4", 64), {"precision": "fp8"}, SchemaError),
        (("resnet50", "T4", 0), {}, OutOfRangeError),
        (("inception_v3", "T4", 64), {"image_size": 32}, OutOfRangeError),
        (("resnet50", "T4", 64), {"samples": -1}, OutOfRangeError),
        (("resnet50", "T4", 64), {"samples": 10, "validation_samples": -1}, OutOfRangeError),
        (("resnet50", "T4", 64), {"image_size": 99_999}, OutOfRangeError),
        (("resnet50", "T4", 64), {"samples": "many"}, SchemaError),
        (("missing.csv", "T4", 64), {}, DataError),
    ],
)
def test_a_refusal_is_the_error_that_the_local_core_raises(client, asked, options, kind):
    with pytest.raises(kind) as local:
        epochcast.predict(*asked, **options)
    with pytest.raises(kind) as remote:
        client.predict(*asked, **options)
    assert type(remote.value) is type(local.value)


@pytest.mark.parametrize("option", ["model", "offers"])
def test_what_cannot_be_sent_is_refused_here(client, option):
    with pytest.raises(SchemaError, match=f"{option} cannot be sent to a service"):
        client.predict("resnet50", "T4", 64, **{option: "file"})


def test_what_the_service_knows_is_a_table(client):
    assert "Tesla T4" in set(client.gpus()["name"])
    assert {"provider", "gpu", "usd_per_hour"} <= set(client.offers().columns)
    assert "resnet50" in set(client.cnns()["cnn"])


def test_more_measurements_than_a_service_takes_are_told_where_to_go(client):
    frame = pd.DataFrame(
        [["T4", "resnet50", 224, 32, "fp32", 310.5]] * 20_001,
        columns=["gpu", "cnn", "image_size", "batch_size", "precision", "iteration_time_ms"],
    )
    with pytest.raises(SchemaError, match=r"20,001 rows; .*`epochcast data push FILE URL`"):
        client.predict("resnet50", "T4", 64, measurements=frame)


def test_uploading_a_data_frame_stores_it_once(app, url):
    client = Client(url, add_key(app.state.store, "alice"))
    frame = pd.DataFrame(
        [["T4", "resnet50", 224, 32, "fp32", 310.5]],
        columns=["gpu", "cnn", "image_size", "batch_size", "precision", "iteration_time_ms"],
    )
    assert [client.upload(frame).stored, client.upload(frame).stored] == [1, 0]


def test_uploading_without_a_key_is_refused(client):
    frame = pd.DataFrame(
        [["T4", "resnet50", 224, 32, "fp32", 310.5]],
        columns=["gpu", "cnn", "image_size", "batch_size", "precision", "iteration_time_ms"],
    )
    with pytest.raises(ServiceError, match="no API key is given"):
        client.upload(frame)


def test_without_httpx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(
        BackendUnavailableError, match=r"httpx is not installed.*pip install 'epochcast\[client\]'"
    ):
        Client("http://127.0.0.1:9")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://h", "http://", "http://h:99999", "http://h:port"]
)
def test_an_address_of_no_service_is_refused(url):
    with pytest.raises(SchemaError, match="is not the address of a service"):
        Client(url)


def test_neither_errors_nor_the_client_itself_show_the_key(monkeypatch, caplog):
    monkeypatch.setattr("epochcast.service.time.sleep", lambda _: None)
    client = Client("http://127.0.0.1:9", "epochcast_secret")
    with caplog.at_level("DEBUG"), pytest.raises(ServiceError, match="does not answer") as error:
        client.cnns()
    assert (
        "secret"
        not in f"{error.value!r} {client!r} {vars(client)} {vars(client._service)['_http']!r} {caplog.text}"
    )
