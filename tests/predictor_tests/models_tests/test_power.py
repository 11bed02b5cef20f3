"""The law of power: what it was fitted on, how far it may err, and what bounds it."""

import numpy as np
import pytest
from power_fit import POWER, held_out_w, own_readings

from predictor.catalogue.devices import all_gpus, cpu_device, find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.models.power import PowerOfGpus, power_limit_w
from predictor.models.power import power_w as power_of
from predictor.models.ratios import ratios_of

SHIPPED = ratios_of("power")


@pytest.fixture(scope="module")
def readings():
    return own_readings()


def power_w(iteration_ms, gpu_ms, product_ms, limit_w=700.0):
    return float(power_of(limit_w, *(np.array([ms]) for ms in (iteration_ms, gpu_ms, product_ms)))[0])


def error(readings, predicted_w):
    return np.abs(predicted_w / np.array([reading.power_w for reading in readings]) - 1)


def test_the_shipped_shares_are_what_the_fit_gives(readings, same_ratios):
    same_ratios(POWER.shipped(readings), SHIPPED)
    assert {reading.gpu.name for reading in readings} == set(SHIPPED.gpus)


def test_power_of_cnns_and_gpus_held_out_is_within_ten_percent_on_average(readings):
    assert len(readings) > 200
    assert error(readings, held_out_w(readings, lambda r: r.cnn)).mean() < 0.08
    assert error(readings, held_out_w(readings, lambda r: r.gpu.name)).mean() < 0.09


def test_a_gpu_that_waits_draws_less_and_one_that_multiplies_draws_more():
    waiting, moving, multiplying = power_w(100, 10, 1), power_w(100, 100, 1), power_w(100, 100, 30)
    assert SHIPPED["idle"] * 700 < waiting < moving < multiplying < 700
    assert power_w(100, 100, 100) == power_w(100, 120, 100) == 700  # no more than its limit


def test_a_gpu_of_a_card_with_two_has_half_of_its_limit_and_one_without_and_a_cpu_have_none():
    assert power_limit_w(find_gpu("Tesla K80")) == find_gpu("Tesla K80").tdp_w / 2
    assert power_limit_w(cpu_device("cpu:Some CPU")) is None
    assert all((power_limit_w(gpu) is None) == (gpu.tdp_w is None) for gpu in all_gpus())


def test_least_time_of_the_products_is_that_of_the_peak_rate():
    question = zoo_cnn("vgg16"), [find_gpu("H200")], ["tf32"]
    [of_one_image] = PowerOfGpus.of(*question).product_ms
    gflop, sustained_gflop_per_ms = 92.68, 494.7
    assert of_one_image == pytest.approx(gflop / sustained_gflop_per_ms, rel=0.2)


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(DataError, match="profile --preset ddp"):
        own_readings(tmp_path)
