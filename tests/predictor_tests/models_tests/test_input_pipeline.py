"""The law of loading: the slower of loading and training, their sum without workers, and who shares what."""

import math

import numpy as np
import pytest
from case_tables import each_row

from predictor.models.input_pipeline import Feed, beside_workers, host_beside_workers, workers_start_s

ONE_MS = np.array([100.0]), np.array([90.0]), np.array([110.0])


def feed(**changed):
    return Feed(**{"per_worker": 100.0, "per_vcpu": 60.0, "workers": 4, "vcpus": math.inf} | changed)


def loading_ms(source, size=64, n_gpus=1):
    return float(source.loading(np.array([size]), n_gpus).time_ms[0])


def test_vcpus_and_a_slow_source_bound_workers_and_are_shared_by_the_gpus_of_a_machine():
    few = ((4, math.inf, 1, 400), (8, math.inf, 1, 800), (8, 4.0, 1, 240))
    for workers, vcpus, n_gpus, rate in (*few, (None, 4.0, 1, 240), (None, 16.0, 8, 120)):
        assert loading_ms(feed(workers=workers, vcpus=vcpus), n_gpus=n_gpus) == pytest.approx(
            64 / rate * 1000
        )
    slow = feed(workers=8, reading=80.0).loading(np.array([64]), 2)
    assert slow.is_reading.all()
    assert float(slow.time_ms[0]) == pytest.approx(64 / 40 * 1000)


@each_row
def test_the_slower_of_loading_and_training_bounds_an_iteration(changed, joined_ms):
    times = feed(**changed).loading(np.array([64]), 1).joined_ms(*ONE_MS)
    assert [float(ms[0]) for ms in times] == joined_ms


def test_without_workers_loading_and_training_add_up():
    alone = feed(workers=0).loading(np.array([64]), 1)
    assert alone.between
    assert float(alone.joined_ms(*ONE_MS)[0][0]) == pytest.approx(100 + 640)


@pytest.mark.parametrize("vcpus", [math.inf, 64.0])
def test_the_workers_needed_remove_the_bottleneck_and_one_fewer_does_not(vcpus):
    source = feed(vcpus=vcpus, per_vcpu=100.0)
    needed = int(source.workers_needed(np.array([64]), np.array([50.0]))[0])
    assert needed == math.ceil(64 / 0.050 / 100.0)
    assert loading_ms(feed(workers=needed)) <= 50.0 < loading_ms(feed(workers=needed - 1))


def test_beside_workers_the_host_takes_longer_and_a_busy_gpu_hides_it():
    bound, *free = (beside_workers(np.array([ms]), *ONE_MS) for ms in (100.0, 50.0, np.nan))
    assert float(bound[0][0]) == pytest.approx(100 * host_beside_workers())
    assert 90 < float(bound[1][0]) < float(bound[0][0]) < float(bound[2][0])
    assert [[float(ms[0]) for ms in times] for times in free] == [[100.0, 90.0, 110.0]] * 2


def test_a_pass_waits_for_its_workers_and_the_first_mini_batch_of_one_of_them():
    def wait_s(**changed):
        return float(feed(**changed).first_mini_batch_s(np.array([64]), 1)[0])

    def loading_s(**changed):
        return wait_s(**changed) - workers_start_s()

    assert loading_s() == loading_s(workers=8) == pytest.approx(0.64)
    assert loading_s(workers=8, vcpus=4.0) == pytest.approx(64 / 30)
    assert loading_s(workers=None, vcpus=4.0) == pytest.approx(64 / 60)
    assert wait_s(workers=0) == 0
    assert np.isnan(wait_s(workers=None, vcpus=np.array([np.nan])))
