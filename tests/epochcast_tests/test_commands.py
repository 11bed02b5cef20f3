"""The commands: what they print, and that they and Python give the same numbers."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import typer
from page_runner import ROOT

import epochcast as face
from epochcast.command import COMMANDS, build_app
from predictor.answers.notes import Priority
from predictor.catalogue.devices import all_gpus, find_gpu, short_name

QUESTION = ("vgg_cifar", "--dataset", "cifar100", "--gpu", "T4", "--gpu", "V100-SXM2-16GB", "-b", "32,64")


def rows_of(run):
    assert run.code == 0, run.err
    return json.loads(run.out)["rows"]


def lines_of_table(out):
    """The table below the verdict."""
    return out.split("\n\n")[1].splitlines()


def test_help_lists_every_command_and_module_with_what_the_command_says_of_itself(epochcast):
    help_text = epochcast("--help").out
    assert all(f" {command} " in help_text for command in COMMANDS)
    commands = typer.main.get_command(build_app()).commands
    assert {name: commands[name].help for name in COMMANDS} == COMMANDS
    shared = {"__init__", "options", "answer_tables"}
    folder = Path(face.__file__).parent / "commands"
    modules = {path.stem for path in folder.glob("*.py")} - shared
    assert modules == {name.replace("-", "_") for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, epochcast):
    run = epochcast(name, "--help")
    assert run.code == 0
    assert "Usage: epochcast" in run.out
    rest = re.search(r"--help-all lists (\d+) more options", run.out)
    full = epochcast(name, "--help-all").out if rest else ""
    options = [set(re.findall(r"^│ [* ]*(--[a-z-]+)", text, re.M)) for text in (run.out, full)]
    # --help is one
    assert not rest or (len(options[0]) == 13 and len(options[1] - options[0]) == int(rest[1]))


def test_predict_prints_a_line_for_each_gpu_and_batch_size_and_names_the_common_the_fastest_and_the_largest(
    epochcast,
):
    header, *lines = lines_of_table(epochcast("predict", *QUESTION).out)
    assert all(name in header for name in ("GPU", "batch", "iteration, ms", "epoch", "US$/epoch", "GiB"))
    assert [line.split()[0] for line in lines[:4]] == ["T4", "64", "V100", "64"]
    _, *lines = lines_of_table(epochcast("predict", "resnet50", "--data-set", "imagenet", "-g", "T4").out)
    rows = rows_of(epochcast("predict", "resnet50", "--data-set", "imagenet", "-g", "T4", "--json"))
    times = [row["iteration_time_ms"] / row["batch_size"] for row in rows]
    assert ["fastest" in line for line in lines[: len(rows)]] == [time == min(times) for time in times]
    assert "largest that fits" in lines[len(rows) - 1]


@pytest.mark.parametrize("command", ["predict", "compare"])
def test_an_answer_is_drawn_where_asked_for(command, epochcast, tmp_path):
    path = tmp_path / "answer.png"
    run = epochcast(command, "resnet18", "--samples", 1000, "-g", "T4", "--plot", path)
    assert (run.code, path.read_bytes()[:4], str(path) in run.err) == (0, b"\x89PNG", True)


def test_compare_begins_with_the_verdict_that_python_gets_and_keeps_the_offer_longest(epochcast, monkeypatch):
    question = ("resnet50", "--data-set", "imagenet", "--epochs", 90, "--budget", 100, "--deadline", "4d")
    verdict = face.compare(
        "resnet50", data_set="imagenet", epochs=90, budget_usd=100.0, deadline_h=96.0
    ).attrs["verdict"]
    first = " ".join(epochcast("compare", *question).out.split("\n\n")[0].split())
    changes = [note.text for note in verdict.hints if note.priority is Priority.CHANGE]
    assert first == " ".join([verdict.sentence, *changes])
    printed = json.loads(epochcast("compare", *question, "--json").out)["verdict"]
    assert printed["sentence"] == verdict.sentence
    assert printed["best"]["offer"] == verdict.best.offer
    monkeypatch.setenv("COLUMNS", "70")
    run = epochcast("compare", "resnet50", "--data-set", "imagenet", "--epochs", 90, "--budget", 100)
    header, *_ = run.out.split("\n\n")[1].splitlines()
    assert header.split() == ["GPU", "offer", "time", "US$", "within"]


@pytest.mark.parametrize("command", ["predict", "compare"])
def test_reasons_and_what_energy_rests_on_are_objects_and_in_csv_readable(command, epochcast):
    question = (command, "resnet18", "-g", "L4", "-b", 64, "--samples", 1000)
    [shown] = rows_of(epochcast(*question, "--json"))
    [row] = getattr(face, command)("resnet18", "L4", 64, samples=1000).to_dict("records")
    assert shown["extrapolates"] == [asdict(reason) for reason in row["extrapolates"]]
    assert set(shown["extrapolates"][0]) == {"kind", "text", "remedy"}
    assert shown["energy_basis"] == asdict(row["energy_basis"])
    [line] = csv.DictReader(io.StringIO(epochcast(*question, "--format", "csv").out))
    assert line["extrapolates"].startswith("gpu: never measured")
    assert line["energy_basis"] == "estimated from the power limit of 72 W"


@pytest.mark.parametrize("command", ["predict", "compare"])
def test_at_most_three_notes_follow_a_table_and_all_where_asked_for(command, epochcast, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    question = (command, *CIFAR, "--loader", "torchvision", "-g", "L4", "-g", "T4", "--capture", "compile")
    few, every = (
        epochcast(*question, *more).out.split("\n\n")[-1].splitlines() for more in ((), ("--verbose",))
    )
    first, notes = ([line for line in lines if not line.startswith("  ")] for lines in (few, every))
    assert 2 <= len(first) <= 3
    assert len(notes) > 6
    assert notes[: len(first)] == first


def test_few_words_and_columns_fit_a_narrow_terminal_and_a_pipe_gets_all(epochcast, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    out = epochcast(*shlex.split(re.search(r"^DEMO := (.*)$", recipe, re.MULTILINE)[1])).out
    assert len(out.split()) <= 110
    assert max(map(len, out.splitlines())) <= 100
    monkeypatch.setenv("COLUMNS", "64")
    out = epochcast("predict", *QUESTION, "--gpu", "A100-SXM4-40GB").out
    assert max(len(line) for line in out.splitlines()) <= 64
    assert "Left out for lack of width:" in out
    monkeypatch.delenv("COLUMNS")
    assert "Left out" not in epochcast("predict", *QUESTION).out


def test_rows_of_a_file_are_predicted_and_a_failed_one_makes_the_exit_code_1(epochcast, tmp_path):
    rows, answered = tmp_path / "rows.csv", tmp_path / "out.csv"
    columns = "cnn,image_size,gpu,batch_size,precision"
    rows.write_text(f"{columns}\nresnet18,224,T4,32,fp32\n")
    assert epochcast("predict", "--rows", rows, "--out", answered).code == 0
    (row,) = csv.DictReader(answered.open())
    assert float(row["iteration_time_ms"]) == face.predict("resnet18", "T4", 32)["iteration_time_ms"][0]
    rows.write_text(f"{columns}\nresnet18,224,H2O,32,fp32\n")
    run = epochcast("predict", "--rows", rows, "--out", answered)
    assert (run.code, "1 row failed: see the column error." in run.err) == (1, True)


def test_rows_come_from_standard_input_and_standard_output_gets_those_predicted_alone(epochcast, tmp_path):
    rows, out = tmp_path / "rows.csv", tmp_path / "out"
    rows.write_text("cnn,image_size,gpu,batch_size,precision\nresnet18,224,T4,32,fp32\n")
    epochcast("predict", "--rows", rows, "--out", tmp_path / "out.csv")
    out.symlink_to("/dev/stdout")  # a link of our own, so that no failing test can replace the machine's
    command = [sys.executable, "-m", "epochcast", "predict", "--rows", rows, "--out", out]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert run.stdout == (tmp_path / "out.csv").read_bytes()
    assert out.is_symlink()
    command = [sys.executable, "-m", "epochcast", "predict", "--rows", "-", "--out", "-"]
    rows = "cnn,gpu,batch_size\nresnet18,T4,32\n"
    run = subprocess.run(command, input=rows, capture_output=True, text=True, check=True)
    [row] = csv.DictReader(io.StringIO(run.stdout))
    assert float(row["iteration_time_ms"]) == face.predict("resnet18", "T4", 32)["iteration_time_ms"][0]


def test_a_reader_that_goes_early_is_no_failure():
    reader, writer = os.pipe()
    os.close(reader)  # as `head -1` does
    command = [sys.executable, "-m", "epochcast", "gpu", "list"]
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, b"")


def test_a_folder_to_write_to_is_one_line_that_names_it(epochcast, tmp_path):
    rows, measured, folder = (tmp_path / name for name in ("rows.csv", "measured.csv", "folder"))
    folder.mkdir()
    rows.write_text("cnn,image_size,gpu,batch_size,precision\nresnet18,224,T4,32,fp32\n")
    lines = [
        f"{gpu},{cnn},224,{2**i},fp32,{20 * 2**i}"
        for gpu in ("T4", "K80")
        for cnn in ("vgg11", "resnet18")
        for i in range(5)
    ]
    measured.write_text("\n".join(["gpu,cnn,image_size,batch_size,precision,iteration_time_ms", *lines]))
    for words in (("predict", "--rows", rows), ("fit", measured)):
        run = epochcast(*words, "--out", folder)
        assert (run.code, len(run.err.splitlines())) == (2, 1), run.err
        assert f"{folder}" in run.err
        assert "Is a directory" in run.err


@pytest.mark.parametrize("command", ["predict", "compare"])
def test_answers_change_with_a_users_prices_and_say_that_these_have_no_date(command, epochcast, tmp_path):
    path = tmp_path / "prices.csv"
    question = (
        command, "resnet18", "--samples", 10**6, "-b", 64, "-g", "T4", "-g", "V100-SXM2-16GB", "--offers", path,
    )  # fmt: skip
    cheapest = []
    for t4, v100 in ((0.01, 9.0), (9.0, 0.01)):
        path.write_text(
            f"provider,instance,gpu,gpu_count,usd_per_hour\na,b,T4,1,{t4}\na,c,V100-SXM2-16GB,1,{v100}\n"
        )
        cheapest.append(min(rows_of(epochcast(*question, "--json")), key=lambda row: row["cost_usd"])["gpu"])
    assert cheapest == ["Tesla T4", "Tesla V100-SXM2-16GB"]
    assert "prices without a date" in " ".join(epochcast(*question).out.split())


def test_what_does_not_fit_or_is_host_bound_is_marked(epochcast):
    out = epochcast("predict", "resnet50", "-g", "T4", "-b", "32,1024").out
    (small, large) = lines_of_table(out)[1:3]
    assert ("out of memory" in small, "out of memory" in large) == (False, True)
    run = epochcast("predict", "mobilenet_v3_small", "--image-size", 224, "-g", "H200", "-b", "1,1024")
    small, large = lines_of_table(run.out)[1:3]
    assert ("host-bound" in small, "host-bound" in large) == (True, False)


@pytest.mark.parametrize("command", ["predict", "compare"])
def test_the_precision_is_below_the_table_and_in_a_column_where_gpus_differ(command, epochcast, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    question = (command, "resnet18", "--samples", 1000, "-b", 8)
    for more, precision in (((), "TF32"), (("--precision", "fp32"), "FP32")):
        out = " ".join(epochcast(*question, "-g", "A10G", *more).out.split())
        assert f", {precision}, without image loading" in out
    monkeypatch.setenv("COLUMNS", "120")
    header, *lines = lines_of_table(epochcast(*question, "-g", "A10G", "-g", "T4").out)
    assert "precision" in header
    assert {word for line in lines[:2] for word in line.split()} >= {"fp32", "tf32"}


LOADS_SLOWLY = ("resnet18", "-g", "H100-SXM", "-b", 2048, "--n-gpus", 8, "--precision", "amp_bf16")


def test_loading_slower_than_training_and_an_anchor_far_from_the_model_are_remarked_on(epochcast):
    question = ("predict", *LOADS_SLOWLY, "--data-set", "imagenet")
    left_out, counted = (json.loads(epochcast(*question, *more, "--json").out)["rows"][0]
                         for more in ((), ("--loader", "torchvision")))  # fmt: skip
    times = counted["loading_time_ms"] / left_out["iteration_time_ms"]
    note = f"On the offer's vCPUs loading would take {times:.1f} times as long as training: add --workers"
    assert note in " ".join(epochcast(*question).out.split())
    anchor = ("--anchor-gpu", "T4", "--anchor-batch-size", 32, "--anchor-iteration-time-ms", 5000)
    out = " ".join(epochcast("predict", "resnet50", "-g", "T4", "-b", 64, *anchor).out.split())
    beware = re.search(r"Beware: the anchor is (\d+) times the model's own time on Tesla T4 at batch 32", out)
    assert beware
    assert 10 < int(beware[1]) < 30  # 5,000 ms, where runs measured about 300


CIFAR = ("mobilenet_v2", "--data-set", "cifar10", "-g", "H200", "-b", 128)


@pytest.mark.parametrize("command", ["predict", "compare"])
def test_every_letter_that_is_explained_stands_in_the_table(command, epochcast, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    gpus = [word for gpu in ("L4", "A100-SXM4-80GB", "B200") for word in ("-g", gpu)]
    question = (command, "resnet50", "--dataset", "imagenet", "-b", "32", *gpus, "--verbose")
    out = epochcast(*question, *(["--budget", 1] if command == "compare" else [])).out
    header, *lines = lines_of_table(out)
    explained = {line[1] for line in out.splitlines() if line.startswith("(")}
    shown = {letter for line in lines for letter in line[header.index("notes") :].strip().split(",")}
    assert explained
    assert explained <= shown


def test_gpu_list_and_cnn_list_show_the_catalogue_and_gpu_show_takes_any_alias(epochcast):
    gpus = rows_of(epochcast("gpu", "list", "--json"))
    assert [row["name"] for row in gpus] == [gpu.name for gpu in all_gpus()]
    hopper = rows_of(epochcast("gpu", "list", "--generation", "Hopper", "--format", "json"))
    assert {row["generation"] for row in hopper} == {"hopper"}
    (row,) = rows_of(epochcast("gpu", "show", "rtx-3090", "--format", "json"))
    assert row["name"] == "GeForce RTX 3090"
    assert [gpu.name for gpu in all_gpus() if find_gpu(short_name(gpu.name)) != gpu] == []
    names = [row["cnn"] for row in rows_of(epochcast("cnn", "list", "--format", "json"))]
    assert len(names) >= 45
    assert {"resnet50", "vgg_cifar", "dcgan_generator"} <= set(names)


def test_offers_are_those_of_today_history_ones_own_machine_or_a_marketplace_by_name(epochcast, tmp_path):
    rows = rows_of(epochcast("offer", "list", "--format", "json"))
    assert [row["usd_per_hour"] for row in rows] == sorted(row["usd_per_hour"] for row in rows)
    assert not any(row["historic"] for row in rows)
    old = rows_of(epochcast("offer", "list", "--gpu", "K80", "--historic", "--format", "json"))
    assert {row["gpu"] for row in old} == {"Tesla K80"}
    assert any(row["historic"] for row in old)
    prices = tmp_path / "offers.csv"
    machine = ("RTX 4090", "--machine-usd", 2400, "--years", 3, "--hours-per-week", 40, "--usd-per-kwh", 0.3)
    run = epochcast("offer", "own", *machine, "--out", prices)
    assert run.out.startswith("US$ 0.518 an hour: 0.383 for the machine")
    assert "0.135 for 450 W." in run.out
    listed = rows_of(epochcast("offer", "list", "--offers", prices, "--format", "json"))
    assert [row["usd_per_hour"] for row in listed if row["provider"] == "own"] == [0.518]
    assert len(listed) == 1 + len(rows_of(epochcast("offer", "list", "--format", "json")))
    question = ("compare", "resnet18", "--samples", 1000, "--usd-per-hour", 0.12)
    (row,) = rows_of(epochcast(*question, "-g", "RTX 4090", "-b", 32, "--format", "json"))
    assert (row["offer"], row["usd_per_hour"]) == ("own machine", 0.12)
    question = ("compare", "resnet18", "--samples", 1000, "-b", 32, "--format", "json")
    (named,) = rows_of(epochcast(*question, "-g", "RTX 4090"))
    assert "marketplace" in named["offer"]
    gpus = {row["gpu"] for row in rows_of(epochcast(*question))}
    everywhere = {row["gpu"] for row in rows_of(epochcast(*question, "--marketplaces"))}
    assert ("GeForce RTX 4090" in gpus, "GeForce RTX 4090" in everywhere) == (False, True)


def test_offer_update_writes_a_price_file_and_counts_what_it_skips(epochcast, tmp_path, monkeypatch):
    pytest.importorskip("gpuhunt", reason="epochcast[offers] is not installed")
    header = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor"
    rows = "box,eu,0.11,8,32,1,T4,16,False,100,nvidia\nother,eu,9.9,8,32,1,MI300X,192,False,100,amd\n"
    (tmp_path / "cloudrift.csv").write_text(f"{header}\n{rows}")
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(tmp_path))
    prices = tmp_path / "today.csv"
    run = epochcast("offer", "update", "--out", prices)
    assert "cloudrift 1 read now" in run.out
    assert "Skipped 1, not known here: MI300X of 192 GB 1." in run.out
    cheapest = rows_of(epochcast("offer", "list", "--gpu", "T4", "--offers", prices, "--format", "json"))[0]
    assert (cheapest["provider"], cheapest["usd_per_hour"]) == ("cloudrift", 0.11)


@pytest.mark.parametrize("price", ["0", "$0.00"])
def test_a_machine_of_ones_own_may_cost_nothing(epochcast, price):
    question = ("compare", "resnet18", "--samples", 1000, "-g", "T4", "-b", 32, "--epochs", 2)
    (row,) = rows_of(epochcast(*question, "--usd-per-hour", price, "--format", "json"))
    assert (row["usd_per_hour"], row["total_cost_usd"]) == (0, 0)
