"""Curves over batch sizes: linear in between, flat beyond, and no batch size looked at that does not matter."""

import numpy as np
from case_tables import each_row

from predictor.models.layer_times.interpolation import between, filled, sides
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import DeviceMode
from predictor.operators.operators import Operator

SIZES = np.array([4.0, 16.0, 64.0, 256.0])
VALUES = np.array([[1.0, 2.0, 4.0, 8.0], [np.nan, 5.0, np.nan, 7.0], [np.nan] * 4])


@each_row
def test_a_curve_joins_the_batch_sizes_that_are_known(row, sizes, values, beyond):
    at, operators = np.log(sizes), [Operator("conv2d", in_channels=1 + i) for i in range(3)]
    assert list(between(np.log(SIZES), at, filled(np.log(SIZES), VALUES[[row]]))[0].round(12)) == values
    library = OperatorLibrary(DeviceMode("NVIDIA H200"), operators, SIZES, VALUES, np.zeros(3))
    assert list(library._beyond(np.array([row]), at)[0]) == beyond


@each_row
def test_only_the_batch_sizes_around_those_asked_about_are_needed(batch_sizes, positions):
    assert list(np.unique(sides(np.log(SIZES), np.log(batch_sizes)))) == positions


def test_what_is_needed_answers_as_all_batch_sizes_do():
    at, log_sizes, values = np.log(SIZES), np.log(np.array([1.0, 4.0, 9.0, 64.0, 900.0])), VALUES[:1]
    for subset in (log_sizes, *log_sizes[:, None]):
        used = np.unique(sides(at, subset))
        assert (between(at[used], subset, values[:, used]) == between(at, subset, values)).all()
