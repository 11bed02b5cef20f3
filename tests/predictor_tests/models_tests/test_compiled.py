"""The law of compiling: what torch.compile leaves of an iteration, and where it is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ratios_fit import COMPILE, compiled_pairs, measured_cnn, own_tables

from predictor.answers.answer import answer, predict
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.groups import is_compiled
from predictor.models.compiled import COMPILED as COMPILED_BY_EAGER
from predictor.models.compiled import compile_seconds, eager_mode
from predictor.models.forecast import WIDENS, Anchor
from predictor.models.ratios import ratios_of
from predictor.operators.memory import CONTEXT_GIB, peak_memory_gib

H200, H100, A100, T4 = map(find_gpu, ("NVIDIA H200", "H100 SXM", "NVIDIA A100-SXM4-40GB", "T4"))
COMPILED = Mode(precision="tf32", capture="compile")
LAST = Mode(precision="tf32", memory_format="channels_last")
SIZES = [1, 16, 64, 256]
SHIPPED = ratios_of("compile")


def asked(model, cnn="resnet50", gpu=H200, mode=COMPILED, anchors=(), sizes=SIZES):
    return model.forecast(zoo_cnn(cnn), gpu, mode, sizes, anchors)


def test_the_compiler_makes_most_cnns_channels_last():
    layouts = {
        "resnet50": "channels_last",
        "vgg16": "channels_last",
        "mobilenet_v2": "channels_last",  # groups of one channel
        "densenet121": "nchw",  # windows of 128 channels make 32
        "resnext50_32x4d": "nchw",  # groups of several channels
        "lenet5": "nchw",  # few channels
    }
    assert {cnn: eager_mode(zoo_cnn(cnn), COMPILED).memory_format for cnn in layouts} == layouts
    last = replace(COMPILED, memory_format="channels_last")
    assert eager_mode(zoo_cnn("densenet121"), last).memory_format == "channels_last"


@pytest.fixture(scope="module")
def pairs(model):
    return compiled_pairs(own_tables("compiled"), model)


@pytest.mark.slow
def test_the_shipped_ratios_are_what_the_fit_gives(pairs, same_ratios):
    same_ratios(COMPILE.shipped(pairs), SHIPPED)
    assert {*SHIPPED.types} == {layer.type for pair in pairs for layer in pair.table}


@pytest.mark.slow
def test_nine_in_ten_compiled_iterations_of_families_held_out_lie_in_their_intervals(pairs):
    without = COMPILE.held_out(pairs)
    answers = [pair.forecast(replace(without[pair.family], spread=SHIPPED.spread)) for pair in pairs]
    times = np.array([(*a.gpu_low_ms, *a.gpu_time_ms, *a.gpu_high_ms) for a in answers]).T
    low, middle, high = times / [pair.gpu_ms for pair in pairs]
    assert np.mean(np.abs(middle - 1)) < 0.10
    assert 0.85 < np.mean((low <= 1) & (high >= 1)) < 0.95


@pytest.mark.parametrize("gpu", [H200, A100])
def test_its_classes_add_up_to_the_gpus_time_and_loss_and_optimizer_stay(gpu, model):
    eager = asked(model, gpu=gpu, mode=LAST)
    compiled = asked(model, gpu=gpu)
    left = eager.gpu_time_ms - sum(eager.class_ms.values())
    sums = sum(compiled.class_ms.values()) + SHIPPED["elementwise"] * left
    np.testing.assert_allclose(sums, compiled.gpu_time_ms)
    for kept in ("optimizer", *(name for name in eager.class_ms if name.startswith("conv"))):
        np.testing.assert_allclose(compiled.class_ms[kept], eager.class_ms[kept])
    assert (compiled.class_ms["batch_norm"] < eager.class_ms["batch_norm"]).all()
    assert compiled.rung_ms.keys() == eager.rung_ms.keys()


def test_pools_take_what_their_bytes_take_however_slow_they_are_eagerly(model):
    table, sizes = zoo_cnn("googlenet"), np.array([64.0])
    mode = eager_mode(table, COMPILED)
    eager = model.forecast(table, H200, mode, sizes)
    slower = {name: ms * (3.0 if "pool" in name else 1.0) for name, ms in eager.class_ms.items()}
    added_ms = sum(slower.values()) - sum(eager.class_ms.values())
    slow = replace(eager, gpu_time_ms=eager.gpu_time_ms + added_ms, split=lambda: (slower, {}))
    fast, also = (COMPILED_BY_EAGER.forecast(base, table, H200, COMPILED, sizes) for base in (eager, slow))
    assert also.gpu_time_ms == pytest.approx(fast.gpu_time_ms)


def test_its_interval_is_wider_than_the_eager_one_and_widest_where_nothing_was_compiled(model):
    def added(gpu, size):
        answers = (asked(model, gpu=gpu, mode=mode, sizes=[size]) for mode in (COMPILED, LAST))
        above, below = (np.log(answer.gpu_high_ms / answer.gpu_time_ms)[0] for answer in answers)
        return float(np.sqrt(above**2 - below**2))

    assert added(H200, 64) == pytest.approx(SHIPPED.spread)
    assert added(H200, 128) == pytest.approx(SHIPPED.spread)
    assert added(H200, 512) == pytest.approx(WIDENS * SHIPPED.spread)
    assert added(A100, 64) > 0.17


def test_it_says_what_of_compiling_was_not_measured(model):
    def reasons(position=2, **more):
        at_size = asked(model, **more).extrapolates[position]
        return " ".join(reason.text for reason in at_size if reason.kind == "capture")

    assert reasons() == ""
    assert "only at batch sizes 16 to 256" in reasons(position=0)
    assert "only on an H100 and an H200" in reasons(gpu=A100)
    assert "only in tf32 and amp_bf16" in reasons(mode=Mode(precision="fp32", capture="compile"))


def test_it_says_that_a_cnn_is_unlike_those_compiled_and_is_wider(model):
    table = zoo_cnn("resnet50")
    attends = replace(table, layers=(*table.layers[:-1], replace(table.layers[-1], type="attention")))
    sizes = np.array([64.0])
    eager = model.forecast(table, H200, eager_mode(table, COMPILED), sizes)
    like, unlike = (COMPILED_BY_EAGER.forecast(eager, cnn, H200, COMPILED, sizes) for cnn in (table, attends))
    assert like.extrapolates == eager.extrapolates
    assert "compile was measured on no CNN with attention" in str(unlike.extrapolates[0][-1])
    assert unlike.gpu_high_ms > like.gpu_high_ms


def test_a_compiled_run_is_met_and_narrows_its_batch_size(model):
    plain = asked(model, sizes=[64])
    measured = 1.03 * float(plain.iteration_time_ms[0])
    anchored = asked(model, sizes=[64], anchors=[Anchor("NVIDIA H200", 64, measured)])
    assert anchored.iteration_time_ms[0] == pytest.approx(measured, rel=0.01)
    assert anchored.high_ms[0] / anchored.low_ms[0] < plain.high_ms[0] / plain.low_ms[0]


def test_several_gpus_wait_for_the_host_of_compiled_cnns_too():
    alone, team = (
        predict("resnet50", "NVIDIA H200", [2 * n], precision="tf32", capture="compile", n_gpus=n)[0]
        for n in (1, 2)
    )
    assert team.host_time_ms == pytest.approx(alone.host_time_ms * ratios_of("data_parallel")["host"])
    assert any("without capture" in reason.text for reason in team.extrapolates)


def test_all_gpus_are_those_that_it_compiles_for():
    compiled, eager = (
        ResolvedQuestion.of(Question("resnet50", "all", [64], capture=capture)).devices
        for capture in ("compile", "eager")
    )
    assert min(gpu.compute_capability for gpu, _ in compiled) == 7.0
    assert len(compiled) < len(eager)


def test_compiled_rows_are_told_by_their_capture():
    captures = pd.DataFrame({"capture": ["compile", "compile_graph", "eager"]})
    assert is_compiled(captures).tolist() == [True, True, False]
    assert is_compiled(captures.drop(columns="capture")).tolist() == [False] * 3


def test_a_replayed_graph_has_the_gpus_time_and_little_of_the_hosts(model):
    graphs, compiled = (
        asked(model, "resnet34", H100, replace(COMPILED, capture=capture), sizes=[4, 64])
        for capture in ("compile_graph", "compile")
    )
    assert graphs.gpu_time_ms.tolist() == compiled.gpu_time_ms.tolist()
    assert (graphs.host_time_ms < 0.3 * compiled.host_time_ms).all()
    assert graphs.iteration_time_ms[0] == pytest.approx(3.96, rel=0.15)  # as measured, in TF32


def test_an_answer_says_how_long_compiling_takes_and_an_eager_one_does_not():
    scopes = [
        answer(Question("resnet50", "NVIDIA H200", [64], capture=capture)).scope
        for capture in ("compile", "eager")
    ]
    seconds = f"about {compile_seconds(zoo_cnn('resnet50')):.0f} s"
    assert [seconds in scope for scope in scopes] == [True, False]
    assert compile_seconds(zoo_cnn("densenet121")) >= compile_seconds(zoo_cnn("vgg16"))  # more layers


def test_an_answer_says_by_which_share_of_the_memory_estimate_compiled_cnns_needed():
    rows = own_tables("compiled")
    rows = rows[is_compiled(rows)]

    def estimated_gib(row):
        table, _ = measured_cnn(row.cnn, int(row.image_size))
        mode = Mode(precision=row.precision, memory_format=row.memory_format)
        return peak_memory_gib(table, int(row.batch_size), mode) - CONTEXT_GIB

    shares = [row.peak_memory_mib / 1024 / estimated_gib(row) for row in rows.itertuples()]
    sentence = (
        f"{len(shares)} compiled iterations of {rows['cnn'].nunique()} CNNs needed "
        f"{min(shares):.2f} to {max(shares):.2f} x the estimate"
    )
    for capture in ("compile", "eager"):
        scope = answer(Question("resnet50", "NVIDIA H200", [64], capture=capture)).scope
        assert (sentence in scope) == (capture == "compile")
