"""The founding study's three scalings on any table: another batch size, another GPU, both."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from predictor.errors import DataError
from predictor.evaluation.run import evaluate
from predictor.evaluation.scenarios import SCALINGS, SCENARIOS, find_scenario
from predictor.measurements.features import feature_table

GPUS = {"NVIDIA H200": 1.0, "Tesla T4": 8.0}
SIZES = (8, 16, 32, 64, 128, 256)
WORK = {"lenet5": 0.1, "vgg_cifar": 1.0, "resnet18": 1.5, "16_128_128": 0.2, "32_3_64": 0.1}
IMAGES = {"lenet5": 28, "16_128_128": 16}


def _rows(gpus=GPUS):
    rows = [
        {
            "gpu": gpu,
            "cnn": cnn,
            "kind": "proxy" if cnn[0].isdigit() else "target",
            "image_size": IMAGES.get(cnn, 32),
            "batch_size": size,
            "iteration_time_ms": (1 + WORK[cnn] * size) * gpus[gpu],
        }
        for gpu, cnn, size in product(gpus, WORK, SIZES)
    ]
    mode = {"source": "mine", "framework": "pytorch", "precision": "fp32", "memory_format": "nchw"}
    return feature_table(pd.DataFrame(rows).assign(**mode))


@pytest.fixture(scope="module")
def features():
    return _rows()


@pytest.mark.parametrize("scaling", ["hardware", "both"])
def test_gpu_2_gives_its_proxies_and_never_a_cnn(features, scaling):
    for fold in find_scenario(SCALINGS[scaling]).folds(features):
        (tested,) = features["gpu"].iloc[fold.test].unique()
        assert (features["gpu"].iloc[fold.train] != tested).all()
        own = features.iloc[fold.proxies]
        assert {*own["gpu"]} == {tested}
        assert {*own["kind"]} == {"proxy"}


def test_both_scalings_know_no_cnn_at_a_tested_batch_size(features):
    for fold in find_scenario(SCALINGS["both"]).folds(features):
        train = features.iloc[fold.train]
        sizes = train.loc[train["kind"] == "target", "batch_size"]
        assert not {*sizes} & {*features["batch_size"].iloc[fold.test]}


def test_problem_scaling_stays_on_one_gpu_and_between_measured_batch_sizes(features):
    for fold in find_scenario(SCALINGS["problem"]).folds(features):
        train, tested = features.iloc[fold.train], features.iloc[fold.test]
        assert {*train["gpu"]} == {*tested["gpu"]}
        assert tested["batch_size"].between(SIZES[1], SIZES[-2]).all()


def test_one_gpu_is_no_hardware_scaling_and_the_error_says_what_to_give():
    with pytest.raises(DataError, match=r"needs CNNs on two, and the table's are on NVIDIA H200.*SECOND"):
        find_scenario(SCALINGS["hardware"]).folds(_rows({"NVIDIA H200": 1.0}))


def test_every_scaling_is_a_scenario_that_is_judged_only_where_it_is_asked_for(features):
    assert {name for name, scenario in SCENARIOS.items() if scenario.scaling} == {*SCALINGS.values()}
    assert not {*evaluate(features, predictors=["line"]).scenarios()} & {*SCALINGS.values()}


def test_approaches_the_default_and_a_baseline_stand_side_by_side_and_approach_2_carries_over(features):
    table = evaluate(features, [SCALINGS["hardware"]]).table().set_index("predictor")
    assert {*table.index} == {"gpu-specs", "proxy-times", "default", "flops-ratio"}
    assert (table["n"] == (features["kind"] == "target").sum()).all()
    # approach 1 does not see the proxies, and no specification says 8 times as slow; approach 2 takes half of what
    # each of the three CNNs differs from all by
    assert table.loc["proxy-times", "mape"] < 0.45 < table.loc["gpu-specs", "mape"]


def test_the_default_is_judged_on_the_host_that_a_row_names(features):
    rows = features[features["cnn"].isin(["lenet5"])]
    slow, fast = (
        evaluate(
            pd.concat([rows.assign(host_cnn_ms=ms), features[features["kind"] == "proxy"]]),
            [SCALINGS["problem"]],
            ["default"],
        ).predictions
        for ms in (40.0, 4.0)
    )
    assert np.median(slow["predicted"] / fast["predicted"]) > 2


def test_a_scaling_is_answered_as_by_itself_beside_another_that_trains_on_the_same_rows():
    rows = _rows()
    three = rows[rows["batch_size"].isin([16, 64, 256])].reset_index(drop=True)
    names = [SCALINGS["problem"], SCALINGS["both"]]
    together = evaluate(three, names, ["proxy-times"]).predictions
    apart = pd.concat(
        [evaluate(three, [name], ["proxy-times"]).predictions for name in names], ignore_index=True
    )
    pd.testing.assert_frame_equal(together, apart)
