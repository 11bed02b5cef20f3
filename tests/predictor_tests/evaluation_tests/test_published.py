"""Tests of the way from published tables to features; the tables themselves are not part of epochcast."""

import pandas as pd
import pytest

from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.measurements import published as importers
from predictor.measurements.published import published_features


def pretend(monkeypatch, structured: pd.DataFrame, measured: pd.DataFrame) -> None:
    """Replace what reads files: the CNNs whose layers are published, and all rows."""
    tables = {(row.cnn, row.image_size): zoo_cnn("lenet5") for row in structured.itertuples()}
    monkeypatch.setattr(importers, "load_published", lambda *_: measured.drop(columns="layer_table"))
    monkeypatch.setattr(importers, "published_layer_tables", lambda _folder: tables)


def test_at_most_so_many_single_layers_of_a_gpu_are_kept_and_every_cnn(features_with_operators, monkeypatch):
    pretend(monkeypatch, features_with_operators, features_with_operators)
    monkeypatch.setattr(importers, "OPERATORS_PER_GPU", 7)
    features, again = (published_features("anywhere") for _ in range(2))
    assert set(features[features["kind"] == "operator"].groupby("gpu").size()) == {7}
    assert (features["kind"] == "target").sum() == 120
    assert features["iteration_time_ms"].tolist() == again["iteration_time_ms"].tolist()


def test_a_table_without_single_layers_is_kept_whole(features, monkeypatch):
    pretend(monkeypatch, features, features)
    assert len(published_features("anywhere")) == len(features)


def test_a_cnn_whose_layers_nobody_published_is_left_out(features, monkeypatch):
    first = features["cnn"].iloc[0]
    pretend(monkeypatch, features[features["cnn"] != first], features)
    assert set(published_features("anywhere")["cnn"]) == set(features["cnn"]) - {first}


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        published_features(tmp_path / "nowhere")
