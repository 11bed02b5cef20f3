"""Tests of the ways to split a feature table."""

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import SchemaError
from predictor.evaluation.splits import (
    Fold,
    SplitTable,
    deal_into_groups,
    interior_rows,
    leave_one_out,
    series_of,
    target_rows,
)


def _series(**batch_sizes: list[int]) -> pd.DataFrame:
    rows = [
        {"gpu": "Tesla T4", "cnn": cnn, "image_size": 32, "batch_size": b}
        for cnn, bs in batch_sizes.items()
        for b in bs
    ]
    return pd.DataFrame(rows)


@each_row
def test_a_fold_refuses_to_test_what_is_known(train, anchors, words):
    with pytest.raises(SchemaError, match=words):
        Fold("x", np.array(train), np.array(anchors, dtype=int), np.array([2, 3]))


def test_target_rows_leave_operators_and_other_sources_out_and_rows_without_a_kind_are_targets(
    features_with_operators,
):
    rows = target_rows(features_with_operators, ("profet",))
    assert set(features_with_operators.iloc[rows]["kind"]) == {"target"}
    assert target_rows(features_with_operators, ("elsewhere",)).size == 0
    assert target_rows(_series(a=[1, 2])).tolist() == [0, 1]


def test_series_differ_in_gpu_cnn_image_size_and_mode_but_not_in_batch_size():
    table = _series(a=[16, 32], b=[16])
    table = pd.concat([table, table.assign(xla=True)], ignore_index=True)
    assert len(set(series_of(table))) == 4


def test_interior_rows_number_the_batch_sizes_between_the_ends_of_each_series():
    table = _series(a=[16, 32, 64, 128], b=[8, 64, 256], c=[16, 32])
    rows = np.arange(len(table))
    held_out = interior_rows(SplitTable(table, rows), rows)
    sizes = {k: table.iloc[rows]["batch_size"].tolist() for k, rows in held_out.items()}
    assert sizes == {1: [32, 64], 2: [64]}


@given(st.lists(st.sets(st.integers(1, 512), min_size=1, max_size=7), min_size=1, max_size=5))
def test_interior_rows_are_every_row_but_the_ends_once(batch_sizes):
    table = _series(**{f"cnn{i}": sorted(bs) for i, bs in enumerate(batch_sizes)})
    rows = np.arange(len(table))
    held_out = interior_rows(SplitTable(table, rows), rows)
    interior = [row for run in held_out.values() for row in run]
    assert len(interior) == len(set(interior)) == sum(max(0, len(bs) - 2) for bs in batch_sizes)


def test_leave_one_out_gives_every_group_once_and_the_rest_beside_it():
    groups, rows = np.array(["b", "a", "b", "c"]), np.array([0, 1, 2])
    splits = [(name, test.tolist(), train.tolist()) for name, test, train in leave_one_out(groups, rows)]
    assert splits == [("a", [1], [0, 2]), ("b", [0, 2], [1])]


@given(st.sets(st.text("abc", min_size=1, max_size=4), min_size=1), st.integers(1, 6), st.integers(0, 9))
def test_dealing_splits_the_names_evenly_and_repeats_with_the_seed(names, n_groups, seed):
    groups = deal_into_groups(sorted(names), n_groups, seed)
    assert sorted(name for group in groups for name in group) == sorted(names)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert groups == deal_into_groups(sorted(names, reverse=True), n_groups, seed)
