"""`epochcast table`: measurements, specifications and counts of layers as one table."""

from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

import epochcast as package
from predictor.errors import DataError, SchemaError

COLUMNS = "gpu,cnn,image_size,batch_size,precision,kind,iteration_time_ms"
ROWS = (
    "T4,16_128_128,16,64,fp32,proxy,4.1",
    "T4,resnet18,32,64,fp32,target,20",
    "T4,relu,32,64,fp32,operator,0.1",
)


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([COLUMNS, *ROWS]))
    return path


def test_the_command_writes_what_python_gives_and_a_table_of_operators_alone_is_refused(
    epochcast, measured, tmp_path
):
    run = epochcast("table", measured, "--out", tmp_path / "table.csv")
    assert "Wrote 2 rows" in run.err  # an operator is no iteration
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "table.csv"),
        pd.read_csv(StringIO(package.feature_table(measured).to_csv(index=False))),
    )
    operators = package.load_measurements(measured).query("kind == 'operator'")
    with pytest.raises(SchemaError, match=r"holds no proxy and no CNN\. Measure some"):
        package.feature_table(operators)


def test_a_table_whose_run_goes_on_says_so_and_one_whose_run_was_stopped_how_to_go_on(tmp_path):
    import fcntl

    rows = tmp_path / "mine.csv.rows.jsonl"
    rows.write_text("{}\n")
    with rows.open() as run:
        fcntl.flock(run, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="Its run goes on: the table comes at its end"):
            package.feature_table(tmp_path / "mine.csv")
    with pytest.raises(DataError, match="Its run was stopped: repeat the command"):
        package.feature_table(tmp_path / "mine.csv")


def test_a_fit_of_methods_prints_what_it_fitted_and_how_far_off_and_nothing_of_the_shipped_model(
    epochcast, tmp_path
):
    tables = (f"datasets/measurements/cpu_chainer_{name}.csv.gz" for name in ("founding_proxies", "cnns"))
    paths = [Path(__file__).parents[2] / table for table in tables]
    run = epochcast("fit", *paths, "--method", "proxy-times", "--out", tmp_path / "mine.json")
    fitted, error, *_ = run.out.splitlines()
    assert fitted.startswith("proxy-times: 5 iterations of 2 CNNs")
    assert error.startswith("  misses an unseen batch size by")
    assert len(run.out.replace(str(tmp_path), "")) < 400
