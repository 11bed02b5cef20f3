"""The speed that a training's log tells: the forms of well-known programs, and what none of them is."""

import json
from pathlib import Path

import pytest

from predictor.errors import SchemaError
from predictor.measurements.training_log import read_training_log

LOGS = json.loads(Path(__file__).with_name("training_logs.json").read_text("utf-8"))
"""Text, and the name, value and waiting share that it tells, by the form of the log."""


@pytest.mark.parametrize("form", LOGS)
def test_each_form_tells_the_median_without_its_first_reading(form, tmp_path):
    text, name, value, waiting = LOGS[form]
    path = tmp_path / "train.log"
    path.write_text(text)
    speed = read_training_log(path)
    assert (speed.name, speed.value) == (name, pytest.approx(value))
    assert speed.waiting_share == (None if waiting is None else pytest.approx(waiting))


def test_a_file_without_a_speed_is_refused_with_the_forms_that_are_known(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("loss 2.3\nloss 2.2\n")
    with pytest.raises(SchemaError, match=r"timm.*progress bar.*Lightning"):
        read_training_log(path)
