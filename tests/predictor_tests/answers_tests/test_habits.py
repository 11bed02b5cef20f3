"""What PyTorch's switches cost, as measured, and which answers name them."""

import math
from pathlib import Path

import pandas as pd
import pytest

import epochcast
from predictor.answers.answer import answer
from predictor.answers.explain import explain
from predictor.answers.question import Question
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.errors import SchemaError

MEASURED = pd.read_csv(Path(__file__).parents[3] / "benchmarks" / "switches_h100_h200.csv")
BOUND_BY_GPU = MEASURED["default_enqueue_ms"] < 0.9 * MEASURED["default_iteration_time_ms"]


JUDGED = [("algorithms", "deterministic", 0.03), ("anomaly", "detect_anomaly", 0.2)]


@pytest.mark.parametrize(("switch", "option", "tolerance"), JUDGED)
def test_switches_take_the_gpu_bound_iterations_what_they_were_measured_to_take(switch, option, tolerance):
    rows = MEASURED[(MEASURED["switch"] == switch) & BOUND_BY_GPU & (MEASURED["cnn"] != "r3d_18")]
    errors = {}
    for row in rows.itertuples():
        mode = {"precision": row.precision, "memory_format": row.memory_format}
        plain, switched = (
            answer(Question.of(row.cnn, [row.gpu], [row.batch_size], mode | more)).rows()[0].iteration_time_ms
            for more in ({}, {option: True})
        )
        errors[row.gpu, row.cnn] = (
            switched / plain * row.default_iteration_time_ms / row.iteration_time_ms - 1
        )
    assert len(errors) >= 4
    assert not {row: error for row, error in errors.items() if abs(error) > tolerance}


def test_the_interval_is_as_wide_as_of_what_bounds_the_iteration_with_the_switches():
    def width(size, **switches):
        [row] = answer(
            Question.of("resnet50", ["H200"], [size], {"precision": "amp_bf16", **switches})
        ).rows()
        return math.log(row.high_ms / row.iteration_time_ms)

    assert width(64) < 0.25 < 0.33 < width(64, deterministic=True) < width(8)  # by the GPU, both, the host
    assert width(128) < 0.1 < 0.4 < width(128, detect_anomaly=True)
    assert width(8) == pytest.approx(width(8, deterministic=True), rel=0.01)


def _recorded(habit):
    """A step that was recorded with a habit."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU6())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=habit != "loop")

    def step():
        optimizer.zero_grad()
        loss = model(torch.zeros(4, 3, 32, 32)).mean()
        loss.backward()
        optimizer.step()
        if habit == "waits":
            loss.item()

    def switch(habit):
        torch.use_deterministic_algorithms(habit in ("deterministic", "no_fill"))
        torch.utils.deterministic.fill_uninitialized_memory = habit != "no_fill"
        torch.autograd.set_detect_anomaly(habit == "detect_anomaly")

    switch(habit)
    try:
        return epochcast.record(step)
    finally:
        switch("")


@pytest.mark.parametrize("habit", ["deterministic", "detect_anomaly", "waits", "loop", "no_fill", ""])
def test_a_recorded_step_pays_for_the_habits_that_it_ran_with(habit, tmp_path):
    table = _recorded(habit)
    table.to_csv(tmp_path / "step.csv")
    assert read_layer_table_csv(tmp_path / "step.csv").step == table.step
    [explanation], _ = explain(Question.of(table, ["H200"], [4], {}))
    assert [paid.name for paid in explanation.pays_for] == [habit] * (habit not in ("no_fill", ""))
    assert all(paid.saves_ms[0] > 0 for paid in explanation.pays_for)


@pytest.mark.parametrize(
    ("cnn", "habits"),
    [
        ("resnet50", ["deterministic", "detect_anomaly"]),
        ("resnet50", ["detect_anomaly"]),
        ("mobilenet_v2", ["deterministic"]),
        ("resnet18_cifar", []),
    ],
)
def test_the_ratio_of_two_modes_is_uncertain_where_the_host_bounds_both(cnn, habits):
    for size in (8, 64):
        [explanation], _ = explain(Question.of(cnn, ["H200"], [size], dict.fromkeys(habits, True)))
        for mode in explanation.other_modes:
            assert mode.low[0] < 0.95 * mode.factor[0] < 0.95**2 * mode.high[0], mode


@pytest.mark.parametrize("type_", ["upsample", "upsample_nearest"])
def test_deterministic_algorithms_resize_by_indices_only_what_a_cnn_resizes_bilinearly(type_):
    maps = {"in_channels": 64, "out_channels": 64, "in_height": 28, "in_width": 28}
    norm = Layer(0, "norm", "batch_norm", **maps, out_height=28, out_width=28, parameters=128)
    up = Layer(1, "up", type_, **maps, out_height=56, out_width=56)
    table = LayerTable("cnn", 28, (norm, up))
    [explanation], _ = explain(Question.of([table], ["H200"], [64], {"deterministic": True}))
    [paid] = explanation.pays_for
    assert ["resize" in paid.effect, "resize" in paid.remedy] == [type_ == "upsample"] * 2


@pytest.mark.parametrize(("name", "time_ms"), [("deterministic", 57), ("detect_anomaly", 105)])
def test_a_checkup_names_switches_that_are_asked(name, time_ms):
    checkup = epochcast.check(
        "mobilenet_v2", "H200", 128, iteration_time_ms=time_ms, precision="tf32", **{name: True}
    )
    assert (checkup.verdict, [cause.name for cause in checkup.causes]) == ("normal", [name])


def test_a_checkup_suspects_switches_that_would_explain_the_time():
    checkup = epochcast.check("mobilenet_v2", "H200", 128, iteration_time_ms=105, precision="tf32")
    assert "detect_anomaly" in [cause.name for cause in checkup.causes]


WARNINGS = {
    "detect_anomaly": "Anomaly Detection has been enabled. This mode will increase the runtime",
    "deterministic": "nll_loss2d_forward_out_cuda_template does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True, warn_only=True)'.",
}


@pytest.mark.parametrize("option", WARNINGS)
def test_a_log_shows_the_switches_that_pytorch_warns_of(option, tmp_path):
    log = tmp_path / "train.log"
    log.write_text(f"UserWarning: {WARNINGS[option]}\n" + "10/99 [00:05<00:40, 12.5it/s]\n" * 3)
    asked = epochcast.check("resnet50", "H200", 64, iteration_time_ms=80, **{option: True})
    assert epochcast.check("resnet50", "H200", 64, log=log).normal_ms == asked.normal_ms


@pytest.mark.parametrize("mode", ["framework=tensorflow", "capture=compile", "method=gpu-specs"])
def test_switches_of_eager_pytorch_are_refused_elsewhere(mode):
    with pytest.raises(SchemaError, match="deterministic is a switch of PyTorch's eager mode"):
        epochcast.predict("resnet50", "H200", 64, deterministic=True, **dict([mode.split("=")]))


def test_anomaly_detection_waits_for_the_gpu_and_so_is_in_no_captured_graph():
    with pytest.raises(SchemaError, match="detect_anomaly is a switch of PyTorch's eager mode"):
        epochcast.predict("resnet50", "H200", 64, deterministic=True, detect_anomaly=True, capture="graph")
