"""Times that no GPU can reach are refused wherever they enter; every measured one passes."""

import os

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

import epochcast
from predictor.catalogue.devices import find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError
from predictor.files import data_root
from predictor.measurements.features import feature_table
from predictor.measurements.published import published_features
from predictor.measurements.published.sources import DATA_SETS
from predictor.measurements.shortest import (
    LEAST_SHARE,
    check_not_too_short,
    check_rows_not_too_short,
    shares_of_bound,
)
from predictor.measurements.table import check_measurements
from predictor.models.fit import TrainingData, fit_default, fit_measurements

ROW = {
    "gpu": "T4", "cnn": "resnet50", "image_size": 224, "batch_size": 64, "precision": "fp32",
    "iteration_time_ms": 566.0,
}  # fmt: skip
T4 = find_gpu("T4")


def rows(**change):
    return check_measurements(pd.DataFrame([ROW, {**ROW, **change}]), "rows")


def test_a_third_of_the_arithmetic_is_the_limit():
    bound_ms = 64 / shares_of_bound(rows(iteration_time_ms=64.0))[1]
    configuration = ("it", zoo_cnn("resnet50"), T4, "fp32", 64)
    check_not_too_short(bound_ms * LEAST_SHARE * 1.001, *configuration)
    with pytest.raises(OutOfRangeError, match=r"it of .* ms is impossible: resnet50 at batch 64"):
        check_not_too_short(bound_ms * LEAST_SHARE * 0.999, *configuration)


@each_row
def test_a_row_off_by_a_thousand_is_refused_by_its_number(change):
    with pytest.raises(OutOfRangeError, match=r"mine, line 3: the time of .* impossible"):
        check_rows_not_too_short(rows(**change), "mine", "line", [2, 3])


@each_row
def test_what_can_be_or_is_not_known_passes(change):
    check_rows_not_too_short(rows(**change), "mine")


@pytest.mark.parametrize(
    "face", [fit_measurements, TrainingData.of_table, lambda frame: fit_default(uploaded=frame)]
)
def test_fits_refuse_it(face):
    with pytest.raises(OutOfRangeError, match=r"row 1: the time of 0\.566 ms is impossible"):
        face(rows(iteration_time_ms=0.566))


@pytest.mark.parametrize("ask", [epochcast.predict, epochcast.compare, epochcast.explain])
@pytest.mark.parametrize(
    "runs",
    [
        {"anchors": [{"gpu": "T4", "batch_size": 64, "iteration_time_ms": 0.6}]},
        {"anchors": [{"gpu": "T4", "batch_size": 64, "images_per_s": 1e5}]},
        {"measurements": pd.DataFrame([{**ROW, "iteration_time_ms": 0.6}])},
    ],
)
def test_answers_refuse_it(ask, runs):
    with pytest.raises(OutOfRangeError, match="impossible"):
        ask("resnet50", "T4", 64, **runs, **({"samples": 10_000} if ask is epochcast.compare else {}))


def test_a_run_of_a_cnn_of_ones_own_is_refused_where_it_is_asked_for():
    table = zoo_cnn("resnet50")
    mine = type(table)("mine", table.image_size, table.layers)
    own = pd.DataFrame([{**ROW, "cnn": "mine", "iteration_time_ms": 0.6}])
    with pytest.raises(OutOfRangeError, match="impossible: mine at batch 64"):
        epochcast.predict(mine, "T4", 64, measurements=own)


def too_short(frame):
    shares = shares_of_bound(frame)
    return frame[shares < LEAST_SHARE][["gpu", "cnn", "batch_size", "precision", "iteration_time_ms"]]


@pytest.mark.slow
def test_no_shipped_row_is_refused():
    columns = {*ROW, "kind", "pass", "gpu_time_ms", "n_gpus"}
    paths = sorted((data_root() / "measurements").glob("*.csv.gz"))
    tables = pd.concat([pd.read_csv(path, usecols=columns.__contains__) for path in paths], ignore_index=True)
    of_cnns = tables[~tables["kind"].isin(["operator", "all_reduce"])].drop_duplicates()
    frame = check_measurements(of_cnns, "the shipped tables")
    assert too_short(frame).empty
    assert np.isfinite(shares_of_bound(frame)).sum() > 2000


@pytest.mark.skipif(
    "EPOCHCAST_PUBLISHED_DATA" not in os.environ, reason="the published measurements are not here"
)
def test_no_published_row_is_refused():
    for name in DATA_SETS:
        features = published_features(None, [name])
        assert too_short(features).empty, name


def test_a_feature_table_is_judged_by_its_own_layers():
    frame = rows(cnn="known elsewhere", iteration_time_ms=0.5)
    features = feature_table(frame, lambda _, image_size: zoo_cnn("resnet50", image_size))
    assert list(shares_of_bound(features) < LEAST_SHARE) == [False, True]
