"""A training step is recorded without running: every pass that runs, and no other; what it touches stays as it was."""

import itertools
import json
from dataclasses import replace
from math import ceil, log
from pathlib import Path

import pytest

from api.layer_tables import LayerTableIn, inline_table
from predictor.answers.answer import answer
from predictor.answers.question import Question
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import OWN_FILTERS, SECOND_DERIVATIVES, Step, trained_whole
from predictor.cnns.torch_module import from_torch
from predictor.cnns.torch_step import record
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.extrapolation import of_table
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.memory import CONTEXT_GIB, peak_memory
from predictor.operators.operators import RECOMPUTING, operators_of, wide_outputs
from predictor.operators.work import PASSES, layer_flops

REFUSED = {"early_exit_that_depends_on_data"}
COUNTED_OTHERWISE = {
    "gan_with_gradient_penalty",  # PyTorch's formula takes the filters' second gradients for larger than they are
    "layers_left_out_at_random",  # other layers each time
    "text_lines_read_by_an_lstm",  # PyTorch's formulas lack the LSTM
    "tokens_of_maps_in_a_transformer",  # a fused attention computes one product again
}


@pytest.fixture
def habits(torch, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    from habit_steps import HABITS

    return HABITS


def flops_of_step(torch, step):
    """FLOPs of products and convolutions while a step runs; PyTorch's own counter fails in `torch.autograd.grad`."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):
        flops = 0.0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **kwargs or {})
            formula = flop_registry.get(func.overloadpacket)
            self.flops += formula(*args, **kwargs or {}, out_val=result) if formula else 0.0
            return result

    with Counter() as counter:
        step()
    return counter.flops


def flops_of_table(table):
    """FLOPs of products and convolutions of a step: every pass as often as it runs."""
    products = (layer for layer in table if OPERATOR_TYPES[layer.type].product is not None)
    flops = sum(layer_flops(layer, pass_, 1) for layer in products for pass_ in PASSES)
    return flops * table.step.batch_size / table.parts


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
    found = {layer.name: layer for layer in table if layer.name.startswith(SECOND_DERIVATIVES)}
    reasons = {reason.kind for reason in of_table(table)}
    assert ("second_derivatives" in reasons) == penalised
    if not penalised:
        assert not found
        return
    norms, filters = found[SECOND_DERIVATIVES], found[f"{SECOND_DERIVATIVES} of filters"]
    assert 20 < norms.forwards < 200  # kernels of a norm's formula
    assert 8 < norms.in_channels < 2 * 8 * 16 * 16  # most of them are of whole maps, others of their means
    of_first = 4500 * 32 * 16 * 16 / (filters.in_channels * 4)  # positions of its output, of 32 images
    assert filters.forwards == ceil(of_first) + 1  # the last has one
    others = [replace(each, name="sum") if each in found.values() else each for each in table]
    sure, unsure = (
        answer(Question(each, "NVIDIA H100 80GB HBM3")).rows()[0]
        for each in (replace(table, layers=tuple(others)), table)
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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_habit_written_to_csv_or_sent_as_json_is_read_again_as_it_was(torch, habits, tmp_path):
    changed = []
    for name in habits.keys() - REFUSED:
        seen = record(habits[name]().step, name=name)
        seen.to_csv(tmp_path / f"{name}.csv")
        sent = json.loads(json.dumps(seen.document()))
        again = (read_layer_table_csv(tmp_path / f"{name}.csv"), inline_table(LayerTableIn(**sent)))
        changed += [name for each in again if replace(each, source=seen.source) != seen]
    assert changed == []


def test_what_a_mask_of_constants_keeps_nothing_of_has_no_row(torch):
    module, images = torch.nn.Conv2d(3, 8, 3), torch.randn(4, 3, 16, 16)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)

    def step(kept):
        maps = module(images)
        optimizer.zero_grad()
        (maps.mean() + maps.permute(0, 2, 3, 1)[torch.stack(kept)].square().sum()).backward()
        optimizer.step()

    rows = [
        len(record(lambda kept=kept: step(kept)))
        for kept in ([torch.tensor(False)] * 4, [torch.tensor(True)] * 4)
    ]
    assert rows[0] == rows[1] - 3  # index, square and sum


def step_of(torch, module, forward=None, optimizer=None):
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(5, (4,))
    optimizer = optimizer or torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1, 0.9)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy((forward or module)(images), labels).backward()
        optimizer.step()

    return step


def passes(seen, type_):
    usual = trained_whole(seen.layers)
    return [
        normal if row.forwards is None else (row.forwards, row.input_gradients, row.weight_gradients)
        for row, normal in zip(seen, usual, strict=True)
        if row.type == type_
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_work_of_a_habit_is_that_of_its_step(torch, habits):
    assert len(habits) == 40
    off, refused = {}, set()
    for name, make in habits.items():
        torch.manual_seed(0)
        habit = make()
        real = flops_of_step(torch, habit.step)
        try:
            share = flops_of_table(record(habit.step)) / real
        except SchemaError:
            refused.add(name)
        else:
            off |= {name: share} if abs(share - 1) > 0.001 else {}
    assert refused == REFUSED
    assert off.keys() <= COUNTED_OTHERWISE
    assert abs(off.get("tokens_of_maps_in_a_transformer", 1) - 1) < 0.05


def test_a_step_of_a_module_has_the_modules_layers(torch, network):
    seen, expected = record(step_of(torch, network)), from_torch(network, 16)
    assert [replace(row, name="") for row in seen] == [replace(row, name="") for row in expected]
    assert seen.step == Step(4, optimizer="momentum")


@pytest.mark.parametrize("name", ["NAdam", "RAdam", "Adadelta"])
def test_an_optimizer_that_reads_its_own_numbers_is_recorded(torch, network, name):
    """NAdam divides by 1 less the number that it reads: the step was refused for a division by zero."""
    optimizer = getattr(torch.optim, name)(network.parameters())
    assert record(step_of(torch, network, optimizer=optimizer)).step.batch_size == 4


def test_frozen_layers_compute_no_gradients(torch, network):
    network[0].requires_grad_(False)
    seen = record(step_of(torch, network))
    assert passes(seen, "conv2d") == [(1, 0, 0)] * 3
    assert passes(seen, "linear") == [(1, 0, 1)]


def test_the_first_of_frozen_layers_behind_a_trained_one_passes_gradients_on(torch, network):
    network[0][1].requires_grad_(False)
    assert passes(record(step_of(torch, network)), "conv2d") == [(1, 0, 1), (1, 1, 0), (1, 1, 1)]


def test_a_factor_that_is_a_view_of_a_trained_parameter_has_a_gradient(torch):
    nn = torch.nn

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.scale = nn.Conv2d(3, 3, 3, padding=1), nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x + self.body(x).mul(self.scale.reshape(1, -1, 1, 1))

    model = nn.Sequential(Scaled(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5))
    table = record(step_of(torch, model))
    (scale,) = (layer for layer in table if layer.type == "multiply")
    assert (scale.parameters, scale.forwards, scale.is_frozen) == (3, None, False)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointed_layers_run_forward_twice(torch, network, use_reentrant):
    from torch.utils.checkpoint import checkpoint

    def forward(images):
        maps = network[0][0](images)
        for block in network[0][1:]:
            maps = checkpoint(block, maps, use_reentrant=use_reentrant)
        return network[1:](maps)

    seen = record(step_of(torch, network, forward))
    forwards, of_input, of_weight = map(sum, zip(*passes(seen, "conv2d"), strict=True))
    assert (forwards, of_input, of_weight) == (5, 2, 3)
    assert len(seen) == len(from_torch(network, 16))
    assert [row.recomputed for row in seen if row.type == "conv2d"] == [None, 1, 2]


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


def test_each_segment_of_checkpoint_sequential_is_recomputed_alone_and_the_last_one_not(torch, network):
    from torch.utils.checkpoint import checkpoint_sequential

    def forward(images):
        return network[1:](checkpoint_sequential(network[0], 3, images, use_reentrant=False))

    seen = record(step_of(torch, network, forward))
    assert [row.recomputed for row in seen if row.type == "conv2d"] == [1, 2, None]
    assert passes(seen, "conv2d") == [(2, 0, 1), (2, 1, 1), (1, 1, 1)]


def test_the_sum_of_a_checkpointed_residual_block_goes_backward_once(torch):
    from torch.utils.checkpoint import checkpoint

    stem, head = blocks(torch, 1), torch.nn.Linear(8, 5)
    body = torch.nn.Conv2d(8, 8, 3, padding=1)

    def residual(maps):
        return torch.relu(body(maps) + maps)

    def forward(images):
        maps = checkpoint(residual, stem(images), use_reentrant=False)
        maps = checkpoint(residual, maps, use_reentrant=False)
        return head(torch.nn.functional.max_pool2d(maps, 16).flatten(1))

    seen = record(step_of(torch, torch.nn.ModuleList([stem, body, head]), forward))
    assert passes(seen, "add") == [(2, 1, 0)] * 2


def test_parameters_buffers_and_the_optimizers_state_stay_as_they_were(torch, network):
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.5)
    step = step_of(torch, network, optimizer=optimizer)
    step()
    before = [(p.clone(), p.grad.clone()) for p in network.parameters()]
    buffers = [buffer.clone() for buffer in network.buffers()]
    moments = [state["exp_avg"].clone() for state in optimizer.state.values()]
    record(step)
    for parameter, (value, gradient) in zip(network.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
        assert parameter.grad is None or torch.equal(parameter.grad, gradient)
    assert all(map(torch.equal, network.buffers(), buffers))
    assert all(
        torch.equal(state["exp_avg"], moment)
        for state, moment in zip(optimizer.state.values(), moments, strict=True)
    )
    step()


def test_a_momentum_encoder_by_data_has_the_rows_of_its_step(torch, network):
    encoder = network_of(torch, 8)
    train = step_of(torch, network, lambda images: network(images) + encoder(images).detach())

    def step():
        for momentum, trained in zip(encoder.parameters(), network.parameters(), strict=True):
            momentum.data = momentum.data * 0.99 + trained.data * 0.01
        train()

    *rows, averages, last = record(step).layers
    assert [*rows, replace(last, index=averages.index)] == [*record(train).layers]
    assert (averages.name, averages.forwards) == ("on parameters", 3 * len(list(network.parameters())))


def test_a_step_for_a_gpu_is_recorded_without_one(torch, network):
    images, labels, losses = torch.randn(4, 3, 16, 16), torch.randint(5, (4,)), []
    optimizer, scaler = torch.optim.SGD(network.parameters(), 0.1), torch.amp.GradScaler("cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(network(images.cuda()), labels.to("cuda"))
        if torch.isnan(loss):
            raise ArithmeticError
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())

    seen = record(step)
    assert (seen.step.precision, seen.step.optimizer) == ("amp_bf16", "sgd")


def test_a_step_that_decides_by_numbers_is_refused_by_the_operator(torch, network):
    images = torch.randn(4, 3, 16, 16)
    with pytest.raises(SchemaError, match=r"decided by numbers of its tensors.* gt"):
        record(lambda: network(images) if network(images).sum() > 0 else None)


def accumulated(torch, module, parts, autocast=False):
    optimizer = torch.optim.AdamW(module.parameters())
    images, labels = torch.randn(4 * parts, 3, 16, 16), torch.randint(5, (4 * parts,))

    def step():
        optimizer.zero_grad()
        for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = torch.nn.functional.cross_entropy(module(x), y) / parts
            loss.backward()
        optimizer.step()

    return step


def test_parts_in_autocast_are_parts_though_all_read_the_same_weights(torch, network):
    """Weights that autocast converts counted as images: the step of a part, and an epoch of four times as many."""
    step = record(accumulated(torch, network, 4, autocast=True)).step
    assert (step.batch_size, step.parts, step.precision) == (16, 4, "amp_bf16")


def test_an_accumulated_step_is_its_parts_one_after_the_other(torch, network):
    one, four = (record(accumulated(torch, network, parts)) for parts in (1, 4))
    assert (one.step.batch_size, four.step.batch_size, four.parts) == (4, 16, 4)
    rows = [answer(Question(seen, "H200")).rows()[0] for seen in (one, four)]
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


def warned(seen):
    return [str(warning) for warning in seen.warnings if "optimizer" not in str(warning)]


def test_views_that_a_step_joins_are_one_sample_and_the_answer_says_so(torch, network):
    seen = record(views_of(torch, network, 4, 4))
    each = record(views_of(torch, network, 4, 4), batch_size=8)
    assert (seen.step.batch_size, each.step.batch_size) == (4, 8)
    assert "joins 2 tensors of 4 images, such as views, frames or domains, and 4 count" in warned(seen)[0]
    assert warned(each) == []
    rows = [answer(Question(table, "H200", samples=1024)).rows()[0] for table in (seen, each)]
    assert rows[0].gpu_time_ms == pytest.approx(rows[1].gpu_time_ms, rel=0.05)
    assert rows[0].epoch_time_s == pytest.approx(2 * rows[1].epoch_time_s, rel=0.05)


def test_the_frames_of_a_clip_are_one_sample(torch, network):
    clips = torch.randn(4, 5, 3, 16, 16)
    seen = record(lambda: network(((clips - 0.5) / 0.2).flatten(0, 1)).sum().backward())
    assert seen.step.batch_size == 4
    assert "first layer reads 20 images: 5 views or frames" in warned(seen)[0]


def test_a_mini_batch_joined_of_unequal_ones_asks_for_its_samples(torch, network):
    step = views_of(torch, network, 2, 6)
    with pytest.raises(SchemaError, match=r"reads 8 images.*tensors of 2 and 6.*1, 2, 4 or 8.*batch_size=N"):
        record(step)
    assert record(step, batch_size=2).step.batch_size == 2
    with pytest.raises(SchemaError, match=r"reads 8 images.* 1, 2, 4 or 8 samples"):
        record(step, batch_size=6)


@pytest.mark.parametrize("fresh", [False, True])
def test_mini_batches_of_a_critics_rounds_are_said_where_each_round_has_its_own(torch, network, fresh):
    maker = torch.nn.ConvTranspose2d(10, 3, 16)
    optimizers = [torch.optim.Adam(each.parameters()) for each in (network, maker)]
    real = [torch.randn(4, 3, 16, 16) for _ in range(5)]

    def step():
        for images in real if fresh else real[:1] * 5:
            made = maker(torch.randn(4, 10, 1, 1)).detach()
            (network(made).mean() - network(images).mean()).backward()
            optimizers[0].step()
        network(maker(torch.randn(4, 10, 1, 1))).mean().backward()
        optimizers[1].step()

    seen = record(step)
    assert seen.step.batch_size == 4
    told = "".join(warned(seen))
    assert ("read 20 images, in mini-batches of 4, and 4 count" in told) == fresh
    assert told.endswith("divide its samples by 5" if fresh else "")


@pytest.mark.parametrize("order", [(4, 12), (12, 4)])
def test_of_unequal_mini_batches_the_smaller_counts_and_all_of_both_runs(torch, network, order):
    parts = [torch.randn(n, 3, 16, 16) for n in order]
    step = lambda: sum(network(part).square().mean() for part in parts).backward()  # noqa: E731
    seen = record(step)
    assert seen.step.batch_size == 4
    assert "read 16 images, in mini-batches of 4 and 12, and 4 count" in warned(seen)[0]
    assert flops_of_table(seen) == pytest.approx(flops_of_step(torch, step))
    assert not [text for text in warned(record(step, batch_size=2)) if "mini-batches" in text]


def test_unequal_mini_batches_of_which_none_divides_the_others_ask_for_the_samples(torch, network):
    parts = [torch.randn(n, 3, 16, 16) for n in (4, 6)]
    step = lambda: sum(network(part).square().mean() for part in parts).backward()  # noqa: E731
    with pytest.raises(SchemaError, match=r"mini-batches of 4 and 6 images.*, 1 or 2, as .*batch_size=N"):
        record(step)
    with pytest.raises(SchemaError, match=r"batch_size 4: .* 4 and 6 images, .* 1 or 2 samples"):
        record(step, batch_size=4)
    assert flops_of_table(record(step, batch_size=2)) == pytest.approx(flops_of_step(torch, step))


def test_labels_fewer_than_images_and_images_left_out_are_said(torch, network):
    labels = torch.zeros(4).long()
    seen = record(views_of(torch, network, 8, labels=labels))
    assert seen.step.batch_size == 8
    assert warned(seen)[-1] == (
        "8 images with 4 labels count as 8 samples of an epoch; if they are views, record the step with "
        "epochcast.record(step, batch_size=4)"
    )
    images = torch.randn(8, 3, 16, 16)
    half = record(lambda: (network(images[:4]).sum() + network(images[4:]).sum()).backward())
    assert "reads 4 of the 8 samples that the step is given" in warned(half)[0]


def test_a_filter_of_each_image_before_the_network_is_not_its_batch(torch, network):
    images, blur = torch.randn(4, 3, 16, 16), torch.ones(3, 1, 3, 3) / 9

    def step():
        soft = [torch.nn.functional.conv2d(each[None], blur, padding=1, groups=3) for each in images]
        network(torch.cat(soft)).sum().backward()

    assert record(step).step.batch_size == 4


@pytest.mark.parametrize("convolves", [True, False])
@pytest.mark.parametrize("starts", [(4, 3, 8, 8), (1, 3, 8, 8)])
def test_a_mini_batch_folded_into_groups_is_told_by_another_convolution_or_the_maps_before(
    torch, convolves, starts
):
    weight = torch.nn.Parameter(torch.rand(6, 3, 3, 3))
    judge = torch.nn.Conv2d(6, 1, 6) if convolves else torch.nn.Linear(6 * 6 * 6, 1)
    start = torch.rand(starts) if starts[0] > 1 else torch.nn.Parameter(torch.rand(starts))

    def step():
        styles = (torch.rand(4, 6, 1, 1, 1) * weight).reshape(24, 3, 3, 3)
        maps = start.expand(4, -1, -1, -1).reshape(1, 12, 8, 8)
        made = torch.nn.functional.conv2d(maps, styles, groups=4).reshape(4, 6, 6, 6)
        judge(made if convolves else made.flatten(1)).mean().backward()

    seen = record(step)
    assert seen.step.batch_size == 4
    assert warned(seen)[0].startswith("filters of each image's own run one image after the other")
    (own,) = (layer for layer in seen if layer.name == OWN_FILTERS)
    passes = 2 + start.requires_grad  # forward, gradients of the filters and of a start that is trained
    assert own.forwards * own.in_channels * 4 == pytest.approx(passes * 4 * 6_000_000, rel=0.1)  # of 4 images


@pytest.mark.parametrize("detached", [False, True])
def test_a_generator_whose_images_are_detached_keeps_nothing_and_has_no_gradients(torch, network, detached):
    maker = torch.nn.Sequential(torch.nn.ConvTranspose2d(10, 3, 16), torch.nn.LeakyReLU(), torch.nn.Tanh())

    def step():
        made = maker(torch.randn(4, 10, 1, 1)) + 1
        network(made.detach() if detached else made).mean().backward()

    table = record(step)
    of_maker = [layer for layer in table if layer.type in ("conv_transpose2d", "activation", "add")][:4]
    assert [layer.type for layer in of_maker] == ["conv_transpose2d", "activation", "activation", "add"]
    assert {layer.input_gradients for layer in of_maker} == {0 if detached else None}
    alone = record(lambda: network(torch.rand(4, 3, 16, 16)).mean().backward())
    more = peak_memory(table, 4).activations - peak_memory(alone, 4).activations
    noise = 4 * 4 * 10
    assert more == noise if detached else more > 100 * noise


def test_a_cnn_that_permutes_inside_is_in_the_format_that_it_is_given(torch):
    nn = torch.nn

    class ConvNeXtBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.depthwise, self.norm = nn.Conv2d(16, 16, 7, padding=3, groups=16), nn.LayerNorm(16)
            self.widen, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, maps):
            inner = self.norm(self.depthwise(maps).permute(0, 2, 3, 1))
            inner = self.narrow(nn.functional.gelu(self.widen(inner)))
            return maps + inner.permute(0, 3, 1, 2)

    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)
    module = nn.Sequential(nn.Conv2d(3, 16, 4, 4), *(ConvNeXtBlock() for _ in range(3)), *head)
    images, last = torch.zeros(4, 3, 32, 32), torch.channels_last
    seen = record(step_of(torch, module, lambda _: module(images)))
    assert [replace(row, name="") for row in seen] == [
        replace(row, name="") for row in from_torch(module, 32)
    ]
    assert (seen.step.memory_format, record(module, images).step.memory_format) == ("nchw", "nchw")
    assert record(module, images.to(memory_format=last)).step.memory_format == "channels_last"
    assert record(module.to(memory_format=last), images).step.memory_format == "channels_last"


def test_frozen_and_checkpointed_steps_take_other_times_and_memory(torch):
    from torch.utils.checkpoint import checkpoint

    network = network_of(torch, 64)  # at 8, the law from specifications takes gradients for too slow

    def again(images):
        return network[1:](checkpoint(network[0], images, use_reentrant=False))

    whole, twice = record(step_of(torch, network)), record(step_of(torch, network, again))
    network[0].requires_grad_(False)
    frozen = record(step_of(torch, network))
    for method in ("auto", "roofline"):
        ask = {"batch_sizes": 1024, "method": method}
        rows = [answer(Question(seen, "H200", **ask)).rows()[0] for seen in (frozen, whole, twice)]
        times = [row.gpu_time_ms / rows[1].gpu_time_ms for row in rows]
        assert 0.25 < times[0] < 0.45
        assert 1.2 < times[2] < 1.45
    assert rows[0].peak_memory_gib < rows[2].peak_memory_gib <= rows[1].peak_memory_gib


def test_what_one_backward_pass_frees_is_not_held_in_the_next(torch):
    one, two, images = network_of(torch, 64), network_of(torch, 64), torch.zeros(256, 3, 32, 32)

    def one_after_the_other():
        one(images).sum().backward()
        two(images).sum().backward()

    def together():
        (one(images).sum() + two(images).sum()).backward()

    def single():
        one(images).sum().backward()

    alone, after, both = (
        peak_memory(record(step), 256).activations for step in (single, one_after_the_other, together)
    )
    assert after == pytest.approx(alone, rel=0.01)
    assert both > 1.9 * alone


def test_a_forward_pass_without_gradients_holds_a_map_until_its_last_reader(torch):
    nn = torch.nn

    def of(skips):
        convs = [nn.Conv2d(16, 16, 3, padding=1).requires_grad_(False) for _ in range(4)]
        head, images = nn.Linear(16, 2), torch.zeros(64, 16, 32, 32)

        def step():
            maps = first = convs[0](images)
            for conv in convs[1:]:
                maps = conv(maps)
            head((maps + first if skips else maps).mean((2, 3))).sum().backward()

        return peak_memory(record(step), 64)

    map_bytes = 4 * 64 * 16 * 32 * 32
    assert of(skips=True).activation_gradients - of(skips=False).activation_gradients == map_bytes


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
        seen = record(module, *inputs)
        shapes = [(row.in_channels, row.in_height, row.in_width) for row in seen if row.type == "conv2d"]
        assert shapes == [(3, 48, 32), (1, 48, 32)]
        assert passes(seen, "conv2d") == [(1, 0, 1)] * 2
    assert not module.training
    with pytest.raises(SchemaError, match=r"such as record\(module, images\)"):
        record(module)


@pytest.fixture
def text_reader(torch):
    nn = torch.nn

    class Reader(nn.Module):
        def __init__(self, **more):
            super().__init__()
            self.maps = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, 1))
            self.reads, self.head = nn.LSTM(8 * 8, 32, bidirectional=True, **more), nn.Linear(64, 11)

        def forward(self, lines):
            positions = self.maps(lines).flatten(1, 2).permute(2, 0, 1)
            return self.head(self.reads(positions)[0])

    return Reader


@pytest.mark.parametrize("in_lists", [False, True])
def test_a_reader_of_text_lines_with_its_loss_is_recorded(torch, text_reader, in_lists):
    model, lines = text_reader(num_layers=2), torch.zeros(4, 1, 32, 64)
    texts = torch.ones(4, 6).long()
    positions, lengths = ([n] * 4 if in_lists else torch.full((4,), n) for n in (16, 6))

    def step():
        scores = model(lines).log_softmax(-1)
        torch.nn.functional.ctc_loss(scores, texts, positions, lengths).backward()

    seen = record(step)
    assert seen.parameters == sum(each.numel() for each in model.parameters())
    assert passes(seen, "lstm") == [(1, 1, 1)] * 2
    assert seen.step.batch_size == 4


def test_longer_lines_take_a_recurrent_layer_longer_as_it_reads_one_position_after_the_other(
    torch, text_reader
):
    model = text_reader()
    for gpu in ("H200", "Tesla T4"):
        times = []
        for width in (64, 256):
            table = record(model, torch.zeros(1, 1, 32, width))
            only = [replace(row, index=0, inputs=(-1,)) for row in table if row.type == "lstm"]
            table = replace(table, layers=tuple(only), image_size=only[0].in_height, step=None)
            times.append(answer(Question(table, gpu, 16)).rows()[0].gpu_time_ms)
        assert 2 < times[1] / times[0] < 4.2


def test_packed_sequences_and_projected_states_are_refused_with_what_to_write_instead(torch, text_reader):
    pack, positions = torch.nn.utils.rnn.pack_padded_sequence, torch.zeros(5, 2, 64)
    reads = text_reader().reads
    with pytest.raises(SchemaError, match=r"packed sequences: their lengths.*padded tensor"):
        record(lambda: reads(pack(positions, torch.tensor([5, 4])))[0].data.sum().backward())
    projected = torch.nn.LSTM(64, 32, proj_size=8)
    with pytest.raises(SchemaError, match=r"proj_size.*anchor"):
        record(lambda: projected(positions)[0].sum().backward())


def test_what_an_optimizer_is_given_to_run_is_counted(torch, network):
    """The passes in a closure, as Lightning writes them, counted as the optimizer's own: one layer was left."""
    train, optimizer = step_of(torch, network), torch.optim.SGD(network.parameters(), 0.1, 0.9)
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(5, (4,))

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        return loss

    for step in (lambda: optimizer.step(closure), lambda: optimizer.step(closure=closure)):
        seen = record(step)
        assert seen.layers == record(train).layers
        assert seen.step == Step(4, optimizer="momentum")


def test_a_norm_of_few_channels_is_one_of_maps_where_boxes_are_chosen(torch):
    """Its channels did not divide by the mini-batch, so it kept no map: an SSDlite's memory was 26 % too low."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 7, 3), torch.nn.BatchNorm2d(7), torch.nn.ReLU())
    images = torch.zeros(4, 3, 16, 16)

    def step():
        maps = net(images)
        maps[maps > 0.5].sum().backward()

    (norm,) = [row for row in record(step) if row.type == "batch_norm"]
    assert (norm.out_channels, norm.out_height, norm.input_gradients) == (7, 14, None)


def test_images_that_autocast_converts_are_the_same_images(torch, network):
    """Two passes over the images of a sharpness-aware step counted as two parts of a mini-batch: half of an epoch."""
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(5, (4,))
    optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9)

    def step():
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(network(images), labels)
            loss.backward()
        optimizer.step()

    assert (record(step).step.batch_size, record(step).step.parts) == (4, 1)


def test_filters_that_each_image_has_of_its_own_are_counted_for_one(torch):
    """A tracker slides the map of a template over that of a region: the row had the channels of the mini-batch."""
    net = torch.nn.Conv2d(3, 8, 3)

    def step():
        templates, regions = net(torch.zeros(4, 3, 8, 8)), net(torch.zeros(4, 3, 24, 24))
        torch.nn.functional.conv2d(regions.flatten(0, 1)[None], templates, groups=4).mean().backward()

    row = next(row for row in record(step) if row.name == "convolution")
    assert (row.in_channels, row.in_height, row.out_channels, row.out_height, row.groups) == (8, 22, 1, 17, 1)


@pytest.mark.parametrize("name", ["prelu", "grid_sample"])
def test_functions_that_detectors_and_trackers_use_have_a_known_cost(torch, name):
    net, factors = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Parameter(torch.ones(8))
    places = torch.zeros(4, 16, 16, 2)
    functions = {
        "prelu": lambda maps: torch.nn.functional.prelu(maps, factors),
        "grid_sample": lambda maps: torch.nn.functional.grid_sample(maps, places, align_corners=False),
    }
    seen = record(lambda: functions[name](net(torch.zeros(4, 3, 16, 16))).mean().backward())
    assert [warning for warning in seen.warnings if warning.kind == "operator"] == []
    assert {"prelu": "prelu", "grid_sample": "pad"}[name] in {row.type for row in seen}


def test_autocast_narrows_what_a_prelu_writes_and_not_what_is_scaled(torch):
    """Convolutions of a V-Net were recorded as reading float32; of a learned scale behind the layer they do."""
    nn = torch.nn

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = nn.Parameter(torch.ones(8, 1, 1))

        def forward(self, maps):
            return maps * self.factors

    for between, name in ((nn.PReLU(8), "prelu"), (Scale(), "multiply")):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), between, nn.Conv2d(8, 8, 3))
        written = []
        between.register_forward_hook(lambda *hooked, written=written: written.append(hooked[2].dtype))

        def step(model=model):
            with torch.autocast("cpu", torch.bfloat16):
                model(torch.zeros(4, 3, 16, 16)).float().mean().backward()

        step()
        table = record(step)
        wide, _ = wide_outputs(table)
        place = next(place for place, row in enumerate(table) if row.type == name)
        assert wide[place] == (written[0] == torch.float32) == (name == "multiply")
        convolutions = [each for each in operators_of(table) if each.type == "conv2d"]
        assert [each.wide_input for each in convolutions] == [True, name == "multiply"]


@pytest.mark.parametrize("contiguous", [True, False])
def test_attention_to_transposed_heads_runs_no_fused_kernel(torch, contiguous):
    """Scores of a diffusion U-Net's maps were not counted: 27 % of its memory."""
    qkv, images = torch.nn.Conv2d(3, 48, 1), torch.zeros(4, 3, 8, 8)

    def step():
        heads = qkv(images).view(4, 3, 2, 8, 64).mT
        heads = heads.contiguous() if contiguous else heads
        torch.nn.functional.scaled_dot_product_attention(*heads.unbind(1)).sum().backward()

    table = record(step)
    types = [row.type for row in table if row.type in ("attention", "matmul")]
    scores = [row for row in table if (row.type, row.kind) == ("activation", "softmax")]
    assert types == (["attention"] if contiguous else ["matmul"] * 2)
    assert [row.out_channels * row.repeats for row in scores] == [2 * 64 * 64] * (not contiguous)
    assert not any("unknown cost" in str(each) for each in table.warnings)
