"""Iterations of an epoch as frameworks' loops count them, of loaders that were recorded, and in every face."""

import pytest
from case_tables import each_row

import epochcast
from predictor.answers.answer import answer
from predictor.answers.bulk import predict_rows
from predictor.answers.question import Question
from predictor.errors import SchemaError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
N, BATCH = 50_001, 128


@each_row
def test_an_epoch_has_the_iterations_that_its_loop_runs(options, iterations, validated):
    data = {} if options.get("framework_loop") == "nnunet" else {"samples": N, "validation_samples": N}
    question = Question.of("resnet18", "H100 SXM", BATCH, data | options)
    [row] = answer(question).rows()
    assert row.iterations_per_epoch == iterations
    rest = {391: 81, 390: 0, 250: 0}[iterations]
    full, part = (
        epochcast.predict("resnet18", "H100 SXM", size)["iteration_time_ms"][0] for size in (BATCH, 81)
    )
    training_ms = (iterations - bool(rest)) * full + part * bool(rest)
    forward_ms = validated * full / 3 if validated == 50 else (390 * full + part) / 3
    assert row.epoch_time_s == pytest.approx((training_ms + forward_ms) / 1000, rel=0.003)


def test_processes_of_accelerate_fill_their_last_mini_batch():
    plain, filled = (
        answer(
            Question.of("resnet18", "H100 SXM", 256, {"samples": N, "n_gpus": 2, "framework_loop": loop})
        ).rows()[0]
        for loop in ("lightning", "accelerate")
    )
    assert plain.iterations_per_epoch == filled.iterations_per_epoch == 196
    assert filled.epoch_time_s > plain.epoch_time_s
    dropping = {"samples": N, "n_gpus": 2, "framework_loop": "accelerate", "drop_last": True}
    [dropped] = answer(Question.of("resnet18", "H100 SXM", 256, dropping)).rows()
    assert dropped.iterations_per_epoch == 195


@each_row
def test_what_a_loop_does_not_read_is_refused_in_an_answer_and_in_a_row(options, words, tmp_path):
    with pytest.raises(SchemaError, match=words):
        Question.of("resnet18", "T4", 64, options)
    rows = tmp_path / "rows.csv"
    rows.write_text(
        f"cnn,gpu,batch_size,{','.join(options)}\nresnet18,T4,64,{','.join(map(str, options.values()))}\n"
    )
    assert predict_rows(rows, tmp_path / "out.csv") == 1
    assert words in (tmp_path / "out.csv").read_text()


def test_a_loop_of_250_iterations_needs_no_samples(tmp_path, epochcast_command):
    [row] = answer(Question.of("resnet18", "T4", 64, {"framework_loop": "nnunet"})).rows()
    assert row.iterations_per_epoch == 250
    said = epochcast_command("predict", "resnet18", "--gpu", "T4", "--framework-loop", "nnunet").out
    assert "250 iterations and 50 of validation" in " ".join(said.split())
    assert "1  fastest" not in said
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("cnn,gpu,batch_size\nresnet18,T4,64\n")
    assert epochcast_command("predict", "--rows", rows, "--out", out, "--framework-loop", "nnunet").code == 0
    assert f"{row.epoch_time_s:.4f}"[:5] in out.read_text()


def test_batch_sizes_of_a_loop_whose_epochs_hold_other_images_are_never_compared_by_the_time_of_an_epoch():
    loop = {"framework_loop": "nnunet"}
    with pytest.raises(
        SchemaError, match=r"an epoch of framework_loop nnunet has 250 iterations .*Compare one"
    ):
        epochcast.compare("resnet18", "T4", [32, 256], **loop)
    [row] = epochcast.compare("resnet18", "T4", **loop).itertuples()
    assert (row.fastest_batch_size, row.fastest_epoch_time_s) == (row.batch_size, row.epoch_time_s)
    [of_data] = epochcast.compare("resnet18", "T4", samples=250 * 256).itertuples()
    assert row.best_batch == of_data.best_batch
    assert epochcast.compare("resnet18", "T4", 64, **loop)["batch_size"].tolist() == [64]


def test_a_loop_that_drops_all_samples_is_refused_in_an_answer_and_in_a_row(tmp_path, epochcast_command):
    with pytest.raises(
        SchemaError, match="200 samples are no mini-batch of 256, and the loop drops what is less"
    ):
        epochcast.predict("resnet18", "T4", 256, samples=200, framework_loop="timm")
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("cnn,gpu,batch_size,samples\nresnet18,T4,64,1000\nresnet18,T4,2048,1000\n")
    assert epochcast_command("predict", "--rows", rows, "--out", out, "--framework-loop", "timm").code == 1
    first, second = out.read_text().splitlines()[1:]
    assert "1,000 samples are no mini-batch of 2,048" in second
    [row] = answer(Question.of("resnet18", "T4", 64, {"samples": 960})).rows()
    assert f"{row.epoch_time_s:.4f}"[:5] in first


@pytest.mark.parametrize(
    ("options", "samples", "iterations"),
    [
        ({"batch_size": 4}, 90, 23),
        ({"batch_size": 4, "drop_last": True}, 90, 22),
        ({"batch_size": 4, "sampler": torch.utils.data.RandomSampler(range(90), num_samples=40)}, 40, 10),
        ({"batch_size": 2}, 180, 45),  # two patches of each
        ({"batch_sampler": [[0, 1]] * 7}, 28, 7),
    ],
)
def test_a_recorded_loader_tells_the_epoch_and_is_written_with_the_step(
    options, samples, iterations, tmp_path
):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 2))
    table = epochcast.record(
        model, torch.zeros(4, 3, 8, 8), loader=torch.utils.data.DataLoader(range(90), **options)
    )
    assert table.step.samples == samples
    table.to_csv(tmp_path / "step.csv")
    for cnn in (table, tmp_path / "step.csv"):
        [row] = answer(Question.of(cnn, "T4", None, {})).rows()
        assert row.iterations_per_epoch == iterations
    [row] = answer(Question.of(table, "T4", None, {"samples": 400})).rows()
    assert row.iterations_per_epoch == 100


def test_a_loader_without_a_length_is_refused():
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(())

    model = torch.nn.Conv2d(3, 8, 3)
    with pytest.raises(SchemaError, match="does not say how many samples an epoch has"):
        epochcast.record(model, torch.zeros(4, 3, 8, 8), loader=torch.utils.data.DataLoader(Endless()))
