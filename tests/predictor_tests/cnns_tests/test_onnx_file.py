"""ONNX files: the ways in which they go wrong, and exports that fold batch norms; graphs are in `test_small_cnns`."""

import contextlib
import random
import sys

import pytest
from case_tables import each_row
from onnx_files import onnx_model

from predictor.cnns.layer_table import LayerTable
from predictor.cnns.onnx_file import FUSED_EXPORT, INFERENCE_EXPORT, KERAS_EXPORT, from_onnx
from predictor.cnns.torch_module import from_torch
from predictor.errors import DataError, OutOfRangeError, SchemaError


def test_weights_in_another_file_are_never_opened(onnx, tmp_path):
    helper = onnx.helper
    weight = onnx.TensorProto(name="w", data_type=1, dims=[4, 3, 3, 3], data_location=1)
    weight.external_data.add(key="location", value="../../etc/nothing/here")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "apart",
        [helper.make_tensor_value_info("x", 1, ("n", 3, 16, 16))],
        [helper.make_tensor_value_info("y", 1, None)],
        [weight],
    )
    (tmp_path / "apart.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    assert from_onnx(tmp_path / "apart.onnx").parameters == 108


@each_row
def test_a_file_of_keras_without_batch_norms_names_the_file_to_give_and_casts_to_the_same_type_are_nothing(
    onnx, tmp_path, producer, image, normalized, flagged
):
    helper = onnx.helper
    numbers = [helper.make_tensor(name, 1, [4], [1.0] * 4) for name in ("scale", "shift", "mean", "variance")]
    norm = helper.make_node("BatchNormalization", ["cast", "scale", "shift", "mean", "variance"], ["y"])
    graph = helper.make_graph(
        [
            helper.make_node("Conv", [image, "w"], ["conv"]),
            helper.make_node("Cast", ["conv"], ["cast"], to=1),
            norm if normalized else helper.make_node("Relu", ["cast"], ["y"]),
        ],
        "of_keras",
        [helper.make_tensor_value_info(image, 1, ("n", 3, 16, 16))],
        [helper.make_tensor_value_info("y", 1, None)],
        [helper.make_tensor("w", 1, [4, 3, 3, 3], [0.0] * 108), *numbers * normalized],
    )
    (tmp_path / "a.onnx").write_bytes(helper.make_model(graph, producer_name=producer).SerializeToString())
    table = from_onnx(tmp_path / "a.onnx")
    assert (KERAS_EXPORT in table.warnings) is flagged
    assert [layer.type for layer in table] == ["conv2d", "batch_norm" if normalized else "activation"]


def test_a_truncated_file_is_refused(onnx):
    content = onnx_model({"nodes": [["Conv", "x w", "y"]], "weights": {"w": (64, 3, 3, 3)}})
    for length in (1, len(content) // 2, len(content) - 7):
        with pytest.raises(SchemaError, match="not an ONNX file, or is"):
            from_onnx("cut.onnx", content=content[:length])


def test_a_damaged_file_is_read_or_refused_but_never_crashes(onnx):
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [["Conv", "x w", "c"], ["MaxPool", "c", "p", window], ["Flatten", "p", "f"], ["Gemm", "f d", "y"]]
    content = onnx_model({"nodes": nodes, "weights": {"w": (4, 3, 3, 3), "d": (196, 5)}})
    for seed in range(40):
        luck, damaged = random.Random(seed), bytearray(content)  # noqa: S311  # no secret
        for _ in range(luck.choice((1, 3, 9))):
            damaged[luck.randrange(len(damaged))] = luck.randrange(256)
        with contextlib.suppress(DataError, OutOfRangeError):
            assert isinstance(from_onnx("damaged.onnx", content=bytes(damaged)), LayerTable)


def test_a_file_that_is_empty_or_missing_is_refused(onnx, tmp_path):
    (tmp_path / "empty.onnx").touch()
    for name, message in (("empty", "is empty"), ("none", "cannot read")):
        with pytest.raises(DataError, match=message):
            from_onnx(tmp_path / f"{name}.onnx")


def test_a_graph_of_too_many_operators_is_refused(onnx, monkeypatch):
    monkeypatch.setattr("predictor.cnns.onnx_graph._MOST_NODES", 1)
    with pytest.raises(SchemaError, match="has 2 operators"):
        from_onnx("made.onnx", content=onnx_model({"nodes": [["Relu", "x", "r"], ["Relu", "r", "y"]]}))


def test_a_file_that_is_too_large_is_refused_unread(onnx, tmp_path, monkeypatch):
    (tmp_path / "large.onnx").write_bytes(b"x" * 100)
    monkeypatch.setattr("predictor.cnns.onnx_graph._MOST_BYTES", 99)
    with pytest.raises(SchemaError, match="has 100 bytes"):
        from_onnx(tmp_path / "large.onnx")


def test_a_missing_file_is_said_before_a_missing_onnx(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(DataError, match=r"cannot read the ONNX file .*none\.onnx: No such file"):
        from_onnx(tmp_path / "none.onnx")


@pytest.mark.parametrize(("trains", "flagged"), [(False, True), (True, False)], ids=["inference", "training"])
def test_one_folded_convolution_is_enough_where_pytorch_named_its_weights(tmp_path, trains, flagged):
    torch = pytest.importorskip("torch", reason="writes the file")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).train(trains)
    training = torch.onnx.TrainingMode.PRESERVE
    options = {"training": training, "do_constant_folding": False} if trains else {}
    torch.onnx.export(module, torch.zeros(1, 3, 8, 8), tmp_path / "a.onnx", dynamo=False, **options)
    assert (INFERENCE_EXPORT in from_onnx(tmp_path / "a.onnx").warnings) is flagged


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_batch_norms_that_pytorchs_default_exporter_folds_are_warned_of_and_kept_as_the_warning_says(
    torch, onnx, tmp_path
):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed here: the exporter does not run")
    nn, images = torch.nn, torch.zeros(2, 3, 8, 8)
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))
    tables = []
    for options in ({}, {"optimize": False}):
        torch.onnx.export(module.train(), (images,), tmp_path / "exported.onnx", **options)
        tables.append(from_onnx(tmp_path / "exported.onnx"))
    folded, kept = tables
    assert (folded.warnings, kept.warnings) == ((FUSED_EXPORT,), ())
    assert "batch_norm" not in {layer.type for layer in folded}
    rows = [[(layer.type, layer.parameters) for layer in table] for table in (kept, from_torch(module, 8))]
    assert rows[0] == rows[1]
