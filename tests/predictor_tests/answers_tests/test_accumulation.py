"""Mini-batches whose gradients are accumulated: a step of the optimizer is several parts one after the other."""

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

from predictor.answers.answer import answer, predict
from predictor.answers.bounds import OVERHEAD
from predictor.answers.bulk import predict_rows
from predictor.answers.compare import compare
from predictor.answers.explain import explain
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.devices import find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.shortest import check_not_too_short
from predictor.models.data_parallel import Gradients
from predictor.models.power import PowerOfGpus

PARTS = 4


def row_of(batch_size=256, parts=PARTS, gpu="H200", **options):
    [row] = predict("resnet50", gpu, batch_size, gradient_accumulation=parts, **options)
    return row


@each_row
def test_a_step_takes_its_parts_with_one_update(options):
    step, one_part = row_of(**options), row_of(64, 1, **options)
    assert 0.9 * PARTS < step.gpu_time_ms / one_part.gpu_time_ms < PARTS
    if options.get("capture", "eager") == "eager":
        assert 0.8 * PARTS < step.host_time_ms / one_part.host_time_ms < PARTS


def test_memory_is_that_of_a_part_and_of_the_gradients_of_those_before():
    step, one_part = row_of(gpu="T4"), row_of(64, 1, gpu="T4")
    gradients_gib = 4 * zoo_cnn("resnet50").parameters / 2**30
    assert one_part.peak_memory_gib < step.peak_memory_gib <= one_part.peak_memory_gib + gradients_gib
    assert not row_of(256, 1, gpu="T4").fits_in_memory
    assert step.fits_in_memory


def test_an_epoch_counts_the_steps_of_the_optimizer():
    step = row_of(samples=50_000)
    assert step.iterations_per_epoch == -(-50_000 // 256)
    assert (step.batch_size, step.local_batch_size) == (256, 256)


def test_gradients_are_exchanged_once_in_a_step_beside_the_last_part():
    team = {"n_gpus": 4, "link": "pcie4"}
    step, one_part = row_of(1024, **team), row_of(256, 1, **team)
    assert one_part.added_ms < step.added_ms < 0.8 * PARTS * one_part.added_ms
    table = zoo_cnn("resnet50")
    once, at_once = (Gradients.of(row) for row in (table.accumulated(PARTS), table))
    assert (once.n_bytes, once.n_tensors) == (at_once.n_bytes, at_once.n_tensors)
    assert once.n_batch_norms == PARTS * at_once.n_batch_norms


def test_the_first_mini_batch_of_a_loader_is_a_part():
    loaded = {"data_set": "imagenet", "workers": 2, "gpu": "T4"}
    step, at_once = row_of(**loaded), row_of(parts=1, **loaded)
    assert step.loading_time_ms == pytest.approx(at_once.loading_time_ms)
    assert step.start_s < at_once.start_s


def test_an_image_draws_the_power_of_one_part():
    tables = zoo_cnn("resnet50"), zoo_cnn("resnet50").accumulated(PARTS)
    plain, parts = (PowerOfGpus.of(table, [find_gpu("H200")], ["tf32"]).product_ms for table in tables)
    np.testing.assert_allclose(parts, plain)


def test_the_batch_sizes_that_are_searched_can_be_shared():
    team = {"n_gpus": 2, "link": "pcie4", "gradient_accumulation": 3}
    rows = answer(Question("resnet50", ["T4", "H200"], **team)).rows()
    assert rows
    assert all(row.batch_size % 6 == 0 and row.largest_batch_size % 6 == 0 for row in rows)
    compared = compare(Question("resnet50", ["T4", "H200"], samples=50_000, gradient_accumulation=3)).rows
    assert all(row.batch_size % (3 * row.gpus_used) == 0 for row in compared)


def test_an_explanation_is_of_the_whole_step():
    [step], scope = explain(Question("resnet50", "T4", [64, 256], gradient_accumulation=PARTS))
    assert "a step of the optimizer: each GPU runs its images in 4 parts" in scope
    [one_part], _ = explain(Question("resnet50", "T4", [16, 64]))
    assert step.pass_ms["forward"].keys() == one_part.pass_ms["forward"].keys()
    forward, of_part = (row.pass_ms["forward"]["convolution"][1] for row in (step, one_part))
    assert forward == pytest.approx(PARTS * of_part, rel=0.02)
    assert step.classes["optimizer"] == pytest.approx(one_part.classes["optimizer"], rel=0.02)
    assert OVERHEAD not in step.classes


def test_a_row_of_a_table_answers_as_a_prediction_does(tmp_path):
    questions, answered = tmp_path / "rows.csv", tmp_path / "out.csv"
    row = {"cnn": "resnet50", "gpu": "T4", "gradient_accumulation": 4}
    rows = [row | {"batch_size": size} for size in (256, 66)]
    pd.DataFrame(rows).to_csv(questions, index=False)
    assert predict_rows(questions, answered) == 1
    first, second = pd.read_csv(answered).to_dict("records")
    assert first["iteration_time_ms"] == pytest.approx(row_of(gpu="T4").iteration_time_ms)
    assert "whose 4 parts cannot share it evenly. Nearest: 64" in second["error"]


def test_measured_iterations_of_one_mini_batch_say_nothing_of_several_parts():
    measured = pd.DataFrame(
        [
            {"gpu": "Tesla T4", "cnn": "resnet50", "image_size": 224, "batch_size": 64, "precision": "fp32",
             "iteration_time_ms": 900.0}
        ]
    )  # fmt: skip
    row = row_of(gpu="T4", measurements=measured)
    assert row.iteration_time_ms == pytest.approx(row_of(gpu="T4").iteration_time_ms)
    assert "yours on Tesla T4 are not used" in "; ".join(map(str, row.extrapolates))


def test_a_possible_time_of_a_step_is_an_anchor():
    table = ResolvedQuestion.of(Question("resnet50", "T4", 256, gradient_accumulation=PARTS)).tables[0]
    step_ms = row_of(gpu="T4").iteration_time_ms
    check_not_too_short(step_ms, "the anchor's time", table, find_gpu("T4"), "fp32", 256)
    anchored = row_of(gpu="T4", anchors=[{"gpu": "T4", "batch_size": 256, "iteration_time_ms": step_ms}])
    assert anchored.iteration_time_ms == pytest.approx(step_ms, rel=0.05)
