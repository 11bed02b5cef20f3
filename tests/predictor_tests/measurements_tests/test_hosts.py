"""What enqueuing costs: kept as JSON, compared with what a model predicts."""

import pytest
from case_tables import each_row

from predictor.answers.answer import answer
from predictor.answers.question import Question
from predictor.errors import OutOfRangeError, SchemaError
from predictor.files import data_root
from predictor.measurements.hosts import HostMeasurement, HostTime, read_host, write_host
from predictor.measurements.table import read_measurements, write_measurements

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


def test_a_file_gives_back_what_was_written_with_an_editors_byte_order_mark_too(tmp_path):
    path = tmp_path / "host.json"
    write_host(FAST, path)
    assert read_host(path) == FAST
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_host(path) == FAST


def test_the_reference_is_the_mean_of_all_modes_without_what_autocast_adds():
    assert FAST.reference_ms("pytorch", autocast=1.25) == pytest.approx(4.0)
    assert FAST.reference_ms("pytorch", autocast=1.0) == pytest.approx((4.0 * 5.0) ** 0.5)


def test_a_framework_that_was_not_measured_is_refused_with_the_next_step():
    with pytest.raises(OutOfRangeError, match="epochcast host --framework chainer"):
        FAST.reference_ms("chainer", 1.2)


@each_row
def test_another_file_is_refused_with_the_next_step(tmp_path, text, times, why):
    (tmp_path / "x.json").write_text(text * times)
    with pytest.raises(SchemaError, match=why):
        read_host(tmp_path / "x.json")


def test_a_profile_leaves_its_hosts_times_in_its_table():
    table = data_root() / "measurements" / "h100_pytorch_founding_cnns.csv.gz"
    measured = read_host(table)
    assert measured.host == "Intel(R) Xeon(R) Processor, 16 cores"
    assert [time.precision for time in measured.times] == ["tf32"]
    noted = read_measurements(table)["host_cnn_ms"]
    assert noted.min() <= measured.reference_ms("pytorch", 1.0) <= noted.max()
    hosts = str(table), None
    answers = [answer(Question("resnet18", "H100 SXM", 4, host=host)).rows()[0] for host in hosts]
    assert len({time.host_time_ms for time in answers}) == 2


def test_a_table_of_several_hosts_is_none(tmp_path):
    table = read_measurements(data_root() / "measurements" / "h100_pytorch_founding_cnns.csv.gz")
    table.loc[table.index[0], "host"] = "another"
    write_measurements(table, tmp_path / "two.csv")
    with pytest.raises(SchemaError, match="of 2 hosts"):
        read_host(tmp_path / "two.csv")


@pytest.mark.parametrize("ms", [0.0, -1.0, float("inf"), "4"])
def test_a_time_that_is_none_is_refused(ms):
    with pytest.raises(SchemaError, match="not a finite number above 0"):
        HostTime("pytorch", "gpu", "tf32", "nchw", "resnet18", 32, ms)


def test_the_measured_hosts_of_the_checkout_are_read():
    files = sorted((data_root() / "hosts").glob("*.json"))
    assert {read_host(file).gpu for file in files} == {"NVIDIA H200", "NVIDIA H100 80GB HBM3"}
