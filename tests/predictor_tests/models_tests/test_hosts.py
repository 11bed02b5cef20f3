from dataclasses import replace

import pytest

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.hosts import HostSpeed
from predictor.catalogue.links import find_link
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.models.data_parallel import Team, add_data_parallelism
from predictor.models.hosts import host_ms
from predictor.models.ratios import ratios_of
from predictor.models.served import Model

SPEED = HostSpeed("a desk", 8.0, 0.3)
RESNET = zoo_cnn("resnet50")
MODE = Mode(precision="tf32")


def _host(*passes):
    """Host time of a ResNet whose layers run these passes: forwards, input gradients, weight gradients."""
    names = ("forwards", "input_gradients", "weight_gradients")
    layers = (replace(layer, **dict(zip(names, passes, strict=True))) for layer in RESNET)
    return host_ms(replace(RESNET, layers=tuple(layers)), MODE, SPEED)


def test_the_reference_iteration_takes_the_hosts_reference_time():
    assert host_ms(zoo_cnn("resnet18", 32), MODE, SPEED) == pytest.approx(8.0)


def test_autocast_and_optimizers_of_several_moments_take_the_host_longer():
    modes = MODE, replace(MODE, precision="amp_bf16"), replace(MODE, optimizer="adamw")
    plain, cast, adam = (host_ms(RESNET, mode, SPEED) for mode in modes)
    assert cast / plain == pytest.approx(ratios_of("host")["amp"])
    assert 1.04 < adam / plain < 1.10


@pytest.mark.parametrize(("state", "per_position"), [(256, 0.4), (128, 0.0)])
def test_the_host_enqueues_each_position_of_a_recurrent_layer_with_a_large_state(state, per_position):
    """A layer of 64 positions counted as one of a ResNet's: 0.06 ms for 4.3 measured."""
    sides = {"in_width": 1, "out_width": 1, "in_channels": 64, "out_channels": 2 * state, "groups": 2}

    def reads(positions):
        layer = Layer(0, "lstm", "lstm", parameters=1, in_height=positions, out_height=positions, **sides)
        return host_ms(LayerTable("reader", 32, (layer,)), MODE, SPEED)

    of_a_layer = (host_ms(RESNET, MODE, SPEED) - reads(1)) / (len(RESNET) - 11 - 2 * per_position)
    assert (reads(64) - reads(1)) / of_a_layer == pytest.approx(2 * 63 * per_position)


def test_a_part_that_runs_forward_again_costs_the_host_its_forward_pass():
    ratios, once = ratios_of("host"), host_ms(RESNET, MODE, SPEED)
    fixed = once * ratios["fixed_layers"] / (ratios["fixed_layers"] + len(RESNET))
    assert (_host(2, 1, 1) - once) / (once - fixed) == pytest.approx(ratios["forward"])


def test_frozen_layers_cost_the_host_less():
    """A ConvNeXt-S trained whole took a host 39.8 ms, only by its head 13.5."""
    trained, frozen, forward = _host(1, 1, 1), _host(1, 1, 0), _host(1, 0, 0)
    assert 0.33 < forward / trained < 0.4
    assert forward < frozen < trained


def test_compiling_spares_the_host_what_autocast_costs_it():
    amp = Mode(precision="amp_bf16", memory_format="channels_last")
    eager, compiled = (
        Model.load().forecast(RESNET, find_gpu("H200"), mode, [4]).host_time_ms[0]
        for mode in (amp, replace(amp, capture="compile"))
    )
    assert compiled / eager == pytest.approx(ratios_of("compile")["host"] / ratios_of("host")["amp"])


def test_the_slowest_of_many_machines_lifts_the_upper_end_alone():
    gpu = find_gpu("V100-SXM2-16GB")
    single = Model.load().forecast(RESNET, gpu, Mode(), [64])
    small, large = (
        add_data_parallelism(single, RESNET, gpu, Mode(), Team(n, n, find_link("infiniband_400g")))
        for n in (2, 64)
    )
    assert large.high_ms / large.iteration_time_ms > 1.15 * small.high_ms / small.iteration_time_ms
    low = [answer.low_ms / answer.iteration_time_ms for answer in (large, small)]
    assert low[0] == pytest.approx(low[1], rel=0.1)
