"""Coded columns: the words back from the codes, and the combinations that rows have."""

import numpy as np
import pytest

from predictor.answers import coded
from predictor.answers.coded import Coded, distinct


def test_codes_give_the_words_back():
    column = Coded.of(["b", "a", "b", ""])
    assert [column.words[code] for code in column.codes] == ["b", "a", "b", ""]


@pytest.mark.parametrize("sparse", [0, 4])
def test_combinations_are_those_of_numpy(monkeypatch, sparse):
    monkeypatch.setattr(coded, "_SPARSE", sparse)  # 0: keys are always sorted, 4: mostly counted
    draw = np.random.default_rng(0)
    columns = [Coded(list("abcdef")[:n], draw.integers(n, size=500)) for n in (3, 1, 6, 4)]
    combination_of_row, codes = distinct(columns)
    rows = np.stack([column.codes for column in columns])
    assert (codes[:, combination_of_row] == rows).all()
    assert (codes == np.unique(rows, axis=1)).all()


def test_no_rows_have_no_combinations():
    combination_of_row, codes = distinct([Coded.of([]), Coded.blank(0)])
    assert (combination_of_row.shape, codes.shape) == ((0,), (2, 0))
