"""Upstream's files become the published tables: made-up files of upstream's form, and the manifest."""

import re

import pytest

from predictor.errors import DataError, SchemaError
from predictor.measurements.published import DATA_SETS
from predictor.measurements.published.upstream import published_tables

TABLES = {each.table: each for each in published_tables()}
TIMES = "infer_samples_per_sec,infer_step_time"
INFER = f"model,infer_img_size,{TIMES},infer_batch_size,param_count,infer_gmacs,infer_macts"
OLDER = f"model,{TIMES},infer_batch_size,infer_img_size,infer_gmacs,infer_macts,param_count"
EAGER = "results/benchmark-infer-amp-nhwc-pt113-cu117-rtx3090.csv"
COMPILED = "results/benchmark-infer-bf16-nchw-pt291-cu130-pro6000maxq-dynamo.csv"


def rows_of(name, files):
    return list(DATA_SETS[name].from_upstream(files))


def test_every_table_that_importers_read_is_in_the_manifest():
    assert {each.table for each in DATA_SETS.values()} <= set(TABLES)
    assert {each.data_set for each in TABLES.values()} == set(DATA_SETS)


def test_a_table_has_files_and_a_converter_or_says_why_it_has_none():
    for each in TABLES.values():
        fetched = bool(each.files)
        assert fetched == (DATA_SETS[each.data_set].from_upstream is not None), each.table
        assert fetched == (not each.missing), each.table


def test_every_file_is_pinned_to_a_whole_commit_with_its_size():
    files = [file for each in TABLES.values() for file in each.files]
    wrong = [
        file.path
        for file in files
        if not re.fullmatch(r"[0-9a-f]{40}", file.commit)
        or not re.fullmatch(r"[\w.-]+/[\w.-]+", file.repository)
        or not re.fullmatch(r"([0-9a-f]{64})?", file.sha256)
        or file.n_bytes <= 0
    ]
    assert files
    assert wrong == []


def test_the_names_of_timms_forward_results_are_all_understood():
    files = {file.path: INFER for file in TABLES["timm_forward.csv.gz"].files}
    assert rows_of("timm-forward", files) == []


def test_a_forward_result_keeps_upstreams_digits_in_any_order_of_columns():
    files = {
        EAGER: f"{OLDER}\r\nnet,72737.62,14.070,1024,106,0.03,0.69,2.04\r\n",
        COMPILED: f"{INFER}\nnet,160,662619.72,3.073,2048,0.37,0.04,0.48\n",
    }
    first, second = rows_of("timm-forward", files)
    assert first["iteration_time_ms"] == "14.070"
    assert (first["gpu"], first["framework"], first["precision"], first["memory_format"]) == (
        "RTX 3090",
        "pytorch 1.13 cu117 eager",
        "amp_fp16",
        "channels_last",
    )
    assert (second["gpu"], second["framework"], second["precision"], second["batch_size_per_gpu"]) == (
        "RTX PRO 6000 Blackwell Max-Q",
        "pytorch 2.9.1 cu130 torch.compile",
        "bf16",
        "2048.0",
    )


def test_a_cnn_that_did_not_fit_has_no_row():
    text = f"{INFER}\nbig,448,,,,1132.46,497.58,4350.56\nnet,160,1.0,2.0,4.0,0.37,0.04,0.48\n"
    (row,) = rows_of("timm-forward", {"benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv": text})
    assert row["cnn"] == "net"


def test_a_result_of_another_name_is_refused():
    with pytest.raises(SchemaError, match="is not named as timm names its results"):
        rows_of("timm-forward", {"results/results-imagenet.csv": INFER})


def test_a_latency_of_neusight_is_rounded_to_six_digits_and_its_kernel_kept_whole():
    names = ["Latency", "Device", "Torch Version", "Kernel Name", "B", "Input_Channel", "Output_Channel"]
    names += ["Kernel_Szie", "Input_Size", "Stride", "Padding"]
    kernel = "void implicit_convolve_sgemm<float, float, 128>(int, int)"
    values = [
        "0.061055999249219894",
        "Tesla P4",
        "p2.1.0",
        f'"{kernel}"',
        *["38", "893", "326", "3", "5", "1", "1"],
    ]
    (row,) = rows_of("neusight", {"Tesla P4.csv": ",".join(names) + "\n" + ",".join(values) + "\n"})
    assert row["forward_time_ms"] == "0.061056"
    assert row["kernel_name"] == kernel
    assert (row["framework"], row["in_size"], row["in_channels"]) == ("pytorch-2.1.0", "5", "893")


def test_a_table_of_other_rows_is_refused_with_both_numbers():
    with pytest.raises(DataError, match="has 1 rows; the released figures come from 1,672"):
        TABLES["timm_training_rtx3090.csv.gz"].check(b"gpu\none\n")


def test_a_folder_is_told_apart_by_what_it_has(tmp_path):
    table = TABLES["timm_training_rtx3090.csv.gz"]
    assert table.state(tmp_path) == "missing"
    (tmp_path / table.table).write_bytes(b"something else")
    assert table.state(tmp_path) == "differs"


def test_the_tables_of_the_released_figures_are_those_of_the_manifest(real_tables):
    assert {each.table: each.state(real_tables) for each in TABLES.values()} == dict.fromkeys(TABLES, "there")
