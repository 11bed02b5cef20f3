"""The weight update takes the time and the memory of what an optimizer reads, writes and holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Step
from predictor.cnns.zoo import zoo_cnn
from predictor.models.layer_times.times import DeviceMode
from predictor.models.served import Model
from predictor.operators.memory import peak_memory_gib
from predictor.operators.operators import Operator
from predictor.operators.optimizers import UPDATES, Update, loop_ms, passes_over_measured, update_of

MEASURED = pd.read_csv(Path(__file__).parents[3] / "benchmarks" / "optimizers_h100.csv").fillna("")
WORDS = {
    ("SGD", ""): "sgd", ("SGD", "momentum=0.9"): "momentum", ("Adam", ""): "adam", ("AdamW", ""): "adamw",
    ("NAdam", ""): "nadam", ("RMSprop", ""): "rmsprop", ("Adadelta", ""): "adadelta", ("Adagrad", ""): "adagrad",
}  # fmt: skip
RECORDED = {  # what a recorded step says of them
    ("SGD", "momentum=0.9 fused=True"): Update(1, 5, 0, "fused"),
    ("Adam", "fused=True"): Update(2, 7, 0, "fused"),
    ("Adam", "amsgrad=True"): Update(3, 21, 1),
    ("RMSprop", "momentum=0.9"): Update(2, 18, 1),
    ("Adamax", ""): Update(2, 16, 1),
}
VGG, MIB = zoo_cnn("vgg16"), 2**20


@pytest.fixture(scope="module")
def of_momentum_ms() -> float:
    """An H100's update of VGG-16 with momentum, in ms."""
    model = Model.load().layers.find(DeviceMode("NVIDIA H100 80GB HBM3", precision="tf32"))
    update = Operator("optimizer", parameters=VGG.parameters, n_tensors=32)
    return float(model.library.times([update], np.array([64.0])).gpu_ms[0, 0])


def test_an_update_takes_the_time_of_its_passes(of_momentum_ms):
    updates = {of: UPDATES[word] for of, word in WORDS.items()} | RECORDED
    off = {}
    for row in MEASURED.itertuples():
        update = updates.get((row.optimizer, row.options))
        if update is not None:
            off[row.optimizer, row.options] = (
                passes_over_measured(update, "pytorch") * of_momentum_ms / row.gpu_time_ms
            )
    assert len(off) == len(updates)
    assert {of: ratio for of, ratio in off.items() if not 0.95 < ratio < 1.05} == {}


def test_states_and_moments_of_updates_are_those_measured():
    for row in MEASURED.itertuples():
        words = row.optimizer, row.options
        update = RECORDED.get(words) or UPDATES.get(WORDS.get(words))
        if update is not None:
            of_each = VGG.parameters * 4 / MIB
            assert row.state_mib == pytest.approx(update.states * of_each, abs=1), row
            assert row.extra_peak_mib == pytest.approx(update.copies * of_each, abs=3), row


def test_a_loop_over_tensors_takes_a_kernel_for_each():
    """An Adam of 161 tensors took an H100 1.86 ms, one of VGG-16's 32 no longer than in lists."""
    loop = UPDATES["adam"]._replace(form="loop")
    assert loop_ms(loop, 161) == pytest.approx(1.86, rel=0.05)
    assert loop_ms(UPDATES["adam"], 161) == 0.0


def test_what_a_recorded_step_passes_goes_before_the_words_of_its_optimizer():
    step = Step(
        64,
        optimizer="adam",
        optimizer_states=3.0,
        optimizer_passes=21.0,
        optimizer_copies=1.0,
        optimizer_form="foreach",
    )
    recorded = replace(VGG, step=step)
    assert update_of(recorded, Mode(optimizer="adam")) == Update(3.0, 21.0, 1.0, "foreach")
    assert update_of(recorded, Mode(optimizer="sgd")) == UPDATES["sgd"]
    assert update_of(VGG, Mode("tensorflow", optimizer="adam")) == Update(2, 7, 0, "fused")


def test_copies_for_a_moment_count_where_the_update_is_the_peak():
    one_image = {name: peak_memory_gib(VGG, 1, Mode(optimizer=name)) for name in UPDATES}
    weights = VGG.parameters * 4 / 2**30
    assert one_image["adadelta"] - one_image["adam"] == pytest.approx(weights, rel=1e-6)
    assert one_image["adagrad"] - one_image["rmsprop"] == pytest.approx(weights, rel=1e-6)
