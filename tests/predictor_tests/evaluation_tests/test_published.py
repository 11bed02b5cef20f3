"""Tests of the way from published tables to features; the tables themselves are not part of epochcast."""

from types import SimpleNamespace

import pandas as pd
import pytest

from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.evaluation.scenarios import SCENARIOS
from predictor.measurements import published as importers
from predictor.measurements.published import FITTED, published_features


def pretend(monkeypatch, features: pd.DataFrame, load_published) -> None:
    """Replace what reads files."""
    tables = {(row.cnn, row.image_size): zoo_cnn("lenet5") for row in features.itertuples()}
    monkeypatch.setattr(importers, "load_published", load_published)
    monkeypatch.setattr(importers, "published_layer_tables", lambda _folder: tables)


@pytest.fixture
def imported(features_with_operators, monkeypatch) -> SimpleNamespace:
    """Importers that give the made-up world instead of reading files."""
    measurements = features_with_operators.drop(columns="layer_table")
    asked = SimpleNamespace(sources=None)

    def load_published(_folder: object, sources: tuple[str, ...]) -> pd.DataFrame:
        asked.sources = tuple(sources)
        return measurements

    pretend(monkeypatch, features_with_operators, load_published)
    return asked


def test_every_published_source_of_a_scenario_is_read(imported):
    published_features("anywhere")
    needed = {source.split("/")[0] for scenario in SCENARIOS.values() for source in scenario.sources}
    assert needed - {"h200", "h100"} <= set(imported.sources) == set(FITTED)


def test_at_most_so_many_single_layers_of_each_gpu_are_kept_and_every_cnn(imported):
    features = published_features("anywhere", operators_per_gpu=7)
    assert set(features[features["kind"] == "operator"].groupby("gpu").size()) == {7}
    assert (features["kind"] == "target").sum() == 120


def test_the_same_seed_keeps_the_same_layers_and_another_seed_others(imported):
    first, again, other = (
        set(published_features("anywhere", operators_per_gpu=7, seed=seed)["iteration_time_ms"])
        for seed in (0, 0, 1)
    )
    assert first == again != other


def test_a_table_without_single_layers_is_kept_whole(features, monkeypatch):
    pretend(monkeypatch, features, lambda *_: features.drop(columns="layer_table"))
    assert len(published_features("anywhere")) == len(features)


def test_a_cnn_whose_layers_nobody_published_is_left_out(features, monkeypatch):
    pretend(
        monkeypatch,
        features[features["cnn"] != features["cnn"].iloc[0]],
        lambda *_: features.drop(columns="layer_table"),
    )
    assert set(published_features("anywhere")["cnn"]) == set(features["cnn"]) - {features["cnn"].iloc[0]}


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        published_features(tmp_path / "nowhere")
