"""The file of `epochcast profile input`: what is written is read, what is damaged is refused."""

import json

import pytest
from case_tables import each_row

from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.inputs import InputMeasurement, WorkerRate, read_input, write_input

MEASURED = InputMeasurement(
    "a host", 4, "torchvision", 224, 200, 0.1, 0.19, (WorkerRate(0, 180.0), WorkerRate(1, 200.0), WorkerRate(4, 640.0)),
    read_us=12.0, decode_us=2000.0, augment_us=900.0,
)  # fmt: skip


def test_what_is_written_is_read(tmp_path):
    write_input(MEASURED, tmp_path / "input.json")
    assert read_input(tmp_path / "input.json") == MEASURED


def test_a_worker_alone_and_a_busy_vcpu_have_rates():
    assert (MEASURED.samples_per_worker_second, MEASURED.samples_per_vcpu_second) == (200.0, 160.0)


def test_a_busy_machine_needs_as_many_workers_as_vcpus():
    few = InputMeasurement("a host", 8, "pillow", 224, 200, 0.1, 0.19, (WorkerRate(1, 200.0),))
    with pytest.raises(OutOfRangeError, match=r"at most 1 workers .* 8 vCPUs .*--workers 1,8"):
        _ = few.samples_per_vcpu_second


@each_row
def test_a_damaged_file_is_refused_with_the_next_step(tmp_path, changed, message):
    path = tmp_path / "input.json"
    write_input(MEASURED, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(SchemaError, match=rf"{message}.*epochcast profile input --out"):
        read_input(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SchemaError, match=r"nowhere.json is not a file of `epochcast profile input`"):
        read_input(tmp_path / "nowhere.json")
