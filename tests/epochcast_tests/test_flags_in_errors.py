"""An error on the command line names the flag that was typed; elsewhere the option or the column."""

import pytest

import epochcast as face
from predictor.answers.options import options_of
from predictor.answers.question import Plan, Question
from predictor.errors import EpochcastError

WRONG = {"whole": "-3", "number": "-1", "hours": "soon", "usd": "much", "choice": "luck"}
KNOWN = {
    name: option
    for name, option in {**options_of(Question), **options_of(Plan)}.items()
    if option.kind in WRONG
}


def test_a_wrong_value_is_refused_by_its_flag(epochcast):
    wrong = {}
    for name, option in KNOWN.items():
        value = WRONG[option.kind]
        run = epochcast("compare", "resnet18", "-g", "T4", "--samples", "100", option.flags[0], value)
        if run.code != 2 or not run.err.startswith(f"Error: {option.flags[0]} "):
            wrong[name] = run.err
    assert wrong == {}


def test_the_same_value_is_refused_by_its_name_in_python():
    for name, option in KNOWN.items():
        with pytest.raises(EpochcastError, match=f"^{name} "):
            face.compare("resnet18", "T4", 16, **{"samples": 100, name: WRONG[option.kind]})


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (("--n-gpus", "3", "--nodes", "2"), ("--n-gpus 3", "--nodes 2")),
        (("--link", "nvlink4"), ("--link 'nvlink4'", "--n-gpus is 1")),
        (("--sync-batch-norm",), ("--sync-batch-norm", "--n-gpus is 1")),
        (("--nodes", "2", "--n-gpus", "4"), ("--nodes 2: pass --link",)),
        (("--n-gpus", "12"), ("--n-gpus 12", "--nodes and --link")),
        (("--workers", "2"), ("Pass --samples-per-worker-second, --images-per-second, --input",)),
        (("--anchor-gpu", "T4"), ("lacks --anchor-batch-size",)),
        (("--anchor-gpu", "T4", "--anchor-batch-size", "x"), ("--anchor-batch-size 'x'",)),
        (("-b", "x"), ("--batch-size 'x'",)),
        (("--validation-samples", "10"), ("--validation-samples 10", "Pass --samples")),
    ],
)
def test_options_that_contradict_each_other_are_named_by_their_flags(epochcast, words, flags):
    run = epochcast("predict", "resnet18", "-g", "H200", "-b", "12", *words)
    assert run.code == 2
    assert all(flag in run.err for flag in flags), run.err


def test_a_row_of_a_table_is_refused_by_its_column_and_the_options_of_all_rows_by_their_flag(
    epochcast, tmp_path
):
    rows = tmp_path / "rows.csv"
    rows.write_text("cnn,gpu,batch_size,n_gpus,nodes\nresnet18,H200,12,3,2\n")
    run = epochcast("predict", "--rows", rows, "--out", tmp_path / "out.csv")
    assert "n_gpus 3 cannot be spread" in (tmp_path / "out.csv").read_text()
    run = epochcast("predict", "--rows", rows, "--out", tmp_path / "out.csv", "--n-gpus", "-3")
    assert run.err.startswith("Error: --n-gpus ")
