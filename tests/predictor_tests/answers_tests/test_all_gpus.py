"""All GPUs asked at once are answered as each of them alone, at whatever batch sizes were asked before."""

import math
from dataclasses import replace

import pytest

from predictor.answers.answer import Answer, answer
from predictor.answers.compare import compare
from predictor.answers.fit_memory import fit_memory
from predictor.answers.question import Question
from predictor.catalogue.offers import Offer
from predictor.errors import OutOfRangeError
from predictor.models.served import Model

SIZES = [1, 24, 200, 3000]  # the last lies beyond what any operator was measured at
MODES = ({}, {"precision": "amp_bf16", "memory_format": "channels_last"}, {"framework": "tensorflow"})


@pytest.mark.parametrize("mode", MODES)
def test_each_gpu_is_answered_among_all_as_it_is_alone(mode):
    rows = answer(Question("densenet121", "all", SIZES, samples=50_000, **mode)).records()
    for start, row in list(enumerate(rows))[:: len(SIZES)]:
        alone = answer(Question("densenet121", row["gpu"], SIZES, samples=50_000, **mode)).records()
        for expected, answered in zip(alone, rows[start : start + len(SIZES)], strict=True):
            differing = [name for name, value in answered.items() if not _same(value, expected[name])]
            expected_row = row["gpu"], expected["batch_size"], []
            assert (answered["gpu"], answered["batch_size"], differing) == expected_row


def test_an_answer_does_not_depend_on_the_batch_sizes_asked_before(tmp_path):
    Model.load().save(tmp_path / "model.json")
    sizes, hopper = [1, 7, 100, 900, 20_000], ["H200", "H100 PCIe"]  # a library, and carried over from it
    one_by_one = [answer(Question("mobilenet_v2", hopper, size)).records() for size in sizes]
    at_once = answer(Question("mobilenet_v2", hopper, sizes, model=tmp_path / "model.json")).records()
    expected = [rows[gpu] for gpu in range(len(hopper)) for rows in one_by_one]
    names = ("iteration_time_ms", "low_ms", "high_ms", "gpu_time_ms", "extrapolates")
    assert all(_same(a[name], b[name]) for a, b in zip(at_once, expected, strict=True) for name in names)


def test_records_hold_every_column_however_many_rows_a_gpu_has():
    answered = answer(Question(["alexnet", "vgg11"], ["T4", "H200"], [8, 16, 32], samples=1000))
    names, values = answered.columns, zip(*answered.columns.values(), strict=True)
    rows = [dict(zip(names, row, strict=True)) for row in values]
    assert answered.records() == Answer(answered.columns, answered.scope).records() == rows


K80, T4 = (Offer("cloud", "machine", gpu, 1, 0.5) for gpu in ("Tesla K80", "Tesla T4"))


# fmt: off
UNRENTABLE = [
    ({"n_gpus": 64}, "n_gpus 64 takes 64 GPUs of one machine, and the largest on offer has 16. Pass fewer"),
    ({"n_gpus": 2, "offers": [T4]}, "the largest on offer has 1"),
    ({"n_gpus": 2, "offers": [T4], "spot": True}, "spot asks for spot prices, and no offer has one. Leave it"),
    ({"n_gpus": 2, "offers": [T4], "precision": "amp_bf16"}, "precision 'amp_bf16': no GPU on offer has it"),
    ({"n_gpus": 2, "offers": []}, "offers has no price of today"),
]
OF_COMPARE = [
    ({"offers": [replace(T4, marketplace=True)]}, "marketplaces is not passed"),
    ({"offers": [replace(T4, historic=True)]}, "offers has no price of today"),
    ({"offers": [K80], "capture": "compile"}, "capture 'compile': PyTorch compiles for no GPU on offer"),
]
ASKED_OF = [
    *((ask, gpus, *row) for ask, gpus in ((compare, None), (answer, "all"), (fit_memory, None)) for row in UNRENTABLE),
    *((compare, None, *row) for row in OF_COMPARE),
]
# fmt: on


@pytest.mark.parametrize(("asks", "gpus", "options", "says"), ASKED_OF)
def test_an_option_that_leaves_no_gpu_is_named(asks, gpus, options, says):
    with pytest.raises(OutOfRangeError, match=says):
        asks(Question("resnet18", gpus, 64, data_set="cifar10", **options))


def _same(row, expected_row):
    if isinstance(row, float) and isinstance(expected_row, float):
        return row == expected_row or (math.isnan(row) and math.isnan(expected_row))
    return row == expected_row
