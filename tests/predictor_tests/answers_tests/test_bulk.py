"""Bulk prediction: the same numbers as one by one, the input kept, and an error text for each bad row."""

import csv

import pytest
from case_tables import each_row

from predictor.answers.answer import predict
from predictor.answers.bulk import ADDED_COLUMNS, predict_rows
from predictor.errors import SchemaError

HEADER = "id,cnn,image_size,gpu,batch_size,precision,samples"


@pytest.fixture
def answer(tmp_path, fake_model):
    """The answers to lines of a CSV, as dicts."""

    def ask(*lines, header=HEADER, **defaults):
        questions, answered = tmp_path / "rows.csv", tmp_path / "predictions.csv"
        questions.write_text("\n".join([header, *lines]) + "\n")
        ask.failed = predict_rows(questions, answered, model=fake_model, **defaults)
        with answered.open(newline="") as file:
            return list(csv.DictReader(file))

    return ask


NUMBERS = ("iteration_time_ms", "gpu_time_ms", "low_ms", "high_ms", "peak_memory_gib")
OF_EPOCH = ("epoch_time_s", "epoch_low_s", "epoch_high_s", "cost_usd")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_row_loads_images_of_training_and_validation_as_the_single_question(answer, fake_model, workers):
    loading = {"loader": "5.0/worker", "workers": workers, "validation_samples": 70}
    (row,) = answer("a,resnet18,64,T4,32,fp32,1000", **loading)
    (single,) = predict("resnet18", "T4", 32, image_size=64, samples=1000, model=fake_model, **loading)
    for name in (*NUMBERS, *OF_EPOCH):
        assert float(row[name]) == pytest.approx(getattr(single, name), rel=1e-12)
    assert single.iteration_time_ms >= 6400.0
    assert (row["bottleneck"], float(row["loading_time_ms"])) == ("loading", pytest.approx(6400.0))


def test_a_row_without_samples_has_no_epoch_and_one_without_an_offer_no_cost(answer, prices):
    lines = ("a,resnet18,64,T4,32,fp32,", "b,resnet18,64,H200,32,fp32,9")
    without_epoch, without_offer = answer(*lines, offers=prices)
    assert [without_epoch[name] for name in OF_EPOCH] == [""] * 4
    assert (without_offer["cost_usd"], float(without_offer["epoch_high_s"]) > 0) == ("", True)


def test_prices_of_rows_without_epochs_are_refused_but_where_they_decide_links_or_workers(answer, prices):
    header, line = "cnn,image_size,gpu,batch_size", "resnet18,64,T4,32"
    for options in ({"offers": prices}, {"usd_per_hour": 3}, {"spot": True}, {"provider": "aws"}):
        with pytest.raises(SchemaError, match=r"prices epochs, which .* has none of. Add a column samples"):
            answer(line, header=header, **options)
        answer(line, header=header, of_project=[*options], **options)
    answer(line, header=header, provider="aws", samples=9)
    answer(line, header=header, provider="aws", n_gpus=2)
    answer(line, header=header, spot=False, marketplaces=False, provider=None, usd_per_hour=None)


def test_defaults_of_the_project_that_the_loop_of_a_row_does_not_read_do_not_hold_for_it(answer):
    header, defaults = "cnn,image_size,gpu,batch_size,framework_loop", {"samples": 9000, "drop_last": True}
    lines = [f"resnet18,64,T4,32,{loop}" for loop in ("", "nnunet", "timm")]
    of_rows = answer(*lines, header=header, **defaults)
    rows = answer(*lines, header=header, of_project=[*defaults], **defaults)
    assert [not row["error"] for row in (*of_rows, *rows)] == [True, False, False, True, True, True]
    assert rows[1:] == answer(lines[1], header=header) + answer(lines[2], header=header, samples=9000)


def test_defaults_of_the_project_that_a_row_s_data_set_or_loader_replaces_do_not_hold_for_it(answer):
    header, defaults = "cnn,image_size,gpu,batch_size,data_set,loader", {"samples": 9000, "workers": 4}
    line = "resnet18,64,T4,32,cifar10,none"
    (of_row,) = answer(line, header=header, **defaults)
    assert "workers" in of_row["error"]
    assert answer(line, header=header, of_project=[*defaults], **defaults) == answer(line, header=header)


def test_the_inputs_columns_and_order_are_kept(answer):
    rows = answer("b,resnet18,64,T4,32,fp32,", "a,alexnet,224,K80,16,fp32,", "c,resnet18,64,T4,8,fp32,")
    assert [row["id"] for row in rows] == ["b", "a", "c"]
    assert list(rows[0]) == [*HEADER.split(","), *ADDED_COLUMNS]


def test_rows_that_share_cnn_gpu_and_mode_are_one_question_to_the_model(answer, fake_model):
    answer(*(f"{i},resnet18,64,T4,{1 + i % 7},fp32,{i + 1}" for i in range(50)))
    assert fake_model.calls == [("resnet18", "Tesla T4", [1, 2, 3, 4, 5, 6, 7])]


def test_an_anchor_in_the_row_is_used(answer):
    header = "cnn,image_size,gpu,batch_size,precision,anchor_gpu,anchor_batch_size,anchor_iteration_time_ms"
    (row,) = answer("resnet18,64,T4,32,fp32,K80,16,300", header=header)
    assert row["method"] == "anchored"


@each_row
def test_a_bad_row_gets_its_error_and_the_others_their_numbers(line, message, answer):
    good = "g,resnet18,64,T4,32,fp32,100"
    first, bad, last = answer(good, line, good)
    assert message in bad["error"]
    assert bad["iteration_time_ms"] == ""
    assert (first["error"], last["error"], answer.failed) == ("", "", 1)


def test_a_row_whose_gpu_lacks_the_precision_of_its_neighbours_gets_its_error(answer):
    answers = answer(*(f"{gpu},resnet18,64,{gpu},32,amp_bf16," for gpu in ("H200", "T4", "A10G")))
    assert ["has no amp_bf16" in row["error"] for row in answers] == [False, True, False]
    assert [row["iteration_time_ms"] != "" for row in answers] == [True, False, True]


@each_row
def test_a_bad_optional_cell_is_an_error_of_its_row(column, cell, message, answer):
    header = f"cnn,image_size,gpu,batch_size,precision,{column}"
    (row,) = answer(f"resnet18,64,T4,32,fp32,{cell}", header=header)
    assert message in row["error"]


@each_row
def test_a_file_that_cannot_be_what_is_asked_is_refused(text, message, tmp_path, fake_model):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(SchemaError, match=message):
        predict_rows(path, tmp_path / "out.csv", model=fake_model)


@pytest.fixture
def one_row(tmp_path):
    """A file of one question, with the byte order mark of a spreadsheet before its first column."""
    path = tmp_path / "rows.csv"
    path.write_text("cnn,gpu,batch_size\nresnet18,T4,32\n", encoding="utf-8-sig")
    return path


def test_answers_written_to_a_link_leave_it_a_link(one_row, tmp_path, fake_model):
    (tmp_path / "latest.csv").symlink_to("answers.csv")
    assert predict_rows(one_row, tmp_path / "latest.csv", model=fake_model) == 0
    assert (tmp_path / "latest.csv").is_symlink()
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 2


def test_a_folder_for_the_answers_is_refused_by_its_name(one_row, tmp_path, fake_model):
    with pytest.raises(SchemaError, match=f"{tmp_path} cannot be written: Is a directory"):
        predict_rows(one_row, tmp_path, model=fake_model)


def test_a_missing_file_is_refused(tmp_path, fake_model):
    with pytest.raises(SchemaError, match="cannot be read: No such file"):
        predict_rows(tmp_path / "none.csv", tmp_path / "out.csv", model=fake_model)
