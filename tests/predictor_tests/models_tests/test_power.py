"""The law of power: what it was fitted on, how far it may err, and what bounds it."""

import math

import numpy as np
import pytest
from power_fit import held_out_w, own_readings, published_readings, shipped_ratios

from predictor.catalogue.devices import all_gpus, cpu_device, find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, SchemaError
from predictor.models.power import power_limit_w, product_times_ms
from predictor.models.power import power_w as power_of
from predictor.models.ratios import ratios_of

SHIPPED = ratios_of("power")

TRACE = """dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
cifar100,shufflenetv2,64,adam,250,30,90
imagenet,resnet50,64,adadelta,200,4000,180
imagenet,resnet50,64,adadelta,250,3754,223
"""


@pytest.fixture(scope="module")
def readings():
    return own_readings()


def power_w(iteration_ms, gpu_ms, product_ms, limit_w=700.0):
    return float(power_of(limit_w, *(np.array([ms]) for ms in (iteration_ms, gpu_ms, product_ms)))[0])


def error(readings, predicted_w):
    return np.abs(predicted_w / np.array([reading.power_w for reading in readings]) - 1)


def test_the_shipped_shares_are_what_the_fit_gives(readings, same_ratios):
    same_ratios(shipped_ratios(readings), SHIPPED)
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
    [[of_one_image, of_two]] = product_times_ms(*question, np.array([1.0, 2.0]))
    assert of_two == 2 * of_one_image
    gflop, sustained_gflop_per_ms = 92.68, 494.7
    assert of_one_image == pytest.approx(gflop / sustained_gflop_per_ms, rel=0.2)


def test_a_spread_on_other_gpus_needs_traces_of_other_gpus(readings, tmp_path):
    for name in ("v100", "p100", "a40", "rtx6000"):
        (tmp_path / f"summary_power_{name}.csv").write_text(TRACE)
    published = published_readings(tmp_path)
    rows = {(own.cnn, own.local_batch_size, own.limit_w, own.power_w) for own in published}
    assert rows == {("resnet50", 64, 250, 223)}
    assert published[0].iteration_ms == pytest.approx(3754e3 / 20019)
    means = shipped_ratios(readings, published).elsewhere
    assert means > 0
    assert math.isfinite(means)


def test_a_folder_without_traces_or_tables_is_refused(tmp_path):
    with pytest.raises(SchemaError, match=r"summary_power_v100\.csv is no power trace"):
        published_readings(tmp_path)
    with pytest.raises(DataError, match="profile --preset ddp"):
        own_readings(tmp_path)
