"""Ways to share one iteration among several GPUs, beside one GPU that has the whole mini-batch."""

import pytest

from predictor.answers.parallel import parallel_ways
from predictor.answers.predict import predict
from predictor.answers.question import Question
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError, SchemaError


def ways_of(cnn="resnet50", gpu="NVIDIA H200", batch_size=256, **options):
    return {way.way: way for way in parallel_ways(Question(cnn, gpu, batch_size, **{"n_gpus": 4, **options}))}


@pytest.fixture(scope="module")
def ways():
    return ways_of()


def test_one_gpu_and_data_parallelism_are_what_predict_answers(ways):
    (one,), (four,) = (
        predict("resnet50", "NVIDIA H200", 256),
        predict("resnet50", "NVIDIA H200", 256, n_gpus=4),
    )
    assert ways["one"].iteration_time_ms == one.iteration_time_ms
    assert ways["data"].iteration_time_ms == four.iteration_time_ms
    assert ways["data"].ratio == four.iteration_time_ms / one.iteration_time_ms


def test_data_parallelism_is_the_fastest_and_layers_are_no_faster_than_one_gpu(ways):
    assert min(ways.values(), key=lambda way: way.iteration_time_ms).way == "data"
    assert ways["layers"].ratio > 1


def test_channels_exchange_the_activations_of_every_layer(ways):
    layers = [layer for layer in zoo_cnn("resnet50") if layer.type in ("conv2d", "linear")]
    out = sum(layer.out_channels * layer.out_height * layer.out_width for layer in layers)
    read = sum(layer.in_channels * layer.in_height * layer.in_width for layer in layers[1:])
    assert ways["channels"].exchanged_mb == pytest.approx(256 * 4 * (0.75 * out + 1.5 * read) / 1e6)
    assert ways["channels"].exchanges == 2 * len(layers) - 1


def test_rows_exchange_less_than_channels_and_layers_the_least_often(ways):
    assert ways["rows"].exchanged_mb < ways["channels"].exchanged_mb
    assert ways["layers"].exchanges == 6


def test_half_precision_sends_half_as_much(ways):
    half = ways_of(precision="amp_bf16")
    assert half["channels"].exchanged_mb == pytest.approx(ways["channels"].exchanged_mb / 2)


def test_channels_over_a_slow_link_take_longer_than_one_gpu():
    assert ways_of("vgg_cifar", "Tesla V100-PCIE-16GB", 64)["channels"].ratio > 1


def test_one_gpu_shares_nothing_and_a_mini_batch_is_shared_evenly():
    with pytest.raises(SchemaError, match="Pass 2 or more"):
        ways_of(n_gpus=1)
    with pytest.raises(OutOfRangeError, match="Nearest: 255"):
        ways_of(n_gpus=3)
