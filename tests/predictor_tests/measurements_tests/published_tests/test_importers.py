"""Importers on made-up tables: units, words, names, passes, and what becomes of bad rows."""

import gzip
from pathlib import Path

import pandas as pd
import pytest

from predictor.errors import DataError, SchemaError
from predictor.evaluation.scenarios import SCENARIOS
from predictor.measurements.published import import_measurements, load_published
from predictor.measurements.published.sources import DATA_SETS
from predictor.measurements.schema import COLUMNS


@pytest.mark.parametrize("name", DATA_SETS)
class TestEveryImporter:
    def test_gives_a_checked_table_and_a_report_with_what_is_odd_about_its_source(self, name, published):
        frame, report = import_measurements(name, published)
        assert report.n_measurements == len(frame) > 0
        assert report.n_kept + len(report.rejected) == report.n_read
        assert "note: " in str(report)

    def test_takes_the_file_as_well_as_the_folder_and_reads_it_unpacked(self, name, published):
        from_folder, _ = import_measurements(name, published)
        table = published / DATA_SETS[name].table
        pd.testing.assert_frame_equal(from_folder, import_measurements(name, table)[0])
        (published / table.stem).write_bytes(gzip.decompress(table.read_bytes()))
        table.unlink()
        pd.testing.assert_frame_equal(from_folder, import_measurements(name, published)[0])

    def test_refuses_a_table_that_lacks_a_column_or_is_empty_or_missing(self, name, published):
        path = published / DATA_SETS[name].table
        pd.read_csv(path).drop(columns="gpu").to_csv(path, index=False)
        with pytest.raises(SchemaError, match="lacks the column 'gpu'"):
            import_measurements(name, published)
        (published / "empty.csv").write_text("")
        with pytest.raises(SchemaError, match="is empty"):
            import_measurements(name, published / "empty.csv")
        path.unlink()
        with pytest.raises(DataError, match=f"there is no {DATA_SETS[name].table}"):
            import_measurements(name, published)

    def test_names_project_licence_and_citation(self, name):
        card = DATA_SETS[name].provenance
        assert all((card.project, card.repository.startswith("https://"), card.licence, card.citation))


def test_every_card_says_what_its_iterations_hold_in_columns_of_the_table():
    names = {entry.name for entry in COLUMNS}
    assert {name: data_set.holds for name, data_set in DATA_SETS.items() if {*data_set.holds} - names} == {}
    every = {name: data_set.holds for name, data_set in DATA_SETS.items()}
    of_cnns = {name: holds for name, holds in every.items() if holds["kind"] == "target"}
    silent = [name for name, holds in of_cnns.items() if "copies_input" not in holds]
    assert silent == ["pytorch"]  # differs from row to row there


def test_every_published_source_of_a_scenario_is_a_data_set():
    needed = {source.split("/")[0] for scenario in SCENARIOS.values() for source in scenario.sources}
    assert needed - {"h200", "h100"} <= {*DATA_SETS}


def test_an_unknown_importer_is_refused_with_the_nearest(published):
    with pytest.raises(DataError, match="Nearest: 'profet'"):
        import_measurements("profit", published)


def test_some_or_all_sources_make_one_table_from_the_folder_that_is_named(published, monkeypatch):
    monkeypatch.setenv("EPOCHCAST_PUBLISHED_DATA", str(published))
    assert len(load_published()) == sum(len(import_measurements(name)[0]) for name in DATA_SETS)
    assert set(load_published(published, ["profet", "timm"])["source"]) == {"profet", "timm"}


class TestBadRows:
    @pytest.mark.parametrize("time", [0, -1, None, float("inf"), "broken"])
    def test_are_listed_with_line_and_reason(self, published, profet_row, time):
        rows = [profet_row, {**profet_row, "repeat": 2, "iteration_time_s": time}]
        pd.DataFrame(rows).to_csv(published / "profet_target_cnns.csv.gz", index=False)
        frame, report = import_measurements("profet", published)
        assert (len(frame), report.n_read, report.n_kept) == (1, 2, 1)
        assert [line for line, _ in report.rejected] == [3]
        assert "iteration_time_s is" in report.rejected[0][1]

    def test_of_other_makers_and_ambiguous_gpus_are_listed(self, published, profet_row):
        _, report = import_measurements("lambda-tf", published)
        assert report.rejected == [(5, "'Radeon Pro VII' is not an NVIDIA GPU.")]
        rows = [profet_row, {**profet_row, "gpu": "V100"}]
        pd.DataFrame(rows).to_csv(published / "profet_target_cnns.csv.gz", index=False)
        assert "fits several" in import_measurements("profet", published)[1].rejected[0][1]

    def test_of_an_optional_time_may_miss_it_but_not_be_wrong(self, published):
        path = published / "deepbench_conv_training.csv.gz"
        pd.read_csv(path).fillna({"backward_input_time_ms": 0}).to_csv(path, index=False)
        _, report = import_measurements("deepbench", published)
        assert report.rejected == [(3, "backward_input_time_ms is 0.0, not a time above 0.")]

    def test_alone_leave_nothing_to_import(self, published, profet_row):
        pd.DataFrame([{**profet_row, "gpu": "H2O0"}]).to_csv(published / "p.csv", index=False)
        with pytest.raises(SchemaError, match=r"no usable row is left of 'profet'\. Line 2: .*H2O0"):
            import_measurements("profet", published / "p.csv")


UNKNOWN = "unknown"
TIMES = ("iteration_time", "epoch_time")


@pytest.mark.parametrize("name", DATA_SETS)
def test_what_a_source_measured_stands_in_our_columns(name, published, imported_cells):
    frame, _ = import_measurements(name, published)
    for column, expected in imported_cells[name].items():
        cells = [UNKNOWN if pd.isna(cell) else cell for cell in frame[column].tolist()]
        assert cells == pytest.approx(expected) if column.startswith(TIMES) else cells == expected, column


def test_a_time_far_from_its_neighbours_is_marked_but_kept(published):
    frame, report = import_measurements("lambda-tf", published)
    assert frame["notes"].str.contains("suspect").tolist() == [False, False, False, True]
    assert any(note.startswith("line 6: GeForce RTX 3090") for note in report.oddities)


def test_a_pass_that_was_not_timed_is_told(published):
    oddities = import_measurements("deepbench", published)[1].oddities
    assert any(note.startswith("1 rows have no backward_input") for note in oddities)


def test_the_data_readme_names_every_source():
    text = (Path(__file__).parents[4] / "datasets" / "README.md").read_text()
    assert [name for name in DATA_SETS if f"| `{name}` |" not in text] == []
