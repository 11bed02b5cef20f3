"""Options as they are declared: what is typed is checked, and nothing is turned into something else."""

from dataclasses import dataclass

import pytest

from predictor.answers.options import option, options_of
from predictor.errors import SchemaError


@dataclass
class Declared:
    share: float = option(5.0, "A share.", "number", answers=("predict",))
    extra: float = option(0.0, "An extra.", "number", answers=("predict",))


OPTIONS = options_of(Declared)


@pytest.mark.parametrize("zero", ["0", 0, 0.0, "0.0", "-0.0"])
def test_zero_is_never_turned_into_another_default(zero):
    with pytest.raises(SchemaError, match=r"share .* is not a positive number"):
        OPTIONS["share"].checked(zero)
    assert str(OPTIONS["extra"].checked(zero)) == "0.0"
    with pytest.raises(
        SchemaError, match=r"extra -1 is not a positive number. Give 0, or one from 1e-06 to 1e\+12;"
    ):
        OPTIONS["extra"].checked(-1)


def test_an_empty_cell_is_the_default_and_the_default_may_be_written_out():
    assert [OPTIONS["share"].checked(value) for value in (None, " ", "5.0", 5)] == [5.0] * 4
