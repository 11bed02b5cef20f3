"""Rows on disk: torn lines, full disks, other runs' files, and tables that the core reads."""

import errno
import gzip
import json
import os
from contextlib import closing

import pytest
from small_subjects import OPERATORS, TARGETS, configurations_of

from predictor.errors import ProfilingError, SchemaError
from predictor.measurements.table import read_measurements, write_measurements
from proxy_cnns import rows_file
from proxy_cnns.profiler import Measured

IDENTITY = {"preset": "quick", "gpu": "NVIDIA H200"}
ABOUT = {"framework": "pytorch", "framework_version": "2.11.0", "gpu": "NVIDIA H200", "device_kind": "gpu"}
MEASURED = Measured((2.0, 2.1), (1.9, 1.9), (0.5,), 100.0, None, n_warmup=7, chunk=3)
SETTINGS = configurations_of(TARGETS) + configurations_of(OPERATORS)


def entry_of(configuration, measured=MEASURED):
    row = rows_file.measurement_row(configuration, measured, ABOUT)
    return {"row": row, "repeats": rows_file.repeats_of(measured, configuration.subject.kind)}


@pytest.fixture(params=["run.csv", "run.csv.gz", "run.parquet"])
def out(request, tmp_path):
    return tmp_path / request.param


@pytest.fixture
def rows_path(out):
    return out.with_name(f"{out.name}.rows.jsonl")


def append(rows_path, *entries):
    with closing(rows_file.RunFile(rows_path, IDENTITY)) as file:
        for entry in entries:
            file.append(entry)


@pytest.fixture
def filled(out, rows_path):
    append(rows_path, *map(entry_of, SETTINGS))
    return out


def sidecar_of(out):
    content = rows_file.sidecar_path(out).read_bytes()
    return json.loads(gzip.decompress(content) if out.suffix == ".gz" else content)


def test_a_torn_last_line_is_dropped_and_after_it_rows_are_appended_whole(filled, rows_path):
    assert set(rows_file.read_run(filled, IDENTITY).rows) == set(map(rows_file.configuration_key, SETTINGS))
    rows_path.write_bytes(rows_path.read_bytes()[:-20])
    assert len(rows_file.read_run(filled, IDENTITY).rows) == len(SETTINGS) - 1
    append(rows_path, entry_of(SETTINGS[-1]))
    assert len(rows_file.read_run(filled, IDENTITY).rows) == len(SETTINGS)


def test_a_row_is_in_the_file_before_it_is_closed_and_no_other_run_writes_there(out, rows_path):
    with closing(rows_file.RunFile(rows_path, IDENTITY, sync_each=False)) as file:
        file.append(entry_of(SETTINGS[0]))
        assert len(rows_file.read_run(out, IDENTITY).rows) == 1
        with pytest.raises(SchemaError, match="another run is writing"):
            rows_file.RunFile(rows_path, IDENTITY)


def test_a_damaged_line_is_named_and_another_runs_file_refused_with_what_differs(filled, rows_path):
    with pytest.raises(SchemaError, match=r"preset 'quick' there, 'library' now.*another --out"):
        rows_file.read_run(filled, IDENTITY | {"preset": "library"})
    lines = rows_path.read_bytes().split(b"\n")
    rows_path.write_bytes(b"\n".join([lines[0], b"{not json", *lines[1:]]))
    with pytest.raises(SchemaError, match=r"line 2 is not JSON"):
        rows_file.read_run(filled, IDENTITY)


def test_the_table_is_what_the_core_reads_and_the_sidecar_keeps_repeats_or_quartiles(filled):
    rows_file.write_table(rows_file.read_run(filled, IDENTITY), filled, {"driver": "580"})
    table = read_measurements(filled)
    assert len(table) == len(SETTINGS)
    assert set(table["gpu_time_ms"]) == {1.9}
    assert table.loc[table["kind"] == "target", "n_warmup"].tolist() == [7.0] * 8
    sidecar = sidecar_of(filled)
    assert sidecar["environment"] == {"driver": "580"}
    assert sidecar["repeats"][-1]["iteration_times_ms"] == [2.0, 2.1]
    assert sidecar["repeats"][0] == {"quantiles_ms": [1.9] * 5}


def test_a_table_holds_the_same_whatever_its_suffix_and_csv_is_as_the_core_writes_it(filled, tmp_path):
    rows_file.write_table(rows_file.read_run(filled, IDENTITY), filled, {})
    write_measurements(read_measurements(filled), tmp_path / "again.csv")
    assert read_measurements(filled).equals(read_measurements(tmp_path / "again.csv"))
    assert filled.suffix != ".csv" or filled.read_bytes() == (tmp_path / "again.csv").read_bytes()


def test_the_same_run_gives_the_same_bytes_and_a_finished_table_is_opened_again(filled, rows_path):
    run = rows_file.read_run(filled, IDENTITY)
    rows_file.write_table(run, filled, {})
    first = filled.read_bytes()
    run.rows = dict(reversed(run.rows.items()))
    rows_file.write_table(run, filled, {})
    assert filled.read_bytes() == first
    rows_path.unlink()
    assert rows_file.read_run(filled, IDENTITY).rows.keys() == run.rows.keys()
    assert rows_file.reopen(filled) == rows_path
    assert rows_file.read_run(filled, IDENTITY).repeats == run.repeats


def test_the_end_of_a_series_outlives_the_run(out, rows_path):
    key = rows_file.configuration_key(SETTINGS[4])  # batch 64
    end = {"series": key[:-1], "batch_size": 64, "reason": "out of memory"}
    append(rows_path, entry_of(SETTINGS[0]), {"ended": end})
    rows_file.write_table(rows_file.read_run(out, IDENTITY), out, {})
    rows_path.unlink()
    run = rows_file.read_run(out, IDENTITY)
    assert run.ends((*key[:-1], "128"))["reason"] == "out of memory"
    assert run.ends((*key[:-1], "16")) is None


def test_a_table_of_another_kind_is_not_overwritten(out):
    out.write_text("gpu,cnn\nT4,resnet50\n")
    with pytest.raises(SchemaError, match="no table of `epochcast profile`"):
        rows_file.read_run(out, IDENTITY)


def test_a_table_beside_a_sidecar_of_another_is_refused(filled, rows_path):
    rows_file.write_table(rows_file.read_run(filled, IDENTITY), filled, {})
    rows_path.unlink()
    sidecar = sidecar_of(filled)
    sidecar["repeats"].pop()
    text = json.dumps(sidecar).encode()
    rows_file.sidecar_path(filled).write_bytes(gzip.compress(text) if filled.suffix == ".gz" else text)
    with pytest.raises(SchemaError, match="do not belong together"):
        rows_file.read_run(filled, IDENTITY)


NO_TABLE = dict.fromkeys(("table", "table.json", "table.parquet.gz"), r"none of .csv, .csv.gz, .parquet")


@pytest.mark.parametrize(("name", "words"), [*NO_TABLE.items(), ("none/x.csv", "there is not a folder")])
def test_only_tables_in_folders_that_are_there_are_written(tmp_path, name, words):
    with pytest.raises(SchemaError, match=words):
        rows_file.read_run(tmp_path / name, IDENTITY)


@pytest.mark.parametrize("short", [True, False], ids=["half a line fits", "nothing fits"])
def test_a_full_disk_is_said_and_loses_nothing(out, rows_path, monkeypatch, short):
    file = rows_file.RunFile(rows_path, IDENTITY)
    file.append(entry_of(SETTINGS[0]))
    write = os.write

    def full(descriptor, data):
        if short:
            return write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ProfilingError, match=r"No space left on device.*kept; make room"):
        file.append(entry_of(SETTINGS[1]))
    monkeypatch.undo()
    file.append(entry_of(SETTINGS[2]))
    file.close()
    assert list(rows_file.read_run(out, IDENTITY).rows) == list(
        map(rows_file.configuration_key, SETTINGS[:3:2])
    )


def test_a_device_without_room_is_said(monkeypatch, filled, tmp_path):
    def no_room(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = rows_file.read_run(filled, IDENTITY)
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(ProfilingError, match="No space left"):
        rows_file.write_table(run, filled, {})
    assert rows_file.rows_paths(filled) != []


def test_links_stay_links_to_the_table_and_its_sidecar(filled, tmp_path):
    (tmp_path / "kept").mkdir()
    links = (filled, rows_file.sidecar_path(filled))
    for link in links:
        link.symlink_to(tmp_path / "kept" / link.name)
    rows_file.write_table(rows_file.read_run(filled, IDENTITY), filled, {})
    assert all(link.is_symlink() for link in links)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == sorted(link.name for link in links)


def test_names_with_brackets_are_names(tmp_path):
    out = tmp_path / "run[1].csv"
    rows_file.RunFile(out.with_name(f"{out.name}.rows.jsonl"), IDENTITY).close()
    assert len(rows_file.rows_paths(out)) == 1
