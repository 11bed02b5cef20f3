"""`epochcast check` as a user meets it: a sentence, its causes, JSON, logs."""

import json

import epochcast as face

ASKED = ("check", "resnet50", "-g", "T4", "-b", "64")


def test_a_slow_training_is_told_with_its_causes_and_what_mending_saves(epochcast):
    run = epochcast(
        *ASKED, "--images-per-s", "30", "--waiting-share", "0.7", "--data-set", "imagenet", "--epochs", "90"
    )
    assert run.code == 0
    assert "times normal, too slow" in run.out.splitlines()[0]
    assert "waits for its" in run.out
    assert "mended saves" in run.out


def test_json_holds_what_python_answers(epochcast):
    checkup = face.check("resnet50", "T4", 64, iteration_time_ms=5000)
    answer = json.loads(epochcast(*ASKED, "--iteration-time-ms", "5000", "--json").out)
    assert (answer["verdict"], answer["sentence"]) == ("slow", checkup.sentence)
    assert [row["name"] for row in answer["rows"]] == [cause.name for cause in checkup.causes]


def test_a_log_tells_the_speed_and_the_waits(epochcast, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("Epoch: [0]  [ 10/99]  time: 5.0000  data: 4.0000  max mem: 3000\n")
    assert "waits for its loader in 80 %" in epochcast(*ASKED, "--log", str(log)).out
