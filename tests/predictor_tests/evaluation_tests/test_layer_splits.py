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
from predictor.operators.operators import operators_of

OF_LAYERS = [name for name, scenario in SCENARIOS.items() if scenario.answer == "gpu_time_ms"]
CNNS = ("resnet18", "resnet34", "vgg11_bn", "squeezenet1_1")
SIZES = (16, 64, 256)
FINE = (2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 90, 128)


@pytest.fixture(scope="module")
def table(made_up_gpu):
    """Operators of four CNNs, of which squeezenet's are of the quick library; one CNN on a fine grid."""
    quick = list(operators_of(zoo_cnn("squeezenet1_1")))
    others = [o for o in dict.fromkeys(o for c in CNNS for o in operators_of(zoo_cnn(c))) if o not in quick]
    rows = made_up_gpu.operator_rows(quick, SIZES, notes="library=quick")
    rows += made_up_gpu.operator_rows(others, SIZES)
    rows += made_up_gpu.target_rows(CNNS, SIZES) + made_up_gpu.target_rows(["resnet18"], FINE)
    return feature_table(pd.DataFrame(rows)).assign(source="h200")


@pytest.fixture(scope="module")
def two_cards(table, made_up_gpu):
    """The same measurements on an H100, where a third of the operators was measured and two CNNs."""
    there = table.assign(gpu="NVIDIA H100 80GB HBM3", source="h100")
    kept = ((there["kind"] == "operator") & (there.index % 3 == 0)) | there["cnn"].isin(CNNS[:2])
    return pd.concat([table, there[kept]], ignore_index=True)


def _names(table, rows):
    chosen = table.iloc[rows]
    return set(chosen.loc[chosen["kind"] == "operator", "cnn"])


def test_of_an_unseen_card_nothing_is_known_and_all_of_its_chips_other_card(two_cards):
    for fold in SCENARIOS["same-chip-specs"].folds(two_cards):
        known, tested = two_cards.iloc[fold.train], two_cards.iloc[fold.test]
        assert set(tested["gpu"]) == {fold.name}
        assert set(known["gpu"]) == {"NVIDIA H200", "NVIDIA H100 80GB HBM3"} - {fold.name}
        assert {"operator", "target"} == set(known["kind"])


def test_a_chip_of_which_one_card_was_measured_is_no_question_of_the_same_chip(table):
    with pytest.raises(DataError, match="give no fold"):
        SCENARIOS["same-chip-specs"].folds(table)


def test_on_a_card_of_a_known_chip_the_unseen_cnn_ran_nowhere_and_operators_of_both_cards_are_known(
    two_cards,
):
    folds = SCENARIOS["same-chip-quick"].folds(two_cards)
    assert {fold.name for fold in folds} == {f"NVIDIA H100 80GB HBM3 | {cnn}" for cnn in CNNS[:2]}
    for fold in folds:
        known, tested = two_cards.iloc[fold.train], two_cards.iloc[fold.test]
        assert set(tested["source"]) == {"h100"}
        assert set(known.loc[known["kind"] == "operator", "source"]) == {"h200", "h100"}
        assert set(known.loc[known["kind"] == "target", "source"]) == {"h200"}
        assert not set(tested["cnn"]) & set(known.loc[known["kind"] == "target", "cnn"])


@pytest.mark.parametrize("name", [name for name in OF_LAYERS if not name.startswith("same-chip")])
def test_only_whole_cnns_are_tested_and_none_is_known(name, table):
    for fold in SCENARIOS[name].folds(table):
        tested = table.iloc[fold.test]
        assert set(tested["kind"]) == {"target"}
        if name.startswith("unseen-cnn"):
            assert not set(tested["cnn"]) & set(table.iloc[fold.train]["cnn"])


def test_with_layers_measured_every_operator_is_known(table):
    for fold in SCENARIOS["unseen-cnn-layers-measured"].folds(table):
        assert _names(table, fold.train) == set(table.loc[table["kind"] == "operator", "cnn"])


def test_a_cnn_whose_layers_were_not_measured_is_not_asked_about_as_if_they_were(table):
    own = {o.name for o in operators_of(zoo_cnn("vgg11_bn"))}
    lesser = table[~((table["kind"] == "operator") & table["cnn"].isin(own))].reset_index(drop=True)
    folds = SCENARIOS["unseen-cnn-layers-measured"].folds(lesser)
    assert {fold.name for fold in folds} == {*CNNS} - {"vgg11_bn"}


def test_operators_of_the_unseen_cnn_alone_are_hidden(table):
    for fold in SCENARIOS["unseen-cnn-quick-preset"].folds(table):
        own = {o.name for o in operators_of(zoo_cnn(fold.name))}
        others = {o.name for cnn in CNNS if cnn != fold.name for o in operators_of(zoo_cnn(cnn))}
        assert not _names(table, fold.train) & (own - others)


def test_the_quick_preset_knows_nothing_else(table):
    quick = {o.name for o in operators_of(zoo_cnn("squeezenet1_1"))}
    for fold in SCENARIOS["unseen-cnn-quick-preset"].folds(table):
        assert _names(table, fold.train) <= quick


def test_a_mode_in_which_the_preset_was_not_measured_is_not_asked_about(table):
    other = table[table["notes"].astype(str) != "library=quick"].assign(precision="amp_bf16")
    both = pd.concat([table, other], ignore_index=True)
    folds = SCENARIOS["unseen-cnn-quick-preset"].folds(both)
    assert {precision for fold in folds for precision in both.iloc[fold.test]["precision"]} == {"tf32"}


def test_on_a_fine_grid_five_batch_sizes_are_known_among_them_the_ends(table):
    (fold,) = SCENARIOS["problem-scaling-fine-grid"].folds(table)
    known = table.iloc[fold.anchors]
    assert known["batch_size"].nunique() == N_KNOWN_BATCH_SIZES
    assert {2, 256} <= set(known["batch_size"])
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


@pytest.mark.parametrize("name", OF_LAYERS)
def test_a_table_without_single_layers_is_refused(name, table):
    with pytest.raises(DataError, match="no single layers"):
        SCENARIOS[name].folds(table[table["kind"] == "target"].reset_index(drop=True))


def test_a_preset_that_no_row_names_is_refused(table):
    with pytest.raises(DataError, match="library=quick"):
        SCENARIOS["unseen-cnn-quick-preset"].folds(table.drop(columns="notes"))


def test_without_gpu_times_there_is_nothing_to_add_up(table):
    with pytest.raises(DataError, match="gpu_time_ms"):
        SCENARIOS["unseen-cnn-layers-measured"].folds(table.drop(columns="gpu_time_ms"))


def test_without_a_long_series_there_is_no_fine_grid(table):
    with pytest.raises(DataError, match="12 batch sizes"):
        SCENARIOS["problem-scaling-fine-grid"].folds(table[table["batch_size"] >= 16].reset_index(drop=True))
