"""`epochcast check`, `diff` and `fit-memory` as a user meets them: sentences, Markdown, JSON, code, revisions."""

import json
import subprocess

import pytest

import epochcast as face

CHECK = ("check", "resnet50", "-g", "T4", "-b", "64")
DIFF = ("diff", "vgg16", "vgg16_bn", "-g", "T4", "-b", "64")
FIT = ("fit-memory", "resnet50", "-g", "L4", "-b", "256", "--data-set", "imagenet", "--memory-gib", "8")
CNN = """from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, {width}, 3), nn.ReLU(), nn.Flatten(), nn.Linear({width} * 900, 10))
"""


def test_json_and_markdown_of_diff_and_check_hold_what_python_answers(epochcast):
    [change] = face.diff("vgg16", "vgg16_bn", "T4", 64)
    [row] = json.loads(epochcast(*DIFF, "--json").out)["rows"]
    assert (row["ratio"], row["sentence"]) == (pytest.approx(change.ratio), change.sentence)
    assert f"| {100 * (change.ratio - 1):+.1f} %" in epochcast(*DIFF, "--markdown").out
    checkup = face.check("resnet50", "T4", 64, iteration_time_ms=5000)
    answer = json.loads(epochcast(*CHECK, "--iteration-time-ms", "5000", "--json").out)
    assert (answer["verdict"], answer["sentence"]) == ("slow", checkup.sentence)
    assert [row["name"] for row in answer["rows"]] == [cause.name for cause in checkup.causes]


def test_two_revisions_of_a_repository_are_compared(epochcast, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)

    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True
        )

    git("init", "-q")
    for width in (8, 16):
        (tmp_path / "net.py").write_text(CNN.format(width=width))
        git("add", "net.py")
        git("commit", "-qm", str(width))
    run = epochcast("diff", "HEAD~1..HEAD", "net.py:make@32", "-g", "T4", "-b", "64")
    assert (run.code, "conv2d_3x32x32_16x30x30" in run.out) == (0, True)


@pytest.fixture(scope="module")
def plans():
    return face.fit_memory("resnet50", "L4", 256, memory_gib=8, data_set="imagenet")


def test_the_plan_is_a_sentence_with_a_line_for_each_concession_and_its_code_and_json(epochcast, plans):
    assert " ".join(epochcast(*FIT).out.split()) == " ".join([plans.sentence, *plans.lines()])
    assert epochcast(*FIT, "--code").out == plans.best.code + "\n"
    answer = json.loads(epochcast(*FIT, "--json").out)
    [row] = answer["rows"]
    assert (answer["sentence"], row["code"]) == (plans.sentence, plans.best.code)
    assert set(answer["without"]) == set(plans.without)
