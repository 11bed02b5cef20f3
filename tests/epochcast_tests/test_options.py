"""An option that the core declares reaches every face: command line, Python, client and rows of a file."""

import csv

import pytest
from case_tables import each_row, table

import epochcast as face
from predictor.answers.bulk import optional_columns
from predictor.answers.options import options_of
from predictor.answers.question import ANCHOR_FIELDS, RETIRED, Plan, Question
from predictor.errors import RetiredOptionWarning, SchemaError
from predictor.measurements.inputs import InputMeasurement, WorkerRate, write_input

EXAMPLES = table(__file__, "a value of every option")
EXAMPLES |= {"link": "infiniband_100g"}  # which joins machines, as `nodes` needs
(ANCHOR,) = EXAMPLES["anchors"]
OF_QUESTION, OF_PLAN = options_of(Question), options_of(Plan)
KNOWN = {**OF_QUESTION, **OF_PLAN}
NOT_IN_A_ROW = {name for name, option in OF_QUESTION.items() if "cell" not in option.answers}
"""Options that no cell of a row can hold: an anchor has columns of its own, `method` is a column of the answer."""


class AskedError(SchemaError):
    """Ends a command as soon as its question is known."""


def test_every_option_has_an_example_and_is_a_column_or_named_as_none():
    assert set(EXAMPLES) == set(KNOWN)
    columns = {name for name in optional_columns() if not name.startswith("anchor_")}
    assert set(OF_QUESTION) - columns == NOT_IN_A_ROW


def words(name):
    """An option with its example on the command line."""
    if name == "anchors":
        return [
            word
            for key, value in ANCHOR.items()
            for word in (ANCHOR_FIELDS[key].flag or f"--anchor-{key.replace('_', '-')}", value)
        ]
    flag = KNOWN[name].flag.split()[0] if KNOWN[name].flag else f"--{name.replace('_', '-')}"
    return [flag] if KNOWN[name].kind == "flag" else [flag, str(EXAMPLES[name])]


def needs(name):
    """What must be given besides: an epoch, where it follows, GPUs or machines to join, and what is loaded by whom."""
    besides = table(__file__, "what options need").get(name, ())
    epoch = {} if {"samples", "data_set"} & {name, *besides} else {"samples": 1000}
    return epoch | {name_: EXAMPLES[name_] for name_ in besides}


def with_needs(name):
    return [*words(name), *(word for need in needs(name) for word in words(need))]


def plain(value):
    return list(value) if isinstance(value, tuple) else value


@pytest.fixture
def options_of_core(monkeypatch):
    """What reaches the core, as options by name; nothing is computed."""
    core_options = {}

    def record(question, plan=None):
        for taken in (question, plan):
            core_options.update(
                {}
                if taken is None
                else {name: plain(getattr(taken, name)) for name in options_of(type(taken))}
            )
        raise AskedError("asked")

    for target in ("answer.answer", "compare.compare", "explain.explain"):
        monkeypatch.setattr(f"predictor.answers.{target}", record)
    return core_options


def test_every_option_reaches_the_core_from_the_command_line_and_from_python(epochcast, options_of_core):
    lost = []
    for command, options in (("predict", OF_QUESTION), ("compare", KNOWN), ("explain", OF_QUESTION)):
        for name, option in options.items():
            if command not in option.answers:
                continue
            options_of_core.clear()
            run = epochcast(command, "resnet18", "-g", "T4", "-b", "16", *with_needs(name))
            assert run.err == "Error: asked\n"
            lost += [] if options_of_core[name] == EXAMPLES[name] else [(command, name)]
    assert lost == []
    lost = []
    for ask, options in ((face.compare, KNOWN), (face.predict, OF_QUESTION)):
        for name in options:
            options_of_core.clear()
            with pytest.raises(AskedError):
                ask("resnet18", "T4", 16, **{name: EXAMPLES[name], **needs(name)})
            lost += [] if options_of_core[name] == EXAMPLES[name] else [(ask.__name__, name)]
    assert lost == []


def predicted(epochcast, tmp_path, columns, cells, *options):
    """The one row that `predict --rows` answers."""
    rows, answered = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text(f"{','.join(columns)}\n{','.join(map(str, cells))}\n")
    run = epochcast("predict", "--rows", rows, "--out", answered, *options)
    (row,) = csv.DictReader(answered.open()) if answered.exists() else [{}]
    answered.unlink(missing_ok=True)
    return run, row


def written_input(path):
    """A file of `epochcast profile input`."""
    rates = (WorkerRate(1, 20.0), WorkerRate(2, 30.0))
    write_input(InputMeasurement("a host", 2, "torchvision", 224, 200, 0.1, 0.2, rates), path)
    return path


RENEWED = table(__file__, "retired options")
"""Retired options with a value, and what says the same today."""


def test_every_retired_option_still_answers_alike_on_every_face_and_warns(epochcast, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written_input(tmp_path / "input.json")
    assert set(RENEWED) == {*RETIRED, *(name for name, field in ANCHOR_FIELDS.items() if field.now)}
    question = ("predict", "resnet18", "-g", "T4", "-b", 16, "--data-set", "imagenet", "--json")
    for name, (value, today) in RENEWED.items():
        [(new_name, new_value)] = today.items()
        if name in ANCHOR_FIELDS:
            run = {"gpu": "T4", "batch_size": 16}
            old, new = ({"anchors": [run | own]} for own in ({name: value}, today))
            old_words, new_words = ("--anchor-throughput", value), ("--anchor-images-per-s", new_value)
            besides = ("--anchor-gpu", "T4", "--anchor-batch-size", 16)
            columns = {f"anchor_{key}": cell for key, cell in (run | {name: value}).items()}
        else:
            old, new, columns, besides = {name: value}, today, {name: value}, ()
            old_words, new_words = (f"--{key.replace('_', '-')}" for key in (name, new_name))
            old_words, new_words = (old_words, value), (new_words, new_value)
        with pytest.warns(
            RetiredOptionWarning, match=f"{name} goes with the next minor version. Write {new_name} "
        ):
            answer = face.predict("resnet18", "T4", 16, data_set="imagenet", **old)
        expected = face.predict("resnet18", "T4", 16, data_set="imagenet", **new)
        assert answer.equals(expected), name
        typed = epochcast(*question, *besides, *old_words)
        assert typed.out == epochcast(*question, *besides, *new_words).out, name
        assert f"{old_words[0]} goes with the next minor version. Write {new_words[0]} " in typed.err
        if name != "price":  # no column of rows
            base = {"cnn": "resnet18", "gpu": "T4", "batch_size": 16, "data_set": "imagenet", **columns}
            _, row = predicted(epochcast, tmp_path, base, base.values())
            assert numbers_of_a_row(row) == pytest.approx(list(expected.iloc[0][list(NUMBERS)]), rel=1e-12)
    with pytest.raises(SchemaError, match="machine_workers is workers by its old name, and both are given"):
        face.predict("resnet18", "T4", 16, workers=2, machine_workers=2)


def in_a_row(name):
    if name == "anchors":
        return {f"anchor_{key}": value for key, value in ANCHOR.items()}
    return {name: EXAMPLES[name], **needs(name)}


NUMBERS = ("iteration_time_ms", "low_ms", "high_ms", "gpu_time_ms", "epoch_time_s")


def numbers_of_a_row(row):
    assert not row["error"], row
    return [float(row[name]) if row[name] else None for name in NUMBERS]


def test_a_rows_cell_and_the_option_give_what_predict_gives(epochcast, tmp_path):
    measured = tmp_path / "mine.csv"
    measured.write_text(
        "gpu,cnn,image_size,batch_size,precision,iteration_time_ms\nT4,resnet18,224,16,fp32,60\n"
    )
    files = {"measurements": measured}
    different = []
    for name in {name for name, option in OF_QUESTION.items() if "bulk" in option.answers} - {
        "offers",
        "spot",
        "model",
    }:
        value = str(files[name]) if name in files else EXAMPLES[name]
        gpu = "A10G" if name == "float32_matmul_precision" else "T4"  # which has TF32
        answer = face.predict("resnet18", gpu, 16, **{name: value, **needs(name)})
        expected = list(answer.iloc[0][list(NUMBERS)])
        option = [f"--{name}", value] if name in files else words(name)
        extra = [word for need in needs(name) for word in words(need)]
        base = ("cnn", "gpu", "batch_size"), ("resnet18", gpu, 16)
        run, row = predicted(epochcast, tmp_path, *base, *option, *extra)
        if run.code or numbers_of_a_row(row) != pytest.approx(expected, rel=1e-12):
            different.append(("option", name))
        if name not in NOT_IN_A_ROW or name == "anchors":
            cells = in_a_row(name) | ({name: value} if name in files else {})
            columns = (*base[0], *cells)
            run, row = predicted(epochcast, tmp_path, columns, (*base[1], *cells.values()), *extra)
            if run.code or numbers_of_a_row(row) != pytest.approx(expected, rel=1e-12):
                different.append(("cell", name))
    assert different == []


def test_a_cell_beats_the_option_and_validation_samples_follow_each_row_s_own_epoch(epochcast, tmp_path):
    columns, cells = ("cnn", "gpu", "batch_size", "precision"), ("resnet18", "T4", 16, "amp_fp16")
    _, row = predicted(epochcast, tmp_path, columns, cells, "--precision", "fp32")
    single = face.predict("resnet18", "T4", 16, precision="amp_fp16")
    assert float(row["iteration_time_ms"]) == pytest.approx(single["iteration_time_ms"][0])
    columns, cells = ("cnn", "gpu", "batch_size", "samples"), ("resnet18", "T4", 16, 1000)
    _, row = predicted(epochcast, tmp_path, columns, cells, "--validation-samples", 500)
    expected = face.predict("resnet18", "T4", 16, samples=1000, validation_samples=500)["epoch_time_s"][0]
    assert float(row["epoch_time_s"]) == pytest.approx(expected)


@each_row
def test_a_row_is_of_a_part_of_a_data_set(epochcast, tmp_path, columns, cells, options):
    columns, cells = ("cnn", "gpu", "batch_size", *columns), ("resnet18", "T4", 16, *cells)
    _, row = predicted(epochcast, tmp_path, columns, cells, *options, "--workers", 2)
    subset = {"data_set": "imagenet", "samples": 10_000, "workers": 2}
    expected = face.predict("resnet18", "T4", 16, **subset).iloc[0]
    for name in ("epoch_time_s", "loading_time_ms", "cost_usd", "watt_hours"):
        assert float(row[name]) == pytest.approx(expected[name])


@each_row
def test_a_row_of_more_samples_than_its_data_set_has_fails_with_the_range(
    epochcast, tmp_path, columns, cells, options
):
    columns, cells = ("cnn", "gpu", "batch_size", *columns), ("resnet18", "T4", 16, *cells)
    run, row = predicted(epochcast, tmp_path, columns, cells, *options)
    assert run.code == 1
    assert "samples 50,001 lies outside 1..50,000, the training images of cifar10" in row["error"]
