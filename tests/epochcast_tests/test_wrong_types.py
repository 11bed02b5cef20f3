"""Arguments of a wrong type from Python: the message names the argument, the value and what it takes.

wrong_arguments.json has the calls: function, arguments, options, and the words of its error as a regular expression.
"""

import json
from pathlib import Path

import pytest

import epochcast
from predictor.errors import EpochcastError

CALLS = json.loads(Path(__file__).with_name("wrong_arguments.json").read_text("utf-8"))


@pytest.mark.parametrize(("function", "arguments", "options", "message"), CALLS)
def test_an_argument_of_a_wrong_type_is_named_with_what_it_takes(function, arguments, options, message):
    with pytest.raises(EpochcastError, match=message):
        getattr(epochcast, function)(*arguments, **options)
