"""Deviations of known GPUs: fitted where enough CNNs were measured, and nowhere else."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.features import feature_table
from predictor.models.base import Case
from predictor.models.forecast import Anchor
from predictor.models.roofline.fit import Measured, Objective
from predictor.models.roofline.law import RooflineLaw
from predictor.models.roofline.rows import rows_of
from predictor.models.roofline.terms import Contexts, KernelContext
from predictor.models.served import Model
from predictor.operators.kernels import kernels_of

CNNS = (
    "lenet5", "alexnet", "resnet18", "resnet34", "squeezenet1_1", "vgg11", "mobilenet_v2", "densenet121", "googlenet",
)  # fmt: skip
GPUS, BATCHES = ("Tesla T4", "Tesla P4"), (32, 128)
T4 = "gpu:TU104, 40 SMs, 1.59 GHz, pytorch"


def objective_of(cnns, factor) -> Objective:
    """Times by a law without coefficients, x `factor` of the row."""
    law = RooflineLaw({}, {"pytorch": (-3.0, -6.0)}, {}, (-9.0,) * 4)
    rows = []
    for cnn, gpu, batch in product(cnns, GPUS, BATCHES):
        context = KernelContext(find_gpu(gpu), "fp32", "pytorch")
        ms = float(law.times(kernels_of(zoo_cnn(cnn)), [context], [batch]).iteration_ms[0, 0])
        row = {"gpu": gpu, "cnn": cnn, "image_size": zoo_cnn(cnn).image_size, "batch_size": batch}
        rows.append(row | {"precision": "fp32", "iteration_time_ms": ms * factor(cnn, gpu)})
    frame = feature_table(pd.DataFrame(rows).assign(framework="pytorch"))
    times = frame["iteration_time_ms"].to_numpy(float)
    none = np.full(len(frame), np.nan)
    return Objective(Measured(rows_of(frame), times, none, np.ones(len(frame)), frame["cnn"].tolist()))


def of_law_without_coefficients(objective: Objective) -> np.ndarray:
    x = objective.blocks.expected.copy()
    x[objective.blocks["law"]] = 0.0
    x[objective.blocks["host"]] = -3.0, -6.0
    return x


def test_a_gpu_on_which_all_cnns_take_longer_has_levels_that_say_so():
    objective = objective_of(CNNS, lambda _, gpu: 1.4 if gpu == "Tesla T4" else 1.0)
    deviations = objective.deviations(of_law_without_coefficients(objective))
    levels = [value for (_, feature, where), value in deviations.items() if where == T4 and feature == "one"]
    assert np.mean(levels) > 0.05
    ratio = objective.predicted(of_law_without_coefficients(objective)).times / objective.iterations.time_ms
    assert np.abs(np.log(ratio)).mean() < 0.1
    on_t4 = np.array([context.gpu.name == "Tesla T4" for context in objective.iterations.rows.contexts])
    without = objective.deviations(of_law_without_coefficients(objective), on_t4)  # of rows that are gone
    assert not any(where == T4 for _, _, where in without)


def test_gpus_have_deviations_where_one_cnn_is_strange_but_none_by_few_cnns():
    few, all_of_them = (
        objective_of(cnns, lambda cnn, _: 4.0 if cnn == "vgg11" else 1.0) for cnns in (CNNS[:6], CNNS)
    )
    assert few.deviations(of_law_without_coefficients(few)) == {}
    deviations = all_of_them.deviations(of_law_without_coefficients(all_of_them))
    assert {where for _, _, where in deviations} >= {T4, "gpu:GP104, 20 SMs, 1.063 GHz, pytorch"}


def test_half_precision_shares_the_deviations_of_amp():
    condition = f"gpu_mode:{T4.removeprefix('gpu:')} amp_fp16 nchw"
    law = RooflineLaw({("batch_norm", "one", condition): -0.5}, {"pytorch": (0, 0)}, {}, (0.0,) * 4)
    contexts = (KernelContext(find_gpu("T4"), name, "pytorch") for name in ("amp_fp16", "fp16", "fp32"))
    assert law.knows(Contexts(contexts)).tolist() == [True, True, False]
    assert not law.of_any_gpu.terms


def test_no_gpu_is_known_in_compiled_graphs_of_which_the_fit_makes_no_deviations():
    law = RooflineLaw({("batch_norm", "one", ""): 0.1}, {"tensorflow": (0, 0)}, {}, (0.0,) * 4)
    assert not law.knows(Contexts([KernelContext(find_gpu("T4"), "fp32", "tensorflow", xla=True)]))


def test_a_run_elsewhere_corrects_the_law_of_a_gpu_that_has_no_terms_of_its_own():
    estimator = Model.load().roofline
    law, run = estimator.law_, (Anchor("Tesla V100-SXM2-16GB", 64, 300.0),)
    mode, p100 = Mode(framework="tensorflow", precision="fp32"), find_gpu("Tesla P100-PCIE-16GB")
    case = Case("resnet50", 224, zoo_cnn("resnet50"), p100, mode, np.array([64.0]), run)
    assert law.knows(Contexts([KernelContext(find_gpu(run[0].gpu), "fp32", "tensorflow")]))
    (with_terms,), (without,) = (
        estimator.forecasts([case]),
        estimator.with_law(law.of_any_gpu).forecasts([case]),
    )
    assert with_terms.iteration_time_ms == pytest.approx(without.iteration_time_ms)
