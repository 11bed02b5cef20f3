"""The benchmark of eager iterations: a CNN's own times are hidden, and spreads are those of its repeats."""

import gzip
import importlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.features import feature_table
from predictor.models.fit import HELD_OUT
from predictor.operators.operators import operators_of

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
CNNS = ("resnet18", "squeezenet1_1", "vgg11_bn", "mobilenet_v2")


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("eager_host")


@pytest.fixture(scope="module")
def features(made_up_gpu):
    operators = dict.fromkeys(o for cnn in CNNS for o in operators_of(zoo_cnn(cnn)))
    rows = made_up_gpu.operator_rows(operators, (8, 64)) + made_up_gpu.target_rows(CNNS, (8, 64))
    return feature_table(pd.DataFrame(rows).assign(iteration_time_ms_iqr=np.nan))


def test_an_unseen_cnns_host_and_iteration_are_near_where_operators_take_the_host_alike(benchmark, features):
    answers = benchmark.held_out(features)
    assert set(answers["cnn"]) == set(CNNS)
    assert set(answers["batch_size"]) == {8}
    off = benchmark.errors(answers)
    assert off["host"].abs().max() < 0.05
    assert off["iteration"].abs().max() < 0.05
    assert off["constant host"].abs().max() < 1e-9


def test_the_held_out_cnns_own_times_change_nothing(benchmark, features):
    own = (features["cnn"] == "resnet18") & (features["kind"] == "target")
    changed = features.assign(host_time_ms=features["host_time_ms"].where(~own, 1e3))
    one, other = (benchmark.held_out(each).set_index("cnn").loc["resnet18"] for each in (features, changed))
    assert other["host"] == one["host"]
    assert other["constant host"] == one["constant host"]


def test_the_spread_is_the_interquartile_range_over_the_median(benchmark):
    assert benchmark.relative_range([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert np.isnan(benchmark.relative_range(None))


def test_configurations_timed_in_two_tables_tell_how_runs_differ(benchmark, made_up_gpu, tmp_path):
    rows = pd.DataFrame(made_up_gpu.target_rows(["resnet18"], (8, 64))).assign(source="epochcast")
    for name, factor in (("one", 1.0), ("other", 1.25)):
        path = tmp_path / f"h200_pytorch_{name}_targets.csv.gz"
        rows.assign(host_time_ms=rows["host_time_ms"] * factor).to_csv(path, index=False)
        repeats = [{"host_times_ms": [1.0, 2.0, 3.0, 4.0, 5.0]}] * len(rows)
        path.with_name(path.name.replace(".csv", ".json")).write_bytes(
            gzip.compress(json.dumps({"repeats": repeats}).encode())
        )
    told = benchmark.repeatability(tmp_path).splitlines()[0]
    assert "median 66.7 %" in told
    assert "most 25.0 % (1 configurations)" in told


def test_other_sessions_are_answered_without_their_host_with_it_and_from_their_own_times(
    benchmark, made_up_gpu, tmp_path
):
    rows = pd.DataFrame(made_up_gpu.target_rows(["resnet18"], (8, 64)))
    path = tmp_path / f"h200_pytorch{HELD_OUT}"
    rows.assign(host_cnn_ms=20.0).to_csv(path, index=False)
    answers = benchmark.other_sessions(tmp_path).set_index("knows")
    assert list(answers.index) == ["nothing", "ResNet-18's time", "both times"]
    assert answers["predicted"]["ResNet-18's time"] > answers["predicted"]["nothing"]
    assert "both times" in benchmark.by_session(answers.reset_index())
