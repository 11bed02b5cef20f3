"""Arguments of a wrong type from Python: the message names the argument, the value and what it takes.

wrong_arguments.json has the calls: function, arguments, options, and the words of its error as a regular expression.
"""

import json
from pathlib import Path

import pytest

import epochcast
import epochcast as face
from predictor.answers.options import options_of
from predictor.answers.question import Plan, Question
from predictor.errors import EpochcastError

CALLS = json.loads(Path(__file__).with_name("wrong_arguments.json").read_text("utf-8"))


@pytest.mark.parametrize(("function", "arguments", "options", "message"), CALLS)
def test_an_argument_of_a_wrong_type_is_named_with_what_it_takes(function, arguments, options, message):
    with pytest.raises(EpochcastError, match=message):
        getattr(epochcast, function)(*arguments, **options)


WRONG = {"whole": "-3", "number": "-1", "hours": "soon", "usd": "much", "choice": "luck"}
KNOWN = {
    name: option
    for name, option in {**options_of(Question), **options_of(Plan)}.items()
    if option.kind in WRONG
}


def test_a_wrong_value_is_refused_by_its_flag_in_python_by_its_name_and_in_a_table_by_its_column(
    epochcast, tmp_path
):
    wrong = {}
    for name, option in KNOWN.items():
        value = WRONG[option.kind]
        run = epochcast("compare", "resnet18", "-g", "T4", "--samples", "100", option.flags[0], value)
        if run.code != 2 or not run.err.startswith(f"Error: {option.flags[0]} "):
            wrong[name] = run.err
    assert wrong == {}
    for name, option in KNOWN.items():
        with pytest.raises(EpochcastError, match=f"^{name} "):
            face.compare("resnet18", "T4", 16, **{"samples": 100, name: WRONG[option.kind]})
    rows = tmp_path / "rows.csv"
    rows.write_text("cnn,gpu,batch_size,n_gpus,nodes\nresnet18,H200,12,3,2\n")
    epochcast("predict", "--rows", rows, "--out", tmp_path / "out.csv")
    assert "n_gpus 3 cannot be spread" in (tmp_path / "out.csv").read_text()
