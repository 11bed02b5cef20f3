"""Tests that no scenario lets a predictor see what it is tested on."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

from predictor.errors import DataError
from predictor.evaluation.scenarios import SCENARIOS, find_scenario
from predictor.evaluation.splits import series_of
from predictor.measurements.groups import chips_of

# Those on measured layers need a table that has them: test_layer_splits.
RUNNABLE = [name for name, scenario in SCENARIOS.items() if scenario.answer != "gpu_time_ms"]
OF_UNSEEN_GPU = [name for name in RUNNABLE if name.startswith(("unseen-gpu", "problem-and-hardware"))]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "evaluation.md"


def _for(name: str, features: pd.DataFrame) -> pd.DataFrame:
    sources = SCENARIOS[name].sources or ("profet",)  # a scaling tests every source
    return features.assign(source=features["source"].replace("profet", sources[0]))


def _folds(name: str, features: pd.DataFrame):
    table = _for(name, features)
    return [(fold, table) for fold in SCENARIOS[name].folds(table, seed=3)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_asks_a_question_and_is_described(name):
    assert SCENARIOS[name].question.endswith("?")
    assert f"`{name}`" in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RUNNABLE)
def test_folds_test_whole_cnns_apart_from_what_is_known_the_same_for_a_seed(name, features_with_operators):
    folds, again = _folds(name, features_with_operators), _folds(name, features_with_operators)
    for (fold, table), (repeated, _) in zip(folds, again, strict=True):
        assert not set(fold.test) & (set(fold.train) | set(fold.anchors)), fold.name
        assert set(table.iloc[fold.test]["kind"]) == {"target"}
        assert fold.name == repeated.name
        assert np.array_equal(fold.train, repeated.train)
    tested = [row for fold, _ in folds for row in fold.test]
    assert len(tested) == len(set(tested)) or name in ("unseen-cnn-run-elsewhere", "epoch-time")


@each_row
def test_the_tested_cnn_is_never_fitted_on(name, features_with_operators):
    for fold, table in _folds(name, features_with_operators):
        assert not set(table.iloc[fold.test]["cnn"]) & set(table.iloc[fold.train]["cnn"]), fold.name


@pytest.mark.parametrize("name", OF_UNSEEN_GPU)
def test_nothing_of_the_tested_chip_is_fitted_on_or_known(name, features_with_operators):
    for fold, table in _folds(name, features_with_operators):
        chips = chips_of(table)
        fitted = chips[np.concatenate([fold.train, fold.anchors])]
        assert not set(chips[fold.test]) & set(fitted), fold.name


@pytest.mark.parametrize("name", ["unseen-gpu-specs", "unseen-gpu-anchored"])
def test_cards_with_the_same_chip_are_held_out_together(name, features):
    sister = features[features["gpu"] == "Tesla T4"].assign(gpu="GeForce RTX 2080 Super")
    for fold, table in _folds(name, pd.concat([features, sister], ignore_index=True)):
        gpus = set(table.iloc[fold.train]["gpu"]) & {"Tesla T4", "GeForce RTX 2080 Super"}
        assert len(gpus) in (0, 2)


def test_one_run_is_the_one_of_the_tested_series_nearest_to_batch_64(features):
    for fold, table in _folds("unseen-cnn-one-run", features):
        assert table.iloc[fold.anchors]["batch_size"].tolist() == [64]
        assert len(set(series_of(table)[np.concatenate([fold.anchors, fold.test])])) == 1


def test_anchors_are_runs_of_the_tested_cnn_on_every_other_gpu_or_one_run_elsewhere(features):
    for name, n_gpus in (("unseen-gpu-anchored", 3), ("unseen-cnn-run-elsewhere", 1)):
        for fold, table in _folds(name, features):
            test, anchors = table.iloc[fold.test], table.iloc[fold.anchors]
            assert set(anchors["cnn"]) == set(test["cnn"])
            assert anchors["gpu"].nunique() == n_gpus
            assert not set(anchors["gpu"]) & set(test["gpu"])
            assert n_gpus > 1 or len(anchors) == 1


def test_an_unseen_batch_size_is_in_no_fit_of_any_cnn(features):
    (fold,) = SCENARIOS["unseen-batch-size"].folds(features)
    assert set(features.iloc[fold.test]["batch_size"]) == {64}
    assert 64 not in set(features.iloc[fold.train]["batch_size"])


@pytest.mark.parametrize("name", [name for name in RUNNABLE if not SCENARIOS[name].scaling])
def test_rows_of_other_sources_are_fitted_on_but_for_what_is_left_out(name, features):
    own = features.assign(source="my lab", cnn="another/" + features["cnn"], gpu="GeForce GTX 1080 Ti")
    table = pd.concat([_for(name, features), own], ignore_index=True)
    for fold in SCENARIOS[name].folds(table):
        assert set(table.iloc[fold.test]["source"]) != {"my lab"}
        if name != "epoch-time":  # a column of some sources alone
            assert "my lab" in set(table.iloc[fold.train]["source"])


def test_rows_that_are_kept_apart_are_in_no_fit(features):
    table = features.assign(held_out=features["batch_size"] == 16)
    for fold in SCENARIOS["unseen-cnn"].folds(table):
        assert 16 not in set(table.iloc[fold.train]["batch_size"])


def test_unseen_cnn_tests_every_row_and_problem_scaling_each_interior_batch_size_once(features):
    interior = np.flatnonzero(features["batch_size"].isin((32, 64, 128)))
    for name, rows in (("unseen-cnn", range(len(features))), ("problem-scaling", interior)):
        assert sorted(row for fold, _ in _folds(name, features) for row in fold.test) == list(rows)


@each_row
def test_the_held_out_batch_size_of_a_cnn_is_in_no_fit(name, keys, features):
    for fold, table in _folds(name, features):
        rows = fold.train if name == "problem-scaling" else np.concatenate([fold.train, fold.anchors])
        train, test = (
            set(map(tuple, table.iloc[positions][keys].to_numpy())) for positions in (rows, fold.test)
        )
        assert not train & test


def test_epoch_time_holds_out_each_gpu_and_each_cnn(features):
    for fold, table in _folds("epoch-time", features):
        column = fold.name.split(" ")[0]
        assert not set(table.iloc[fold.test][column]) & set(table.iloc[fold.train][column])


def test_epochs_that_were_not_timed_are_left_out(features):
    features.loc[0, "epoch_time_s"] = np.nan
    folds = SCENARIOS["epoch-time"].folds(features)
    assert not any(0 in np.concatenate([fold.train, fold.test]) for fold in folds)


@each_row
def test_a_published_table_takes_part_in_its_own_scenarios_and_one_of_ones_own_in_every(
    source, scenario, takes_part, features
):
    rows = SCENARIOS[scenario].rows(features.assign(source=source))
    assert rows.size == len(features) * takes_part


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        *(
            (
                "epoch-time",
                lambda rows, column=column: rows.drop(columns=column),
                r"epoch-time: .* give no fold",
            )
            for column in ("epoch_time_s", "samples_per_epoch")
        ),
        (
            "unseen-cnn",
            lambda rows: rows[rows["cnn"] == "profet/Cnn0"].reset_index(drop=True),
            r"unseen-cnn: the table's 20 rows of CNNs give no fold",
        ),
        ("unseen-cpu", lambda rows: rows, r"no scenario is called 'unseen-cpu'. Nearest: 'unseen-gpu'"),
    ],
)
def test_what_cannot_be_split_is_refused_with_the_reason(name, change, words, features):
    with pytest.raises(DataError, match=words):
        find_scenario(name).folds(change(features))
