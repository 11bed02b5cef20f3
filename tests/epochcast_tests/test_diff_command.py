"""`epochcast diff` as a user meets it: tables, Markdown, JSON, exit codes, revisions of a repository."""

import json
import subprocess

import pytest

import epochcast as face

ASKED = ("diff", "vgg16", "vgg16_bn", "-g", "T4", "-b", "64")
CNN = """from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, {width}, 3), nn.ReLU(), nn.Flatten(), nn.Linear({width} * 900, 10))
"""


def test_json_and_markdown_hold_what_python_answers(epochcast):
    [change] = face.diff("vgg16", "vgg16_bn", "T4", 64)
    [row] = json.loads(epochcast(*ASKED, "--json").out)["rows"]
    assert (row["ratio"], row["sentence"]) == (pytest.approx(change.ratio), change.sentence)
    assert f"| {100 * (change.ratio - 1):+.1f} %" in epochcast(*ASKED, "--markdown").out


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
