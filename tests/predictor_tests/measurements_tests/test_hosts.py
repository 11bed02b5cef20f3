"""What enqueuing costs: kept as JSON, compared between machines, read from measurement tables."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.hosts import (
    HostMeasurement,
    HostTime,
    host_factor,
    host_of_rows,
    read_host,
    shipped_hosts,
    write_host,
)
from predictor.measurements.table import check_measurements

FAST = HostMeasurement(
    "fast",
    (
        HostTime("pytorch", "gpu", "tf32", "nchw", "resnet18", 32, 4.0),
        HostTime("pytorch", "gpu", "tf32", "nchw", "lenet5", 28, 1.0),
        HostTime("pytorch", "gpu", "amp_bf16", "nchw", "resnet18", 32, 5.0),
        HostTime("pytorch", "cpu", "fp32", "nchw", "2_8_8", 2, 0.5),
    ),
    kernel_us=5.0,
)
TARGET = {
    "kind": "target",
    "cnn": "resnet18",
    "image_size": 32,
    "batch_size": 8,
    "gpu": "NVIDIA H200",
    "framework": "pytorch",
    "precision": "tf32",
    "memory_format": "nchw",
    "host": "mine",
    "iteration_time_ms": 9.0,
}


def slower(factor: float) -> HostMeasurement:
    times = (replace(each, host_time_ms=factor * each.host_time_ms) for each in FAST.times)
    return HostMeasurement("slow", tuple(times))


def of_device(measured: HostMeasurement, device: str) -> HostMeasurement:
    return replace(measured, times=tuple(each for each in measured.times if each.device == device))


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    write_host(FAST, tmp_path / "host.json")
    assert read_host(tmp_path / "host.json") == FAST


def test_a_machine_twice_as_slow_has_factor_two_in_the_mode_asked_about() -> None:
    found = host_factor(slower(2.0), FAST, "pytorch", "tf32", "nchw")
    assert (found.factor, found.ln_spread, found.n, found.basis) == (
        pytest.approx(2),
        pytest.approx(0),
        2,
        "mode",
    )


def test_a_mode_that_was_not_measured_takes_the_other_modes_of_the_framework() -> None:
    found = host_factor(slower(3.0), FAST, "pytorch", "amp_fp16", "channels_last")
    assert (found.factor, found.n, found.basis) == (pytest.approx(3), 3, "framework")


def test_a_machine_without_a_gpu_is_compared_by_iterations_on_the_cpu() -> None:
    found = host_factor(of_device(slower(1.5), "cpu"), FAST, "pytorch", "tf32", "nchw")
    assert (found.factor, found.basis) == (pytest.approx(1.5), "cpu")


def test_the_spread_is_that_of_the_ratios() -> None:
    first, *others = slower(2.0).times
    uneven = replace(slower(2.0), times=(replace(first, host_time_ms=16.0), *others))
    found = host_factor(uneven, FAST, "pytorch", "tf32", "nchw")
    assert found.factor == pytest.approx((4 * 2) ** 0.5)
    assert found.ln_spread == pytest.approx(0.49, abs=0.01)


def test_machines_without_an_iteration_in_common_are_refused_with_the_next_step() -> None:
    with pytest.raises(OutOfRangeError, match="epochcast host --framework chainer"):
        host_factor(slower(2.0), FAST, "chainer", "fp32", "nchw")


def test_rows_of_a_measurement_table_stand_for_their_host() -> None:
    rows = [TARGET | {"host_time_ms": ms} for ms in (5.0, 6.0, 7.0)]
    rows += [
        TARGET | {"host_time_ms": 99.0, "batch_size": 512},
        TARGET | {"host": "other", "host_time_ms": 1.0},
    ]
    (time,) = host_of_rows(check_measurements(pd.DataFrame(rows), "rows"), "mine").times
    assert (time.subject, time.precision, time.host_time_ms) == (("resnet18", 32), "tf32", 6.0)


def test_the_reference_time_of_a_run_stands_for_its_host() -> None:
    table = check_measurements(pd.DataFrame([TARGET | {"cnn": "vgg16", "host_cnn_ms": 4.5}]), "rows")
    assert host_of_rows(table, "mine").times[0].host_time_ms == 4.5


def test_a_host_without_a_row_that_shows_it_is_refused() -> None:
    table = check_measurements(pd.DataFrame([TARGET | {"cnn": "vgg16", "host_time_ms": 5.0}]), "rows")
    with pytest.raises(OutOfRangeError, match="no eager iteration"):
        host_of_rows(table, "mine")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "no file of"),
        ('{"format_version": 9, "host": "x", "times": []}', "format_version is 9"),
        ('{"format_version": 1, "host": "x", "times": [{"framework": "torch"}]}', "no file of"),
        ("{", "no file of"),
    ],
)
def test_another_file_is_refused_with_the_next_step(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SchemaError, match=why):
        read_host(tmp_path / "x.json")


@pytest.mark.parametrize("ms", [0.0, -1.0, float("inf"), "4"])
def test_a_time_that_is_none_is_refused(ms: float) -> None:
    with pytest.raises(SchemaError, match="no finite number above 0"):
        HostTime("pytorch", "gpu", "tf32", "nchw", "resnet18", 32, ms)


def test_the_hosts_that_come_with_the_data_are_read_and_compared() -> None:
    first, *others = shipped_hosts().values()
    assert others
    for other in others:
        assert 0.3 < host_factor(other, first, "pytorch", "tf32", "nchw").factor < 3
