"""The estimator `Roofline`: what one row counts, and that what is judged is what is served."""

import numpy as np
import pandas as pd
import pytest

from predictor.errors import OutOfRangeError
from predictor.measurements.features import feature_table
from predictor.measurements.table import check_measurements
from predictor.models.roofline.model import Roofline, _weights

SPEED = {"T4": 3.6, "V100-SXM2-16GB": 1.2, "K80": 9.0}


def made_up(cnns=("resnet18", "resnet50", "vgg11")) -> pd.DataFrame:
    rows = [
        {"gpu": gpu, "cnn": cnn, "image_size": 224, "batch_size": batch, "precision": "fp32"}
        | {"host": f"host of {gpu}", "iteration_time_ms": 3 + (1 + i) * speed * batch}
        for i, cnn in enumerate(cnns)
        for gpu, speed in SPEED.items()
        for batch in (16, 32, 64)
    ]
    return check_measurements(pd.DataFrame(rows), "made up")


@pytest.fixture(scope="module")
def features() -> pd.DataFrame:
    return feature_table(made_up())


@pytest.fixture(scope="module")
def fitted(features) -> Roofline:
    return Roofline().fit(features, features["iteration_time_ms"])


def test_a_fitted_estimator_is_read_again_from_its_json(features, fitted):
    again = Roofline.from_json(fitted.to_json())
    assert again.predict(features).tolist() == fitted.predict(features).tolist()
    assert again.predict_interval(features)[1].tolist() == fitted.predict_interval(features)[1].tolist()


def test_a_machine_never_measured_is_less_sure_where_the_host_rules(features, fitted):
    small = features[features["batch_size"] == 16].assign(batch_size=1)
    on_known, unknown = (
        np.log(np.divide(*fitted.predict_interval(table)[::-1]))
        for table in (small, small.assign(host="a stranger"))
    )
    assert (unknown > 0.99 * on_known).all()  # a known machine's own slowness makes a small difference
    assert (unknown / on_known).max() > 1.2


def test_many_rows_of_one_source_on_one_gpu_count_less_each():
    rows = pd.DataFrame({"source": ["many"] * 120 + ["few"] * 10, "gpu": "T4"})
    weights = _weights(rows)
    assert weights[:120].tolist() == [0.5] * 120
    assert weights[120:].tolist() == [1.0] * 10


def test_an_iteration_counts_once_however_many_of_its_times_were_measured(features):
    is_timed = features["batch_size"] > 16
    table = features.assign(gpu_time_ms=np.where(is_timed, 0.9 * features["iteration_time_ms"], np.nan))
    objective = Roofline()._objective(table, table.iloc[:0])
    parts = objective._of_law(objective.blocks.expected, objective.iterations.weight, np.empty(0))
    total = parts[0][2].copy()
    total[is_timed.to_numpy()] += parts[1][2]
    assert total.tolist() == objective.iterations.weight.tolist()


def test_times_on_an_unknown_machine_need_no_intervals(features, fitted):
    plain = Roofline(calibrate=False).fit(features, features["iteration_time_ms"])
    strange = features.assign(host="a stranger")
    assert plain.predict(strange).tolist() == fitted.predict(strange).tolist()
    with pytest.raises(OutOfRangeError, match="calibrate=True"):
        plain.predict_interval(strange)
