"""What enqueuing costs: kept as JSON, compared with what a model predicts."""

from dataclasses import replace
from pathlib import Path

import pytest

from predictor.catalogue.modes import Mode
from predictor.errors import OutOfRangeError, SchemaError
from predictor.files import data_root
from predictor.measurements.hosts import (
    HostMeasurement,
    HostTime,
    read_host,
    write_host,
)

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


def slower(factor: float) -> HostMeasurement:
    times = (replace(each, host_time_ms=factor * each.host_time_ms) for each in FAST.times)
    return HostMeasurement("slow", tuple(times))


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    write_host(FAST, tmp_path / "host.json")
    assert read_host(tmp_path / "host.json") == FAST


def predicted(cnn: str, image_size: int) -> float:
    return {("resnet18", 32): 4.0, ("lenet5", 28): 1.0}[cnn, image_size]


def test_a_machine_twice_as_slow_in_the_mode_is_as_slow_but_for_a_fifth_of_the_logarithm() -> None:
    assert slower(2.0).slowness(Mode(precision="tf32"), predicted) == pytest.approx(2.0**0.8)


def test_a_mode_that_was_not_measured_takes_the_other_modes_of_the_framework() -> None:
    found = slower(3.0).slowness(Mode(precision="amp_fp16", memory_format="channels_last"), predicted)
    assert found == pytest.approx((3.0 * 1.25 ** (1 / 3)) ** 0.8)  # AMP bf16's ResNet-18 took 5 ms, not 4


def test_a_framework_that_was_not_measured_is_refused_with_the_next_step() -> None:
    with pytest.raises(OutOfRangeError, match="epochcast host --framework chainer"):
        slower(2.0).slowness(Mode("chainer"), predicted)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "not a file of"),
        ('{"format_version": 9, "host": "x", "times": []}', "format_version is 9"),
        ('{"format_version": 1, "host": "x", "times": [{"framework": "torch"}]}', "not a file of"),
        ("{", "not a file of"),
    ],
)
def test_another_file_is_refused_with_the_next_step(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SchemaError, match=why):
        read_host(tmp_path / "x.json")


@pytest.mark.parametrize("ms", [0.0, -1.0, float("inf"), "4"])
def test_a_time_that_is_none_is_refused(ms: float) -> None:
    with pytest.raises(SchemaError, match="not a finite number above 0"):
        HostTime("pytorch", "gpu", "tf32", "nchw", "resnet18", 32, ms)


def test_the_measured_hosts_of_the_checkout_are_read() -> None:
    files = sorted((data_root() / "hosts").glob("*.json"))
    assert {read_host(file).gpu for file in files} == {"NVIDIA H200", "NVIDIA H100 80GB HBM3"}
