"""Scenarios on measured layers: what is hidden is hidden, and a predictor that adds up is right."""

import numpy as np
import pandas as pd
import pytest

from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.evaluation.run import evaluate
from predictor.evaluation.scenarios import SCENARIOS
from predictor.evaluation.splits import N_KNOWN_BATCH_SIZES
from predictor.measurements.features import feature_table
from predictor.models.layer_times.estimator import LayerTimes
from predictor.operators.operators import alone, operators_of

OF_LAYERS = [name for name, scenario in SCENARIOS.items() if scenario.answer == "gpu_time_ms"]
CNNS = ("resnet18", "resnet34", "vgg11_bn", "squeezenet1_1")
SIZES = (16, 64, 256)
FINE = (2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 90, 128)


@pytest.fixture(scope="module")
def table(made_up_gpu):
    """Operators of four CNNs, of which squeezenet's are of the quick library; one CNN on a fine grid."""
    quick = list(dict.fromkeys(map(alone, operators_of(zoo_cnn("squeezenet1_1")))))
    every = dict.fromkeys(alone(o) for c in CNNS for o in operators_of(zoo_cnn(c)))
    slow = [o for o in every if o not in quick]
    rows = made_up_gpu.operator_rows(quick, SIZES, notes="library=quick")
    rows += made_up_gpu.operator_rows(slow, SIZES)
    rows += made_up_gpu.target_rows(CNNS, SIZES) + made_up_gpu.target_rows(["resnet18"], FINE)
    return feature_table(pd.DataFrame(rows)).assign(source="h200")


@pytest.fixture(scope="module")
def two_cards(table, made_up_gpu):
    """The same measurements on an H100, where a third of the operators was measured and two CNNs."""
    on_h100 = table.assign(gpu="NVIDIA H100 80GB HBM3", source="h100")
    kept = ((on_h100["kind"] == "operator") & (on_h100.index % 3 == 0)) | on_h100["cnn"].isin(CNNS[:2])
    return pd.concat([table, on_h100[kept]], ignore_index=True)


def _names(table, rows):
    chosen = table.iloc[rows]
    return set(chosen.loc[chosen["kind"] == "operator", "cnn"])


def test_of_an_unseen_card_nothing_is_known_and_all_of_its_chips_other_card(two_cards):
    for fold in SCENARIOS["same-chip-specs"].folds(two_cards):
        train, tested = two_cards.iloc[fold.train], two_cards.iloc[fold.test]
        assert set(tested["gpu"]) == {fold.name}
        assert set(train["gpu"]) == {"NVIDIA H200", "NVIDIA H100 80GB HBM3"} - {fold.name}
        assert {"operator", "target"} == set(train["kind"])


def test_on_a_card_of_a_known_chip_the_unseen_cnn_ran_nowhere_and_both_cards_operators_are_known(two_cards):
    folds = SCENARIOS["same-chip-quick"].folds(two_cards)
    assert {fold.name for fold in folds} == {f"NVIDIA H100 80GB HBM3 | {cnn}" for cnn in CNNS[:2]}
    for fold in folds:
        train, tested = two_cards.iloc[fold.train], two_cards.iloc[fold.test]
        assert set(tested["source"]) == {"h100"}
        assert set(train.loc[train["kind"] == "operator", "source"]) == {"h200", "h100"}
        assert set(train.loc[train["kind"] == "target", "source"]) == {"h200"}
        assert not set(tested["cnn"]) & set(train.loc[train["kind"] == "target", "cnn"])


@pytest.mark.parametrize("name", [name for name in OF_LAYERS if not name.startswith("same-chip")])
def test_only_whole_cnns_are_tested_and_none_is_known(name, table):
    for fold in SCENARIOS[name].folds(table):
        tested = table.iloc[fold.test]
        assert set(tested["kind"]) == {"target"}
        if name.startswith("unseen-cnn"):
            assert not set(tested["cnn"]) & set(table.iloc[fold.train]["cnn"])


def test_with_layers_measured_every_operator_is_known_and_other_cnns_are_not_asked_about(table):
    scenario = SCENARIOS["unseen-cnn-layers-measured"]
    for fold in scenario.folds(table):
        assert _names(table, fold.train) == set(table.loc[table["kind"] == "operator", "cnn"])
    own = {o.name for o in operators_of(zoo_cnn("vgg11_bn"))}
    lesser = table[~((table["kind"] == "operator") & table["cnn"].isin(own))].reset_index(drop=True)
    assert {fold.name for fold in scenario.folds(lesser)} == {*CNNS} - {"vgg11_bn"}


def test_operators_of_the_unseen_cnn_alone_are_hidden_and_the_quick_preset_knows_nothing_else(table):
    own = {cnn: {alone(o).name for o in operators_of(zoo_cnn(cnn))} for cnn in CNNS}
    for fold in SCENARIOS["unseen-cnn-quick-preset"].folds(table):
        elsewhere = set().union(*(names for cnn, names in own.items() if cnn != fold.name))
        operators = _names(table, fold.train)
        assert not operators & (own[fold.name] - elsewhere)
        assert operators <= own["squeezenet1_1"]


def test_a_mode_in_which_the_preset_was_not_measured_is_not_asked_about(table):
    in_bf16 = table[table["notes"].astype(str) != "library=quick"].assign(precision="amp_bf16")
    both = pd.concat([table, in_bf16], ignore_index=True)
    folds = SCENARIOS["unseen-cnn-quick-preset"].folds(both)
    assert {precision for fold in folds for precision in both.iloc[fold.test]["precision"]} == {"tf32"}


def test_on_a_fine_grid_five_batch_sizes_are_known_among_them_the_ends(table):
    (fold,) = SCENARIOS["problem-scaling-fine-grid"].folds(table)
    anchors = table.iloc[fold.anchors]
    assert anchors["batch_size"].nunique() == N_KNOWN_BATCH_SIZES
    assert {2, 256} <= set(anchors["batch_size"])
    assert set(table.iloc[fold.test]["cnn"]) == {"resnet18"}


def test_what_adds_up_is_predicted_and_scored_on_gpu_time(table):
    result = evaluate(
        table,
        ["unseen-cnn-layers-measured", "problem-scaling-fine-grid"],
        {"layer-times": LayerTimes(trees=False)},
    )
    errors = result.predictions["predicted"] / result.predictions["measured"] - 1
    assert np.abs(errors).max() < 0.03
    assert result.not_applicable.empty
    truth = table.loc[result.predictions["row"], "gpu_time_ms"].to_numpy()
    np.testing.assert_array_equal(result.predictions["measured"], truth)


def test_interpolation_and_the_line_take_part_on_a_fine_grid(table):
    result = evaluate(table, ["problem-scaling-fine-grid"])
    assert set(result.predictions["predictor"]) == {"layer-times", "interpolation", "line"}


@pytest.mark.parametrize(
    ("names", "rows", "words"),
    [
        (OF_LAYERS, lambda table: table[table["kind"] == "target"], "no single layers"),
        (["unseen-cnn-quick-preset"], lambda table: table.drop(columns="notes"), "library=quick"),
        (["unseen-cnn-layers-measured"], lambda table: table.drop(columns="gpu_time_ms"), "gpu_time_ms"),
        (["problem-scaling-fine-grid"], lambda table: table[table["batch_size"] >= 16], "12 batch sizes"),
        (["same-chip-specs"], lambda table: table, "give no fold"),  # one card of the chip was measured
    ],
)
def test_a_table_that_lacks_what_a_scenario_needs_is_refused(names, rows, words, table):
    for name in names:
        with pytest.raises(DataError, match=words):
            SCENARIOS[name].folds(rows(table).reset_index(drop=True))
