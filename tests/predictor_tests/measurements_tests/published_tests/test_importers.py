"""Importers on made-up tables: units, words, names, passes, and what becomes of bad rows."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from predictor.errors import DataError, SchemaError
from predictor.evaluation.scenarios import SCENARIOS
from predictor.measurements.published import (
    import_measurements,
    load_published,
)
from predictor.measurements.published.sources import DATA_SETS
from predictor.measurements.schema import COLUMNS, is_set


@pytest.mark.parametrize("name", DATA_SETS)
class TestEveryImporter:
    def test_gives_a_checked_table_and_a_report(self, name, published):
        frame, report = import_measurements(name, published)
        assert report.n_measurements == len(frame) > 0
        assert report.n_kept + len(report.rejected) == report.n_read

    def test_takes_the_file_as_well_as_the_folder(self, name, published):
        from_folder, _ = import_measurements(name, published)
        single, _ = import_measurements(name, published / DATA_SETS[name].table)
        pd.testing.assert_frame_equal(from_folder, single)

    def test_reads_the_table_unpacked(self, name, published):
        table = published / DATA_SETS[name].table
        (published / table.stem).write_bytes(gzip.decompress(table.read_bytes()))
        table.unlink()
        assert len(import_measurements(name, published)[0]) > 0

    def test_says_what_is_odd_about_its_source(self, name, published):
        assert "note: " in str(import_measurements(name, published)[1])

    def test_refuses_a_table_that_lacks_a_column(self, name, published):
        path = published / DATA_SETS[name].table
        pd.read_csv(path).drop(columns="gpu").to_csv(path, index=False)
        with pytest.raises(SchemaError, match="lacks the column 'gpu'"):
            import_measurements(name, published)

    def test_refuses_an_empty_file(self, name, published):
        (published / "empty.csv").write_text("")
        with pytest.raises(SchemaError, match="is empty"):
            import_measurements(name, published / "empty.csv")

    def test_says_which_file_is_missing(self, name, tmp_path):
        with pytest.raises(DataError, match=f"there is no {DATA_SETS[name].table}"):
            import_measurements(name, tmp_path)

    def test_names_project_licence_and_citation(self, name):
        card = DATA_SETS[name].provenance
        assert all((card.project, card.repository.startswith("https://"), card.licence, card.citation))


def test_every_card_says_what_its_iterations_hold_in_columns_of_the_table():
    names = {entry.name for entry in COLUMNS}
    assert not {
        (name, column) for name, data_set in DATA_SETS.items() for column in {*data_set.holds} - names
    }


def test_every_whole_cnn_says_whether_it_copies_its_images_or_the_card_says_why_not():
    silent = {
        n
        for n, data_set in DATA_SETS.items()
        if data_set.holds["kind"] == "target" and "copies_input" not in data_set.holds
    }
    assert silent == {"pytorch"}  # differs from row to row there


def test_every_published_source_of_a_scenario_is_a_data_set():
    needed = {source.split("/")[0] for scenario in SCENARIOS.values() for source in scenario.sources}
    assert needed - {"h200", "h100"} <= {*DATA_SETS}


def test_an_unknown_importer_is_refused_with_the_nearest(published):
    with pytest.raises(DataError, match="Nearest: 'profet'"):
        import_measurements("profit", published)


def test_the_environment_tells_where_the_tables_are(published, monkeypatch):
    monkeypatch.setenv("EPOCHCAST_PUBLISHED_DATA", str(published))
    assert len(import_measurements("profet")[0]) == 1


def test_all_sources_make_one_table(published):
    joined = load_published(published)
    assert len(joined) == sum(len(import_measurements(name, published)[0]) for name in DATA_SETS)


def test_some_sources_can_be_chosen(published):
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

    def test_of_other_makers_gpus_are_listed(self, published):
        _, report = import_measurements("lambda-tf", published)
        assert report.rejected == [(5, "'Radeon Pro VII' is not an NVIDIA GPU.")]

    def test_of_ambiguous_gpus_are_listed(self, published, profet_row):
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


class TestProfet:
    def test_repeats_become_a_median_in_milliseconds(self, published):
        row = import_measurements("profet", published)[0].iloc[0]
        assert row["iteration_time_ms"] == pytest.approx(11.0)
        assert row["iteration_time_ms_iqr"] == pytest.approx(1.0)
        assert (row["n_repeats"], row["epoch_time_s"]) == (3, pytest.approx(44.0))

    def test_the_source_stands_in_the_cnns_name_and_the_instance_is_the_host(self, published):
        row = import_measurements("profet", published)[0].iloc[0]
        assert (row["cnn"], row["host"], row["kind"]) == ("profet/LeNet5", "p2.xlarge", "target")

    def test_an_iteration_copies_its_images(self, published):
        assert import_measurements("profet", published)[0]["copies_input"].tolist() == [True]

    def test_the_epochs_validation_pass_is_told(self, published):
        assert import_measurements("profet", published)[0]["validation_samples"].tolist() == [10_000]


class TestBareConvolutions:
    def test_without_optimizer_only_the_forward_pass_was_timed(self, published):
        frame, _ = import_measurements("justus", published)
        assert frame["pass"].tolist() == ["forward", "training", "forward", "forward"]
        assert frame["optimizer"].tolist() == [None, "adam", None, None]

    def test_are_named_by_their_shape(self, published):
        names = import_measurements("justus", published)[0]["cnn"].tolist()
        assert names[:2] == ["justus/32_16_64", "justus/32_16_64_k2_s2"]

    def test_paddings_follow_from_the_sizes_where_they_are_symmetric(self, published):
        frame, _ = import_measurements("justus", published)
        assert frame["padding_height"].fillna(-1).tolist() == [1, 0, -1, 0]
        assert frame["out_height"].tolist() == [32, 16, 32, 30]

    def test_parameters_count_the_bias_where_there_is_one(self, published):
        parameters = import_measurements("justus", published)[0]["parameters"].tolist()
        assert (parameters[0], parameters[3]) == (9 * 16 * 64 + 64, 9 * 16 * 64)

    def test_deepbenchs_three_passes_become_three_rows(self, published):
        frame, report = import_measurements("deepbench", published)
        assert frame["pass"].tolist() == [
            "forward", "backward_input", "backward_weight", "forward", "backward_weight",
        ]  # fmt: skip
        assert any(note.startswith("1 rows have no backward_input") for note in report.oddities)

    def test_oblong_shapes_keep_both_sides(self, published):
        row = import_measurements("deepbench", published)[0].iloc[0]
        assert row["cnn"] == "deepbench/161x700_1_32_k5x20_s2"
        assert (row["out_height"], row["out_width"], row["precision"]) == (79, 341, "amp_fp16")

    def test_the_kernel_that_ran_is_the_algorithm(self, published):
        stored = import_measurements("deepbench", published)[0]["conv_algorithms"][0]
        assert json.loads(stored) == {"conv": {"forward": "WINOGRAD"}}


class TestTrainedCnns:
    def test_lambdas_framework_is_split_into_name_version_and_xla(self, published):
        frame, _ = import_measurements("lambda-tf", published)
        row = frame.iloc[0]
        assert (row["framework"], row["framework_version"], row["host"]) == ("tensorflow", "1.15", "3970X")
        assert frame["xla"].tolist() == [True, True, True, False]

    def test_a_time_far_from_its_neighbours_is_marked_but_kept(self, published):
        frame, report = import_measurements("lambda-tf", published)
        assert frame["notes"].str.contains("suspect").tolist() == [False, False, False, True]
        assert any(note.startswith("line 6: GeForce RTX 3090") for note in report.oddities)

    def test_timms_words_become_ours(self, published):
        row = import_measurements("timm", published)[0].iloc[0]
        assert (row["precision"], row["memory_format"]) == ("amp_fp16", "channels_last")
        assert (row["cnn"], row["optimizer"], row["autotune"]) == ("timm/mobilenetv2_100", "momentum", True)

    def test_forward_passes_of_timm_are_those_that_no_compiler_touched(self, published):
        frame, _ = import_measurements("timm-forward", published)
        (row,) = frame.to_dict("records")
        assert (row["cnn"], row["pass"], row["batch_size"]) == ("timm/resnet50", "forward", 1024)
        assert (row["framework"], row["framework_version"]) == ("pytorch", "2.4.0")

    def test_sias_steps_say_that_they_wait_for_a_loader(self, published):
        path = published / "pytorch_training.csv.gz"
        rows = pd.read_csv(path)
        pd.concat([rows, rows.head(1).assign(source="sia")]).to_csv(path, index=False)
        frame = import_measurements("pytorch", published)[0]
        assert is_set(frame, "waits_for_loader").tolist() == [False, False, True]
        assert is_set(frame, "copies_input").tolist()[2]

    def test_the_pytorch_tables_three_projects_stay_apart(self, published):
        frame, _ = import_measurements("pytorch", published)
        assert frame["source"].tolist() == ["pytorch/lambda", "pytorch/gpu-benchmark"]
        assert frame["pass"].tolist() == ["training", "forward_backward"]
        assert frame["cnn"].tolist() == ["pytorch/resnet50", "pytorch/vgg11"]
        assert frame["autotune"].isna().tolist() == [True, False]


def test_the_data_readme_names_every_source():
    text = (Path(__file__).parents[4] / "datasets" / "README.md").read_text()
    assert [name for name in DATA_SETS if f"| `{name}` |" not in text] == []
