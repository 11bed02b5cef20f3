"""`epochcast check` as a user meets it: a sentence, its causes, JSON, logs."""

import json

import epochcast as face

ASKED = ("check", "resnet50", "-g", "T4", "-b", "64")


def test_json_holds_what_python_answers(epochcast):
    checkup = face.check("resnet50", "T4", 64, iteration_time_ms=5000)
    answer = json.loads(epochcast(*ASKED, "--iteration-time-ms", "5000", "--json").out)
    assert (answer["verdict"], answer["sentence"]) == ("slow", checkup.sentence)
    assert [row["name"] for row in answer["rows"]] == [cause.name for cause in checkup.causes]
