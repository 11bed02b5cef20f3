"""What pages say of forecasts that were committed before their truths follows from benchmarks/forecasts.csv."""

import csv
from pathlib import Path

import epochs
import judges
import pandas as pd
import pytest
from case_tables import each_row

from predictor.errors import SchemaError

DOCS = Path(__file__).resolve().parents[3] / "docs"
with Path(__file__).with_name("forecast_sentences.csv").open(newline="", encoding="utf-8") as _file:
    SENTENCES = list(csv.reader(_file))[1:]
QUANTITIES = ("gpu_time", "iteration_time", "peak_memory")


@pytest.fixture(scope="module")
def errors():
    return judges.forecast_errors().set_index(["campaign", "quantity"])


@each_row
def test_the_table_of_recorded_steps_has_the_errors_of_its_campaigns(errors, campaign):
    rows = errors.loc[campaign]
    percents = " | ".join(f"{rows.loc[name, 'error']:.1%}".replace("%", " %") for name in QUANTITIES)
    inside, n = (int(rows.loc["iteration_time", name]) for name in ("inside", "n"))
    line = f"(`{campaign}`) | {percents} | {inside} of {n} |"
    assert line in (DOCS / "recorded_steps.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "campaign", "quantity", "sentence"), SENTENCES)
def test_a_page_tells_the_errors_of_its_campaigns(errors, page, campaign, quantity, sentence):
    row = errors.loc[(campaign, quantity)]
    inside = None if pd.isna(row["inside"]) else int(row["inside"])
    words = sentence.format(round(100 * row["error"]), inside=inside, n=int(row["n"]))
    assert words in (DOCS / f"{page}.md").read_text(encoding="utf-8")


def test_a_campaign_is_judged_as_a_figure_is():
    rows = judges.of_forecasts(judges.Request(("epoch_time of seventh epochs by opening",)))
    assert (len(rows), set(rows["unit"])) == (6, {"s"})
    assert (rows["low"] < rows["predicted"]).all()


@pytest.mark.parametrize("name", epochs.SETS)
def test_every_epoch_that_was_trained_is_a_case_and_was_forecast_before(name):
    trained = list(epochs.trained_epochs(name))
    assert trained
    for case, forecast, measured in trained:
        framework = case.mode.framework
        start = f"{case.cnn}_{framework}_{case.n_gpus}x{case.local_batch_size}_"
        assert measured["case"].startswith(start)
        assert case.table.image_size == case.task.image_size
        assert name not in ("strangers", "more strangers", "last strangers") or (
            forecast["forecast_at"] < measured["started_at"]
        )


def test_what_is_no_case_is_refused():
    with pytest.raises(SchemaError, match="is no case"):
        epochs.EpochCase.named("resnet50")


@each_row
def test_a_start_is_added_to_the_forecast_of_the_first_epoch_alone(forecast, measured, later, seconds):
    assert epochs.forecast_and_measured(forecast, measured, later=later) == tuple(seconds)
