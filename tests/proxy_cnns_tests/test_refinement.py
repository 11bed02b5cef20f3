"""Where batch sizes are added, and where not."""

import pytest
from small_subjects import OPERATORS, TARGETS, configurations_of

from proxy_cnns.jobs import refined
from proxy_cnns.rows_file import Run, configuration_key

SIZES = (4, 16, 64, 256)


def sizes_added(time_ms, subjects=TARGETS[:1], sizes=SIZES):
    configurations = configurations_of(subjects, sizes)
    run = Run(
        rows={configuration_key(each): {"gpu_time_ms": time_ms(each.batch_size)} for each in configurations}
    )
    return [each.batch_size for each in refined(configurations, run)]


@pytest.mark.parametrize("power", [0.3, 1.0, 1.2])
def test_a_power_law_needs_no_more_batch_sizes(power):
    assert sizes_added(lambda batch_size: batch_size**power) == []


def test_a_jump_is_enclosed_from_both_sides():
    assert sizes_added(lambda batch_size: batch_size * (0.7 if batch_size >= 64 else 1.0)) == [8, 32, 128]


def test_neighbours_are_not_divided_for_ever():
    assert sizes_added(lambda batch_size: 1 + batch_size % 2, sizes=(10, 11, 12)) == []


def test_a_bend_of_less_than_three_per_cent_is_left():
    assert sizes_added(lambda batch_size: batch_size * (1.02 if batch_size == 16 else 1.0)) == []


def test_operators_are_not_refined():
    assert sizes_added(lambda batch_size: 1 + batch_size % 3, subjects=OPERATORS) == []


def test_wall_time_counts_where_there_is_no_gpu_time():
    configurations = configurations_of(TARGETS[:1], SIZES)
    rows = {
        configuration_key(each): {"iteration_time_ms": "7" if each.batch_size == 16 else "1"}
        for each in configurations
    }
    assert refined(configurations, Run(rows=rows)) != []
