"""A training step is recorded without running: every pass that runs, and no other; what it touches stays as it was."""

import itertools
from contextlib import suppress
from dataclasses import replace
from math import ceil, log

import pytest
from own_module import own_module

from predictor.answers.answer import answer
from predictor.answers.question import Question
from predictor.cnns.layer_table import SECOND_DERIVATIVES, Step, trained_whole
from predictor.cnns.recorder import IN_FLOAT32
from predictor.cnns.torch_module import from_torch
from predictor.cnns.torch_step import record
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.extrapolation import of_table
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES
from predictor.operators.memory import CONTEXT_GIB
from predictor.operators.operators import RECOMPUTING, operators_of, wide_outputs


def blocks(torch, n=3, width=8):
    nn, widths = torch.nn, [3, *[width] * n]
    return nn.Sequential(
        *(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
            for a, b in itertools.pairwise(widths)
        )
    )


@pytest.mark.parametrize("penalised", [False, True])
def test_second_derivatives_are_counted_beside_the_passes(torch, penalised):
    nn, images = torch.nn, torch.rand(4, 3, 32, 32)
    critic = nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 16)
    )
    optimizer = torch.optim.Adam(critic.parameters())

    def step():
        optimizer.zero_grad()
        between = images.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=penalised)
        loss = (slope.flatten(1).norm(dim=1) - 1).square().mean() if penalised else critic(images).mean()
        loss.backward()
        optimizer.step()

    table = record(step)
    first = next(layer for layer in table if layer.type == "conv2d")
    assert first.forwards == 1 + penalised  # the second convolves with the filters, as the first does
    second = {layer.name: layer for layer in table if layer.name.startswith(SECOND_DERIVATIVES)}
    reasons = {reason.kind for reason in of_table(table)}
    assert ("second_derivatives" in reasons) == penalised
    if not penalised:
        assert not second
        return
    norms, filters = second[SECOND_DERIVATIVES], second[f"{SECOND_DERIVATIVES} of filters"]
    assert 20 < norms.forwards < 200  # kernels of a norm's formula
    assert 8 < norms.in_channels < 2 * 8 * 16 * 16  # most of them are of whole maps, others of their means
    of_first = 4500 * 32 * 16 * 16 / (filters.in_channels * 4)  # positions of its output, of 32 images
    assert filters.forwards == ceil(of_first) + 1  # the last has one
    renamed = [replace(layer, name="sum") if layer in second.values() else layer for layer in table]
    sure, unsure = (
        answer(Question(variant, "NVIDIA H100 80GB HBM3")).rows()[0]
        for variant in (replace(table, layers=tuple(renamed)), table)
    )
    assert unsure.gpu_time_ms == pytest.approx(sure.gpu_time_ms)
    assert log(unsure.gpu_high_ms / sure.gpu_high_ms) > 0.2  # most of the time is the law's


@pytest.fixture
def network(torch):
    return network_of(torch, 8)


def network_of(torch, width):
    nn = torch.nn
    return nn.Sequential(
        blocks(torch, width=width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5)
    )


def step_of(torch, module, forward=None, optimizer=None):
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(5, (4,))
    optimizer = optimizer or torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1, 0.9)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy((forward or module)(images), labels).backward()
        optimizer.step()

    return step


def passes(table, type_):
    usual = trained_whole(table.layers)
    return [
        normal if row.forwards is None else (row.forwards, row.input_gradients, row.weight_gradients)
        for row, normal in zip(table, usual, strict=True)
        if row.type == type_
    ]


def test_a_step_of_a_module_has_the_modules_layers(torch, network):
    table, expected = record(step_of(torch, network)), from_torch(network, 16)
    assert [replace(row, name="") for row in table] == [replace(row, name="") for row in expected]
    of_momentum = {"optimizer_states": 1.0, "optimizer_passes": 8.0, "optimizer_copies": 0.0}
    assert table.step == Step(4, optimizer="momentum", optimizer_form="foreach", **of_momentum)


def test_the_host_enqueues_a_recomputed_layer_twice_as_long(torch):
    from torch.utils.checkpoint import checkpoint

    first, second = (blocks(torch, 2) for _ in range(2))
    model = torch.nn.Sequential(first, torch.nn.Conv2d(8, 3, 1), second, torch.nn.AdaptiveAvgPool2d(1))
    model = torch.nn.Sequential(model, torch.nn.Flatten(), torch.nn.Linear(8, 5))

    def again(x):
        x = model[0][1](checkpoint(first, x, use_reentrant=False))
        return model[2](model[1](model[0][3](second(x))))

    plain, recomputed = (record(step_of(torch, model, forward)) for forward in (model, again))
    layers = [sum(operators_of(table, by_host=True).values()) for table in (plain, recomputed)]
    parts = len([layer for layer in recomputed if layer.recomputed])
    assert layers[1] - layers[0] == pytest.approx(RECOMPUTING * parts, rel=0.2)
    host_ms = [answer(Question(table, "NVIDIA H200")).rows()[0].host_time_ms for table in (plain, recomputed)]
    assert host_ms[1] > 1.15 * host_ms[0]


def test_a_video_cnn_takes_the_gpu_what_it_was_measured_to_take(torch, torchvision_models):
    import torchvision.models.video

    model = torchvision.models.video.r3d_18()
    clips, labels = torch.randn(8, 3, 8, 112, 112), torch.randint(400, (8,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(clips), labels).backward()
        optimizer.step()

    table = record(step)
    assert table.image_size == 112
    answers = {
        gpu: answer(Question(table, gpu)).rows()[0] for gpu in ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
    }
    h100, h200 = answers.values()
    assert h100.gpu_time_ms == pytest.approx(13.10, rel=0.08)  # measured, like the two below
    assert h200.gpu_time_ms == pytest.approx(12.7, rel=0.08)
    assert h100.peak_memory_gib - CONTEXT_GIB == pytest.approx(1.11, rel=0.08)


def accumulated(torch, module, parts):
    optimizer = torch.optim.AdamW(module.parameters())
    images, labels = torch.randn(4 * parts, 3, 16, 16), torch.randint(5, (4 * parts,))

    def step():
        optimizer.zero_grad()
        for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
            (torch.nn.functional.cross_entropy(module(x), y) / parts).backward()
        optimizer.step()

    return step


def test_an_accumulated_step_is_its_parts_one_after_the_other(torch, network):
    single, four = (record(accumulated(torch, network, parts)) for parts in (1, 4))
    assert (single.step.batch_size, four.step.batch_size, four.parts) == (4, 16, 4)
    rows = [answer(Question(table, "H200")).rows()[0] for table in (single, four)]
    assert rows[1].batch_size == 16
    assert 3.5 * rows[0].gpu_time_ms < rows[1].gpu_time_ms < 4 * rows[0].gpu_time_ms  # one update
    more_gib = rows[1].peak_memory_gib - rows[0].peak_memory_gib  # gradients of the parts before
    assert 0 < more_gib <= 4 * four.parameters / 2**30
    with pytest.raises(OutOfRangeError, match=r"18 is that of a whole step, whose 4 parts.*Nearest: 16"):
        Question(four, "H200", 18)


def test_the_mode_follows_from_the_step_and_another_is_refused(torch, network):
    images = torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)
    network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters())

    def step():
        with torch.autocast("cuda", torch.float16):
            loss = network(images).square().mean()
        loss.backward()
        optimizer.step()

    question = Question(record(step), "H200")
    mode = (question.precision, question.memory_format, question.optimizer, question.batch_sizes)
    assert mode == ("amp_fp16", "channels_last", "adam", [4])
    with pytest.raises(SchemaError, match=r"precision 'tf32': the recorded step trains in amp_fp16"):
        Question(record(step), "H200", precision="tf32")


def views_of(torch, network, *batches, labels=None):
    images = [torch.randn(n, 3, 16, 16) for n in batches]

    def step():
        scores = network(torch.cat(images))
        if labels is None:
            return (scores @ scores.T).mean().backward()
        return torch.nn.functional.cross_entropy(scores[: len(labels)], labels).backward()

    return step


def warned(table):
    return [str(warning) for warning in table.warnings if "optimizer" not in str(warning)]


def test_views_that_a_step_joins_are_one_sample_and_the_answer_says_so(torch, network):
    joined = record(views_of(torch, network, 4, 4))
    counted = record(views_of(torch, network, 4, 4), batch_size=8)
    assert (joined.step.batch_size, counted.step.batch_size) == (4, 8)
    assert "joins 2 tensors of 4 images, such as views, frames or domains, and 4 count" in warned(joined)[0]
    assert warned(counted) == []
    rows = [answer(Question(table, "H200", samples=1024)).rows()[0] for table in (joined, counted)]
    assert rows[0].gpu_time_ms == pytest.approx(rows[1].gpu_time_ms, rel=0.05)
    assert rows[0].epoch_time_s == pytest.approx(2 * rows[1].epoch_time_s, rel=0.05)


def test_a_mini_batch_joined_of_unequal_ones_asks_for_its_samples(torch, network):
    step = views_of(torch, network, 2, 6)
    with pytest.raises(SchemaError, match=r"reads 8 images.*tensors of 2 and 6.*1, 2, 4 or 8.*batch_size=N"):
        record(step)
    assert record(step, batch_size=2).step.batch_size == 2
    with pytest.raises(SchemaError, match=r"reads 8 images.* 1, 2, 4 or 8 samples"):
        record(step, batch_size=6)


def test_unequal_mini_batches_of_which_none_divides_the_others_ask_for_the_samples(torch, network):
    parts = [torch.randn(n, 3, 16, 16) for n in (4, 6)]
    step = lambda: sum(network(images).square().mean() for images in parts).backward()  # noqa: E731
    with pytest.raises(SchemaError, match=r"mini-batches of 4 and 6 images.*, 1 or 2, as .*batch_size=N"):
        record(step)
    with pytest.raises(SchemaError, match=r"batch_size 4: .* 4 and 6 images, .* 1 or 2 samples"):
        record(step, batch_size=4)
    assert record(step, batch_size=2).step.batch_size == 2


def test_frozen_and_checkpointed_steps_take_other_times_and_memory(torch):
    from torch.utils.checkpoint import checkpoint

    network = network_of(torch, 64)  # at 8, the law from specifications takes gradients for too slow

    def again(images):
        return network[1:](checkpoint(network[0], images, use_reentrant=False))

    usual, twice = record(step_of(torch, network)), record(step_of(torch, network, again))
    network[0].requires_grad_(False)
    frozen = record(step_of(torch, network))
    for method in ("auto", "roofline"):
        ask = {"batch_sizes": 1024, "method": method}
        rows = [answer(Question(table, "H200", **ask)).rows()[0] for table in (frozen, usual, twice)]
        times = [row.gpu_time_ms / rows[1].gpu_time_ms for row in rows]
        assert 0.25 < times[0] < 0.45
        assert 1.2 < times[2] < 1.45
    assert rows[0].peak_memory_gib < rows[2].peak_memory_gib <= rows[1].peak_memory_gib


def test_a_module_is_recorded_with_inputs_of_any_shape_and_structure(torch):
    nn = torch.nn

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.colour, self.depth = nn.Conv2d(3, 8, 3), nn.Conv2d(1, 8, 3)
            self.head = nn.Linear(16, 5)

        def forward(self, colour, depth, labels=None):
            maps = torch.cat([self.colour(colour), self.depth(depth)], 1)
            scores = self.head(maps.mean((2, 3)))
            loss = None if labels is None else nn.functional.cross_entropy(scores, labels)
            return {"scores": scores, "loss": loss}

    module = Two().eval()
    colour, depth, labels = torch.zeros(4, 3, 48, 32), torch.zeros(4, 1, 48, 32), torch.zeros(4).long()
    for inputs in ((colour, depth), ({"colour": colour, "depth": depth, "labels": labels},)):
        table = record(module, *inputs)
        shapes = [(row.in_channels, row.in_height, row.in_width) for row in table if row.type == "conv2d"]
        assert shapes == [(3, 48, 32), (1, 48, 32)]
        assert passes(table, "conv2d") == [(1, 0, 1)] * 2
    assert not module.training
    with pytest.raises(SchemaError, match=r"such as record\(module, images\)"):
        record(module)


def test_longer_lines_take_a_recurrent_layer_longer_as_it_reads_position_after_position(torch):
    nn = torch.nn

    def read(self, lines):
        positions = self.maps(lines).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.reads(positions)[0])

    maps = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, 1))
    reads, head = nn.LSTM(8 * 8, 32, bidirectional=True), nn.Linear(64, 11)
    model = own_module(torch, read, maps=maps, reads=reads, head=head)
    for gpu in ("H200", "Tesla T4"):
        times = []
        for width in (64, 256):
            table = record(model, torch.zeros(1, 1, 32, width))
            only = [replace(row, index=0, inputs=(-1,)) for row in table if row.type == "lstm"]
            table = replace(table, layers=tuple(only), image_size=only[0].in_height, step=None)
            times.append(answer(Question(table, gpu, 16)).rows()[0].gpu_time_ms)
        assert 2 < times[1] / times[0] < 4.2


def test_autocast_narrows_what_a_prelu_writes_and_not_what_is_scaled(torch):
    """Convolutions of a V-Net were recorded as reading float32; of a learned scale behind the layer they do."""
    nn = torch.nn
    scale = own_module(torch, lambda self, x: x * self.by, by=nn.Parameter(torch.ones(8, 1, 1)))
    for between, name in ((nn.PReLU(8), "prelu"), (scale, "multiply")):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), between, nn.Conv2d(8, 8, 3))
        written = []
        between.register_forward_hook(lambda *hooked, written=written: written.append(hooked[2].dtype))

        def step(model=model):
            with torch.autocast("cpu", torch.bfloat16):
                model(torch.zeros(4, 3, 16, 16)).float().mean().backward()

        step()
        table = record(step)
        wide, _ = wide_outputs(table)
        position = next(position for position, row in enumerate(table) if row.type == name)
        assert wide[position] == (written[0] == torch.float32) == (name == "multiply")
        convolutions = [operator for operator in operators_of(table) if operator.type == "conv2d"]
        assert [operator.wide_input for operator in convolutions] == [True, name == "multiply"]


def test_what_a_gpus_autocast_computes_in_float32_is_wide(torch):
    """By PyTorch's own autocast of a GPU, on numbers that are none."""
    of_types = {name for entry in (*OPERATOR_TYPES.values(), *ACTIVATIONS.values()) for name in entry.torch}
    expected = IN_FLOAT32 | {name for kind in ACTIVATIONS.values() if kind.wide for name in kind.torch}
    is_wide = {}
    with torch._subclasses.fake_tensor.FakeTensorMode():
        torch.set_autocast_enabled("cuda", True)
        numbers = torch.empty(4, 8, device="cuda", dtype=torch.float16)
        for name in sorted(of_types | IN_FLOAT32):
            function = getattr(torch, name, None) or getattr(torch.nn.functional, name, None)
            of_one_number = name in ("pow", "logsumexp", "cumsum", "cumprod", "prod")
            with suppress(TypeError, RuntimeError):  # what takes other arguments
                is_wide[name] = function(*[numbers, 1][: 1 + of_one_number]).dtype == torch.float32
        torch.set_autocast_enabled("cuda", False)
    assert len(is_wide) > 40
    assert is_wide == {name: name in expected for name in is_wide}
