"""`epochcast fit-memory` as a user meets it: a sentence, a line without each concession, the code, JSON."""

import json

import epochcast as face

ASKED = ("fit-memory", "resnet50", "-g", "L4", "-b", "256", "--data-set", "imagenet", "--memory-gib", "8")


def test_the_plan_is_a_sentence_and_each_concession_a_line(epochcast):
    plans = face.fit_memory("resnet50", "L4", 256, memory_gib=8, data_set="imagenet")
    output = " ".join(epochcast(*ASKED).out.split())
    assert output == " ".join([plans.sentence, *plans.lines()])


def test_the_code_alone_can_be_written_to_a_file(epochcast):
    plans = face.fit_memory("resnet50", "L4", 256, memory_gib=8, data_set="imagenet")
    assert epochcast(*ASKED, "--code").out == plans.best.code + "\n"


def test_json_holds_what_python_answers(epochcast):
    plans = face.fit_memory("resnet50", "L4", 256, memory_gib=8, data_set="imagenet")
    answer = json.loads(epochcast(*ASKED, "--json").out)
    [row] = answer["rows"]
    assert (answer["sentence"], row["code"]) == (plans.sentence, plans.best.code)
    assert set(answer["without"]) == set(plans.without)
