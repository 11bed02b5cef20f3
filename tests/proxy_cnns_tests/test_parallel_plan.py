"""The preset ddp: which numbers of GPUs are measured on what, in which order, and how its rows are told apart."""

import json
from dataclasses import replace

import pytest

from epochcast.profiling import ProfileRequest, request_for
from predictor.catalogue.modes import Mode
from predictor.measurements.table import read_measurements
from proxy_cnns.configuration import Configuration, Replicas, Subject
from proxy_cnns.data_parallel import gpu_counts
from proxy_cnns.presets import BUCKETS, PRESETS, configurations, parallel_configurations, preset
from proxy_cnns.profiler import Limits, Measured
from proxy_cnns.rows_file import configuration_key, key_of, measurement_row
from proxy_cnns.runs import profile
from proxy_cnns.user_cnns import target_subject


@pytest.fixture(scope="module")
def planned():
    return parallel_configurations(configurations(preset("ddp"))[0], gpu_counts(4))


def test_one_gpu_all_and_the_powers_of_two_between_are_measured():
    assert [gpu_counts(n) for n in (2, 4, 6, 8)] == [(1, 2), (1, 4, 2), (1, 6, 4, 2), (1, 8, 4, 2)]


def test_every_configuration_comes_once_beside_one_gpu(planned):
    keys = [configuration_key(config) for config in planned]
    assert len(set(keys)) == len(keys)
    targets = [config for config in planned if config.subject.kind == "target"]
    cases = [(config.subject.name, config.mode, config.batch_size) for config in targets]
    alone = {case for case, config in zip(cases, targets, strict=True) if config.replicas.n_gpus == 1}
    assert set(cases) == alone


def test_all_reduces_come_first_then_all_numbers_of_gpus_then_other_buckets(planned):
    sums = 2 * len(PRESETS["ddp"]["all_reduce_bytes"])
    assert {config.subject.kind for config in planned[:sums]} == {"all_reduce"}
    assert [config.replicas.n_gpus for config in planned[sums : sums + 6]] == [1, 4, 2, 1, 4, 2]
    replicas = [config.replicas for config in planned]
    other_buckets = [copies for copies in replicas if copies.bucket_mib != 25 or copies.bucket_view]
    assert len(other_buckets) == 3 * len(BUCKETS)
    assert {copies.n_gpus for copies in other_buckets} == {4}


def test_a_row_holds_the_mini_batch_of_all_gpus_and_its_buckets(planned):
    measured = Measured((10.0,) * 6, None, ())
    for config in (planned[0], planned[27], next(later for later in planned if later.replicas.bucket_view)):
        row = measurement_row(config, measured, {"gpu": "NVIDIA H200"})
        assert row["batch_size"] == config.batch_size * config.replicas.n_gpus
        assert row["n_gpus"] == config.replicas.n_gpus
        assert key_of(json.loads(json.dumps(row))) == configuration_key(config)


def test_two_processes_train_together_on_a_cpu(tmp_path):
    cnn, add_up = target_subject("lenet5"), Subject("all_reduce", "all_reduce_1000", 1, message_bytes=1000)
    subjects = ((add_up, 1, Replicas(2)), (cnn, 4, Replicas()), (cnn, 4, Replicas(2)))
    small = tuple(Configuration(subject, Mode(), size, copies) for subject, size, copies in subjects)
    request, _ = request_for(ProfileRequest("ddp", device="cpu", allow_noise=True), tmp_path / "t.csv")
    quick = Limits(0.01, 0.01, 0.0, 0.0, 1, 1, 2)
    request = replace(request, configurations=small, limits=dict.fromkeys(request.limits, quick))
    outcome = profile(request)
    assert (outcome.rows, outcome.failed) == (3, ())
    rows = read_measurements(tmp_path / "t.csv")
    assert sorted(zip(rows["kind"], rows["n_gpus"], rows["batch_size"], strict=True)) == [
        ("all_reduce", 2, 2),
        ("target", 1, 4),
        ("target", 2, 8),
    ]
    assert rows.loc[rows["kind"] == "all_reduce", "message_bytes"].tolist() == [1000]
