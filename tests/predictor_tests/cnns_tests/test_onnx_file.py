"""ONNX files made by hand: each operator, what is folded into one, and the ways in which files go wrong."""

import contextlib
import random
import sys
from types import ModuleType
from typing import Any

import pytest

from predictor.cnns.layer_table import IMAGE, LayerTable, TableWarning, layer_complaint
from predictor.cnns.onnx_file import INFERENCE_EXPORT, from_onnx
from predictor.errors import BackendUnavailableError, DataError, OutOfRangeError, SchemaError


def _types(table: LayerTable) -> list[str]:
    return [row.kind or row.type for row in table]


def test_a_convolution_has_all_its_columns(onnx, table_of):
    node = onnx.helper.make_node(
        "Conv",
        ["x", "w", "b"],
        ["y"],
        "conv",
        kernel_shape=[3, 5],
        strides=[2, 1],
        pads=[1, 2, 1, 2],
        group=3,
    )
    (row,) = table_of([node], {"w": (6, 1, 3, 5), "b": (6,)})
    assert (row.name, row.type, row.inputs, row.groups, row.dilation) == ("conv", "conv2d", (IMAGE,), 3, 1)
    assert (row.kernel_height, row.kernel_width, row.stride_height, row.padding_width) == (3, 5, 2, 2)
    assert (row.in_height, row.out_channels, row.out_height, row.out_width) == (16, 6, 8, 16)
    assert row.parameters == 6 * 15 + 6


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER"])
def test_automatic_padding_is_resolved(onnx, table_of, automatic):
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=automatic, strides=[2, 2])
    (row,) = table_of([node], {"w": (4, 3, 3, 3)})
    assert (row.padding_height, row.out_height) == (1, 8)
    assert layer_complaint(row) is None


def test_a_transposed_convolution_is_one(onnx, table_of):
    node = onnx.helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])
    (row,) = table_of([node], {"w": (3, 4, 4, 4)})
    assert (row.type, row.out_channels, row.out_height) == ("conv_transpose2d", 4, 32)


def test_open_sizes_are_filled_in(onnx, table_of):
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
    table = table_of(nodes, image=("n", 3, "h", "w"), image_size=48)
    assert (table.image_size, table.layers[0].in_width) == (48, 48)


def test_open_sizes_must_be_given(onnx, table_of):
    with pytest.raises(SchemaError, match="image_size is needed"):
        table_of([onnx.helper.make_node("Relu", ["x"], ["y"])], image=("n", 3, "h", "w"))


def test_a_file_for_another_size_is_refused(onnx, table_of):
    with pytest.raises(OutOfRangeError, match="is for 16 pixels"):
        table_of([onnx.helper.make_node("Relu", ["x"], ["y"])], image_size=32)


def test_a_batch_that_the_file_fixes_does_not_matter(onnx, table_of):
    nodes = [onnx.helper.make_node("Flatten", ["x"], ["y"])]
    assert table_of(nodes, image=(1, 3, 16, 16)).layers == table_of(nodes, image=(64, 3, 16, 16)).layers


GELU = (("Div", "x root", "d"), ("Erf", "d", "e"), ("Add", "e one", "a"))
PATTERNS = {
    "relu": [("Relu", "x", "y")],
    "leaky_relu": [("LeakyRelu", "x", "y")],
    "sigmoid": [("Sigmoid", "x", "y")],
    "hardsigmoid": [("HardSigmoid", "x", "y")],
    "hardswish": [("HardSwish", "x", "y")],
    "tanh": [("Tanh", "x", "y")],
    "gelu": [("Gelu", "x", "y")],
    "softmax": [("Softmax", "x", "y")],
    "relu6": [("Clip", "x low high", "y")],
    "silu": [("Sigmoid", "x", "s"), ("Mul", "x s", "y")],
    "relu sigmoid multiply": [("Relu", "x", "r"), ("Sigmoid", "r", "s"), ("Mul", "x s", "y")],
    "hardswish in pieces": [("HardSigmoid", "x", "s"), ("Mul", "s x", "y")],
    "clamp in pieces": [("Softplus", "x", "p"), ("Tanh", "p", "t"), ("Mul", "x t", "y")],
    "gelu in pieces": [*GELU, ("Mul", "x a", "m"), ("Mul", "m half", "y")],
    "gelu in pieces, halved first": [*GELU, ("Mul", "x half", "h"), ("Mul", "h a", "y")],
}
"""Nodes by the kinds and types of the rows that they are read as."""


@pytest.mark.parametrize("rows", PATTERNS)
def test_activations_have_their_kind_also_where_they_are_written_in_pieces(onnx, table_of, rows):
    import numpy as np

    nodes = [onnx.helper.make_node(name, read.split(), [made]) for name, read, made in PATTERNS[rows]]
    numbers = {"low": 0, "high": 6, "root": 1.414, "one": 1, "half": 0.5}
    constants = {name: np.asarray(number, np.float32) for name, number in numbers.items()}
    read = {name for node in nodes for name in node.input}
    table = table_of(nodes, constants={name: constants[name] for name in read & constants.keys()})
    assert _types(table) == rows.partition(" in pieces")[0].split()


def test_old_clipping_gives_its_bounds_as_attributes(onnx, table_of):
    nodes = [onnx.helper.make_node("Clip", ["x"], ["y"], min=0.0, max=6.0)]
    assert _types(table_of(nodes, opset=9)) == ["relu6"]


def test_a_matrix_product_and_its_bias_are_one_dense_layer(onnx, table_of):
    make = onnx.helper.make_node
    first = make("Flatten", ["x"], ["f"])
    product = [make("MatMul", ["f", "w"], ["m"]), make("Add", ["b", "m"], ["y"])]
    for nodes, weights in ((product, (768, 5)), ([make("Gemm", ["f", "w", "b"], ["y"], transB=1)], (5, 768))):
        table = table_of([first, *nodes], {"w": weights, "b": (5,)})
        assert _types(table) == ["flatten", "linear"]
        assert (table.layers[1].out_channels, table.layers[1].parameters) == (5, 768 * 5 + 5)


def test_a_batch_norm_trains_two_numbers_per_channel(onnx, table_of):
    node = onnx.helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])
    (row,) = table_of([node], dict.fromkeys("sbmv", (3,)))
    assert (row.type, row.parameters) == ("batch_norm", 6)


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "ReduceMean"])
def test_a_mean_over_all_pixels_is_a_pooling(onnx, table_of, operator):
    import numpy as np

    axes = {"axes": np.asarray([-1, -2])} if operator == "ReduceMean" else {}
    (row,) = table_of([onnx.helper.make_node(operator, ["x", *axes], ["y"])], constants=axes)
    assert (row.type, row.kernel_height, row.stride_width, row.out_height) == ("avg_pool", 16, 16, 1)


def test_pools_have_their_windows(onnx, table_of):
    make = onnx.helper.make_node
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    table = table_of([make("MaxPool", ["x"], ["m"], **window), make("AveragePool", ["m"], ["y"], **window)])
    assert [(row.type, row.kernel_width, row.padding_height, row.out_width) for row in table] == [
        ("max_pool", 3, 1, 8),
        ("avg_pool", 3, 1, 4),
    ]


def test_sums_products_and_concatenations_name_what_they_read(onnx, table_of):
    make = onnx.helper.make_node
    nodes = [
        make("Relu", ["x"], ["r"]),
        make("Add", ["x", "r"], ["a"]),
        make("Mul", ["a", "scale"], ["s"]),
        make("Concat", ["s", "r"], ["y"], axis=1),
    ]
    table = table_of(nodes, {"scale": (3, 1, 1)})
    assert [(row.type, row.inputs, row.parameters) for row in table][1:] == [
        ("add", (IMAGE, 0), 0),
        ("multiply", (1,), 3),
        ("concat", (2, 0), 0),
    ]
    assert table.layers[3].in_channels == table.layers[3].out_channels == 6


def test_an_image_with_channels_last_is_understood(onnx, table_of):
    make = onnx.helper.make_node
    nodes = [make("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), make("Conv", ["t", "w"], ["y"])]
    table = table_of(nodes, {"w": (4, 3, 3, 3)}, image=("n", 32, 24, 3))
    assert table.image_size == 32
    assert [(row.type, row.in_channels, row.in_height, row.in_width) for row in table] == [
        ("permute", 3, 32, 24),
        ("conv2d", 3, 32, 24),
    ]


def test_slices_by_half_of_a_shape_are_followed(onnx, table_of):
    import numpy as np

    make = onnx.helper.make_node
    nodes = [
        make("Shape", ["x"], ["shape"]),
        make("Gather", ["shape", "one"], ["channels"]),
        make("Div", ["channels", "two"], ["half"]),
        make("Slice", ["x", "zero", "half", "one"], ["part"]),
        make("Relu", ["part"], ["y"]),
    ]
    constants = {name: np.asarray([n], np.int64) for name, n in (("zero", 0), ("one", 1), ("two", 2))}
    (row,) = table_of(nodes, constants=constants, image=("n", 6, 16, 16))
    assert (row.kind, row.in_channels) == ("relu", 3)


def test_noise_per_image_is_stochastic_depth_and_noise_per_number_dropout(onnx, table_of):
    import numpy as np

    make = onnx.helper.make_node
    nodes = [
        make("RandomUniformLike", ["mask"], ["r1"], dtype=1),
        make("Mul", ["x", "r1"], ["m"]),
        make("RandomUniformLike", ["m"], ["r2"]),
        make("Mul", ["m", "r2"], ["y"]),
    ]
    table = table_of(nodes, constants={"mask": np.ones((2, 1, 1, 1), np.float64)})
    assert _types(table) == ["stochastic_depth", "dropout"]


def test_a_recurrent_layer_is_refused_by_name(onnx, table_of):
    node = onnx.helper.make_node
    nodes = [
        node("Constant", [], ["shape"], value_ints=[-1, 2, 768]),
        node("Reshape", ["x", "shape"], ["steps"]),
        node("LSTM", ["steps", "w", "r"], ["y"], "reads", hidden_size=8),
    ]
    with pytest.raises(SchemaError, match=r"'reads': LSTM layers .* anchor"):
        table_of(nodes, {"w": (1, 32, 768), "r": (1, 32, 8)}, image=(2, 3, 16, 16))


@pytest.mark.parametrize(
    "doubled",
    [
        lambda node, i: [node("Concat", [f"s{i}", f"s{i}"], [f"s{i + 1}"], axis=0)],
        lambda node, i: [node("Gather", [f"s{i}", f"s{i}"], [f"s{i + 1}"])],
        lambda node, i: [
            node("Concat", [f"s{i}", f"s{i}"], [f"joined{i}"], axis=0),
            node("ConstantOfShape", [f"joined{i}"], [f"ones{i}"]),
            node("Relu", [f"ones{i}"], [f"same{i}"]),
            node("Shape", [f"same{i}"], [f"s{i + 1}"]),
        ],
    ],
    ids=["values", "dimensions", "both"],
)
def test_shapes_that_double_are_refused_by_name_before_they_are_written_out(onnx, table_of, doubled):
    node = onnx.helper.make_node
    first = "Cast" if doubled(node, 0)[0].op_type == "Gather" else "Shape"
    start = node(first, ["x"], ["s0"], **({"to": 7} if first == "Cast" else {}))
    nodes = [
        start,
        *(doubling for i in range(60) for doubling in doubled(node, i)),
        node("Relu", ["x"], ["y"]),
    ]
    with pytest.raises(SchemaError, match=r"shape of '(s|joined)1\d' .* at most 4,096 are read"):
        table_of(nodes)


def test_long_shapes_that_many_operators_pass_on_are_refused(onnx, table_of):
    node = onnx.helper.make_node
    nodes = [node("Shape", ["x"], ["s0"])]
    nodes += [node("Concat", [f"s{i}", f"s{i}"], [f"s{i + 1}"], axis=0) for i in range(10)]
    nodes += [node("Cast", [f"s{i}"], [f"s{i + 1}"], to=7) for i in range(10, 100)]
    with pytest.raises(SchemaError, match="of all tensors together"):
        table_of([*nodes, node("Relu", ["x"], ["y"])])


def test_joining_maps_again_and_again_is_no_shape_that_doubles(onnx, table_of):
    node, weights, nodes, last = onnx.helper.make_node, {}, [], "x"
    for i in range(20):
        weights[f"w{i}"] = (4, 3 + 4 * i, 1, 1)
        nodes += [
            node("Conv", [last, f"w{i}"], [f"c{i}"]),
            node("Concat", [last, f"c{i}"], [f"s{i}"], axis=1),
        ]
        last = f"s{i}"
    assert table_of(nodes, weights).layers[-1].out_channels == 83


def test_an_unknown_operator_is_named_and_warned_of(onnx, table_of):
    table = table_of([onnx.helper.make_node("Erf", ["x"], ["y"], "erf")])
    assert _types(table) == ["other"]
    assert table.warnings == (TableWarning("operator", "Erf"),)


def _ten_convolutions(onnx: ModuleType, table_of: Any, last: Any = None, bias: bool = True) -> LayerTable:
    make = onnx.helper.make_node
    names = [["b"], []][not bias]
    nodes = [make("Conv", [f"y{i}" if i else "x", "w", *names], [f"y{i + 1}"]) for i in range(10)]
    outputs = ["z", "mean", "variance"] if last and last[2] else ["z"]  # training mode gives all three
    extra = [make(last[0], ["y10", *last[1]], outputs, **last[2])] if last else []
    weights = {"w": (3, 3, 1, 1), "b": (3,), **dict.fromkeys(("s", "m"), (3,))}
    return table_of([*nodes, *extra], weights)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("last", "bias", "flagged"),
    [
        (None, True, True),
        (None, False, False),
        (("BatchNormalization", ["s", "b", "m", "m"], {"training_mode": 1}), True, False),
        (("BatchNormalization", ["s", "b", "m", "m"], {}), True, True),
        (("InstanceNormalization", ["s", "b"], {}), True, False),
    ],
)
def test_ten_convolutions_with_biases_and_nothing_that_trains_are_an_inference_export(
    onnx, table_of, last, bias, flagged
):
    assert (INFERENCE_EXPORT in _ten_convolutions(onnx, table_of, last, bias).warnings) is flagged


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


def test_a_truncated_file_is_refused(onnx, table_of, tmp_path):
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"])
    table_of([node], {"w": (64, 3, 3, 3)})
    content = (tmp_path / "made.onnx").read_bytes()
    for length in (1, len(content) // 2, len(content) - 7):
        (tmp_path / "cut.onnx").write_bytes(content[:length])
        with pytest.raises(SchemaError, match="not an ONNX file, or is"):
            from_onnx(tmp_path / "cut.onnx")


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_is_read_or_refused_but_never_crashes(onnx, table_of, tmp_path, seed):
    make, luck = onnx.helper.make_node, random.Random(seed)  # noqa: S311  # no secret
    nodes = [
        make("Conv", ["x", "w"], ["c"]),
        make("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    table_of(
        [*nodes, make("Flatten", ["p"], ["f"]), make("Gemm", ["f", "d"], ["y"])],
        {"w": (4, 3, 3, 3), "d": (196, 5)},
    )
    damaged = bytearray((tmp_path / "made.onnx").read_bytes())
    for _ in range(luck.choice((1, 3, 9))):
        damaged[luck.randrange(len(damaged))] = luck.randrange(256)
    (tmp_path / "damaged.onnx").write_bytes(damaged)
    with contextlib.suppress(DataError, OutOfRangeError):
        assert isinstance(from_onnx(tmp_path / "damaged.onnx"), LayerTable)


def test_a_file_that_is_empty_or_missing_is_refused(onnx, tmp_path):
    (tmp_path / "empty.onnx").touch()
    for name, message in (("empty", "is empty"), ("none", "cannot read")):
        with pytest.raises(DataError, match=message):
            from_onnx(tmp_path / f"{name}.onnx")


def test_a_graph_of_too_many_operators_is_refused(onnx, table_of, monkeypatch):
    monkeypatch.setattr("predictor.cnns.onnx_graph._MOST_NODES", 1)
    make = onnx.helper.make_node
    with pytest.raises(SchemaError, match="has 2 operators"):
        table_of([make("Relu", ["x"], ["r"]), make("Relu", ["r"], ["y"])])


def test_a_file_that_is_too_large_is_refused_unread(onnx, tmp_path, monkeypatch):
    (tmp_path / "large.onnx").write_bytes(b"x" * 100)
    monkeypatch.setattr("predictor.cnns.onnx_graph._MOST_BYTES", 99)
    with pytest.raises(SchemaError, match="has 100 bytes"):
        from_onnx(tmp_path / "large.onnx")


def test_a_graph_without_an_image_is_refused(onnx, table_of):
    with pytest.raises(SchemaError, match="reads 0 images"):
        table_of([onnx.helper.make_node("Relu", ["x"], ["y"])], image=("n", 7))


def test_shapes_that_contradict_each_other_are_refused(onnx, table_of):
    make = onnx.helper.make_node
    with pytest.raises(SchemaError, match=r"cannot be inferred|is unknown"):
        table_of([make("Flatten", ["x"], ["f"]), make("Gemm", ["f", "w"], ["y"])], {"w": (5, 7)})


def test_a_missing_onnx_is_said_with_how_to_install_it(monkeypatch, tmp_path):
    (tmp_path / "any.onnx").write_bytes(b"whatever")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'epochcast\[onnx\]'"):
        from_onnx(tmp_path / "any.onnx")


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
