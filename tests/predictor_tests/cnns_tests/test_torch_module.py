"""PyTorch modules: every operator where it happens, the user's module left alone, refusals that help."""

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from own_module import own_module

from predictor.cnns.layer_table import IMAGE, Layer, TableWarning, layer_complaint
from predictor.cnns.torch_module import from_torch
from predictor.errors import BackendUnavailableError, OutOfRangeError, SchemaError
from predictor.operators.work import multiply_adds


def _rows(torch: ModuleType, forward: Any, image_size: int = 16, **children: Any) -> tuple[Layer, ...]:
    return from_torch(own_module(torch, forward, **children), image_size).layers


def _types(rows: Any) -> list[str]:
    return [row.type for row in rows]


@pytest.fixture
def small(torch: ModuleType) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(), nn.Linear(8 * 8 * 8, 10),
    )  # fmt: skip


def test_a_sequence_of_modules_becomes_its_rows(small):
    table = from_torch(small, 16, "small")
    assert _types(table) == ["conv2d", "batch_norm", "activation", "max_pool", "flatten", "dropout", "linear"]
    assert [row.inputs for row in table] == [(IMAGE,), (0,), (1,), (2,), (3,), (4,), (5,)]
    assert [row.name for row in table] == ["0", "1", "2", "3", "4.flatten", "5", "6"]
    assert (table.cnn, table.image_size, table.source, table.warnings) == ("small", 16, "torch", ())
    assert [layer_complaint(row) for row in table] == [None] * 7


def test_the_users_module_is_left_as_it_was(torch, small):
    small.eval()
    before = {name: tensor.clone() for name, tensor in small.state_dict().items()}
    from_torch(small, 16)
    assert not small.training
    assert not small[0]._forward_hooks
    assert all(tensor.device.type == "cpu" for tensor in small.state_dict().values())
    assert all(torch.equal(tensor, before[name]) for name, tensor in small.state_dict().items())


def test_rows_are_those_of_what_runs(torch):
    nn = torch.nn
    bounds = {name: nn.Parameter(torch.zeros(3, 1, 1)) for name in ("low", "high")}

    def autocast(x: Any, enabled: bool) -> Any:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=enabled):
            return torch.relu(x)

    def noisy(_self: Any, x: Any) -> Any:
        noise = torch.empty(x.shape[0], 1, 1, 1, device=x.device).bernoulli_(0.8).div_(0.8)
        return x * noise + x

    wrong = {}
    for case, types, forward, children in (
        ("views", "activation", lambda _, x: [c[:, :, 1:].squeeze() for c in x.chunk(3, 1)] and x.relu(), {}),
        ("one position", "activation", lambda _, x: x[:, :, 0, 0].relu(), {}),
        ("autocast", "activation", lambda _, x: autocast(x, True), {}),
        ("autocast that is off", "activation", lambda _, x: autocast(x, False), {}),
        ("noise of an image", "stochastic_depth add", noisy, {}),
        ("dropout of nothing", "activation", lambda self, x: self.drop(x).relu(), {"drop": nn.Dropout(0.0)}),
        ("dropout of channels", "dropout", lambda self, x: self.drop(x), {"drop": nn.Dropout2d()}),
        ("outputs", "activation activation", lambda _, x: {"out": x.relu(), "aux": [x.tanh()]}, {}),
        ("constants", "multiply add", lambda _, x: x * torch.ones(3, 1, 1) + torch.arange(16.0).sqrt(), {}),
        ("bounds", "clamp", lambda self, x: x.clamp(self.low, self.high), bounds),
        ("one bound", "clamp", lambda self, x: x.clamp(min=self.low.sum()), bounds),
        ("bound of maps", "multiply clamp", lambda _, x: x.clamp(max=x * x), {}),
    ):
        rows = _types(_rows(torch, forward, **children))
        wrong |= {case: rows} if rows != types.split() else {}
    assert wrong == {}


def test_a_module_is_read_as_training_whatever_its_mode_its_batch_and_what_spreads_it(torch, small):
    layers = from_torch(small.train(), 16).layers
    assert [row.parameters for row in layers] == [216, 16, 0, 0, 0, 0, 5130]
    for module, batch in ((small, 7), (torch.nn.DataParallel(small), 2), (small.eval(), 2)):
        assert from_torch(module, 16, batch=batch).layers == layers


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_no_module_is_refused(torch):
    scripted = torch.jit.trace(torch.nn.ReLU(), torch.zeros(1))
    for module, message in (("resnet50", r"str is not a torch\.nn\.Module"), (scripted, "scripted")):
        with pytest.raises(SchemaError, match=message):
            from_torch(module, 16)


def test_a_transposed_convolution_is_one_and_padding_of_a_given_name_is_resolved(torch):
    (row,) = from_torch(torch.nn.ConvTranspose2d(3, 5, 4, stride=2, padding=1, bias=False), 16)
    assert (row.type, row.out_channels, row.out_height, row.parameters) == ("conv_transpose2d", 5, 32, 240)
    assert layer_complaint(row) is None
    (row,) = from_torch(torch.nn.Conv2d(3, 8, 5, padding="same"), 16)
    assert (row.padding_height, row.out_height) == (2, 16)


def test_functional_operators_count(torch):
    functional = torch.nn.functional

    def forward(_self: Any, x: Any) -> Any:
        x = functional.max_pool2d(functional.relu6(x), 2)
        x = functional.adaptive_avg_pool2d(functional.hardswish(x), 1) + functional.silu(x)
        return torch.flatten(functional.dropout(x, 0.2), 1)

    rows = _rows(torch, forward)
    kinds = [row.kind or row.type for row in rows]
    assert kinds == ["relu6", "max_pool", "hardswish", "avg_pool", "silu", "add", "dropout", "flatten"]
    assert (rows[3].kernel_height, rows[3].stride_width) == (8, 8)
    assert rows[5].inputs == (3, 4)


def test_grouped_dilated_and_rectangular_convolutions_keep_their_shape(torch):
    conv = torch.nn.Conv2d(6, 12, (1, 3), stride=(1, 2), padding=(0, 2), dilation=2, groups=3)
    (row,) = from_torch(conv, 16, in_channels=6)
    assert (row.kernel_height, row.kernel_width, row.stride_height, row.stride_width) == (1, 3, 1, 2)
    assert (row.padding_height, row.padding_width, row.dilation, row.groups) == (0, 2, 2, 3)
    assert (row.out_channels, row.out_height, row.out_width, row.parameters) == (12, 16, 8, 12 * 2 * 3 + 12)


def test_a_dense_layer_over_channels_last_has_positions(torch):
    linear = torch.nn.Linear(3, 7)
    rows = _rows(torch, lambda self, x: self.fc(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), fc=linear)
    assert _types(rows) == ["permute", "linear", "permute"]
    dense = rows[1]
    assert (dense.in_channels, dense.out_channels, dense.out_height, dense.out_width) == (3, 7, 16, 16)
    assert (rows[2].in_channels, rows[2].in_height, rows[2].out_channels) == (7, 16, 7)


def test_a_plain_product_with_weights_is_a_dense_layer(torch):
    weight = torch.nn.Parameter(torch.zeros(3 * 16 * 16, 5))
    rows = _rows(torch, lambda self, x: x.flatten(1) @ self.weight, weight=weight)
    assert _types(rows) == ["flatten", "linear"]
    assert (rows[1].out_channels, rows[1].parameters) == (5, 3 * 16 * 16 * 5)


def test_a_channel_shuffle_is_one_permutation(torch):
    def forward(_self: Any, x: Any) -> Any:
        x = x.view(-1, 3, 2, 16, 16).transpose(1, 2).contiguous()
        return x.view(-1, 6, 16, 16)

    (row,) = from_torch(own_module(torch, forward), 16, in_channels=6).layers
    assert (row.type, row.in_channels, row.in_height, row.out_width) == ("permute", 6, 16, 16)


def test_a_learned_scale_is_a_multiplication_with_parameters(torch):
    scale = torch.nn.Parameter(torch.ones(3, 1, 1))
    (row,) = _rows(torch, lambda self, x: self.scale * x, scale=scale)
    assert (row.type, row.parameters, row.inputs) == ("multiply", 3, (IMAGE,))


def test_a_shared_layer_runs_twice_and_trains_once(torch):
    rows = _rows(torch, lambda self, x: self.conv(self.conv(x)), conv=torch.nn.Conv2d(3, 3, 1))
    assert [row.parameters for row in rows] == [12, 0]
    assert [row.name for row in rows] == ["conv", "conv_1"]


def test_weights_that_are_computed_from_parameters_count_as_those(torch):
    normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(3, 8, 3))
    (row,) = from_torch(normed, 16)
    assert (row.type, row.parameters) == ("conv2d", 216 + 8 + 8)


def test_an_operator_of_unknown_cost_is_named_and_warned_of(torch):
    table = from_torch(own_module(torch, lambda _self, x: torch.cumsum(x, 1)), 16)
    assert _types(table) == ["other"]
    assert table.layers[0].name == "cumsum"
    assert table.warnings == (TableWarning("operator", "cumsum"),)


def test_frozen_parameters_have_no_gradients(torch, small):
    trained = from_torch(small, 16)
    small[:3].requires_grad_(False)
    table = from_torch(small, 16)
    assert [(row.forwards, row.input_gradients, row.weight_gradients) for row in table][:3] == [(1, 0, 0)] * 3
    assert table.layers[6] == replace(trained.layers[6], forwards=1, input_gradients=0, weight_gradients=1)
    assert (table.parameters, table.warnings) == (trained.parameters - 216 - 16, ())


def test_a_cosine_similarity_is_read(torch):
    cosine = torch.nn.functional.cosine_similarity
    rows = _rows(torch, lambda _self, x: cosine(x.relu().flatten(1), x.sigmoid().flatten(1)))
    assert (rows[-1].out_channels, "clamp" in _types(rows)) == (1, True)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_is_one_row_over_all_its_positions(torch, name):
    layer = getattr(torch.nn, name)(3, 8, batch_first=True, bidirectional=True)
    rows = _rows(torch, lambda self, x: self.reads(x.flatten(2).transpose(1, 2))[0], reads=layer)
    (row,) = (row for row in rows if row.type == name.lower())
    shape = (row.in_channels, row.in_height, row.out_channels, row.out_height, row.groups)
    assert shape == (3, 16 * 16, 16, 16 * 16, 2)
    assert row.parameters == sum(parameter.numel() for parameter in layer.parameters())
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    assert multiply_adds(row) == 2 * gates * 8 * (3 + 8) * 16 * 16


@pytest.mark.parametrize("channels", [1, 4, 12])
def test_images_have_the_channels_that_the_first_layer_reads(torch, channels):
    nn = torch.nn
    head = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)]
    for first in (
        [nn.Conv2d(channels, 8, 3)],
        [nn.BatchNorm2d(channels), nn.Conv2d(channels, 8, 3)],
    ):
        row, *_ = from_torch(nn.Sequential(*first, *head), 28)
        assert row.in_channels == channels
    flat, *_ = from_torch(nn.Sequential(nn.Flatten(), nn.Linear(channels * 28 * 28, 10)), 28)
    assert (flat.in_channels, flat.in_height) == (channels, 28)


def test_a_layer_that_does_not_fit_the_one_before_is_refused_as_it_fails(torch):
    nn = torch.nn
    for module in (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(4, 8, 3)),
        nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(4, 8, 3)),
    ):
        with pytest.raises(SchemaError, match=f"2x{module[0].in_channels}x16x16"):
            from_torch(module, 16)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_parts_computed_again_in_the_backward_pass_run_forward_twice(torch, use_reentrant):
    from torch.utils.checkpoint import checkpoint

    def forward(self: Any, x: Any) -> Any:
        return checkpoint(self.block, self.stem(x), use_reentrant=use_reentrant)

    block = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.Conv2d(8, 8, 3))
    stem, *rows = _rows(torch, forward, stem=torch.nn.Conv2d(3, 8, 3), block=block)
    assert (stem.forwards, stem.recomputed) == (None, None)
    passes = [(row.forwards, row.input_gradients, row.weight_gradients, row.recomputed) for row in rows]
    again = 2 if use_reentrant else 1  # else PyTorch stops once it has what the backward pass needs
    assert passes == [(2, 1, 1, 1), (again, 1, 1, 1)]


def test_parameters_that_nothing_reads_are_warned_of(torch):
    module = own_module(torch, lambda _self, x: x.relu(), spare=torch.nn.Linear(3, 4))
    assert from_torch(module, 16).warnings == (TableWarning("cnn", "16 parameters that no operator reads"),)


def test_too_small_an_image_is_out_of_range(torch):
    with pytest.raises(OutOfRangeError, match="larger image_size"):
        from_torch(torch.nn.Conv2d(3, 8, 7), 4)


@pytest.mark.parametrize("image_size", [0, -1, 2.5, True])
def test_an_image_size_that_is_none_is_out_of_range(small, image_size):
    with pytest.raises(OutOfRangeError, match="image_size"):
        from_torch(small, image_size)


def test_another_image_size_than_the_dense_layer_takes_is_refused(small):
    with pytest.raises(SchemaError, match="does not run on a batch of 2x3x20x20"):
        from_torch(small, 20)


def test_a_module_whose_path_depends_on_data_is_refused_with_a_way_out(torch):
    with pytest.raises(SchemaError, match="layer table CSV"):
        _rows(torch, lambda _self, x: x.relu() if x.sum() > 0 else x)


def test_a_transposed_convolution_in_three_dimensions_keeps_its_depth(torch):
    conv = torch.nn.ConvTranspose3d(3, 4, 2, stride=2)
    rows = _rows(torch, lambda self, x: self.conv3(x[:, :, None]), conv3=conv)
    [layer] = [row for row in rows if row.type == "conv_transpose3d"]
    assert (layer.kernel_depth, layer.stride_depth, layer.out_depth) == (2, 2, 2)


def test_a_missing_pytorch_is_said_with_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'epochcast\[torch\]'"):
        from_torch(object(), 16)  # type: ignore[arg-type]


def test_lazy_modules_are_asked_to_see_an_image_first(torch):
    nn = torch.nn
    module = nn.Sequential(nn.LazyConv2d(8, 3), nn.Flatten(), nn.LazyLinear(10))
    with pytest.raises(SchemaError, match=r"lazy layers .*: 0, 2. Run it once"):
        from_torch(module, 16)
    module(torch.zeros(2, 3, 16, 16))
    assert _types(from_torch(module, 16)) == ["conv2d", "flatten", "linear"]
