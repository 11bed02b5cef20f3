"""Batch sizes: which fit, which are compared, and what is answered without one."""

import random

import pytest
from case_tables import each_row

import epochcast
from epochcast.commands.predict import _roles_of_sizes
from predictor.answers import grid
from predictor.answers.answer import answer
from predictor.answers.question import Question
from predictor.catalogue.devices import all_gpus, find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError, SchemaError
from predictor.operators.memory import peak_memory_gib, usable_gib


def test_the_largest_batch_size_fits_and_one_image_more_does_not():
    table, mode = zoo_cnn("resnet50"), Mode()
    sizes = grid.largest_local_batch_sizes(table, [(gpu, mode) for gpu in all_gpus()])
    for gpu, size in zip(all_gpus(), sizes, strict=True):
        limit = usable_gib(gpu)
        assert peak_memory_gib(table, size, mode) <= limit < peak_memory_gib(table, size + 1, mode)


def test_a_cnn_that_holds_no_image_has_no_largest_batch_size():
    assert grid.largest_local_batch_sizes(zoo_cnn("resnet50", 4000), [(find_gpu("T4"), Mode())]) == [None]


@each_row
def test_gpus_are_compared_at_the_largest_power_of_two_that_fits_on_most(largest, samples, common):
    assert grid.common_batch_size(largest, samples) == common


@each_row
def test_a_gpu_that_does_not_hold_the_common_size_is_compared_at_what_it_holds(largest, compared):
    assert grid.compared_batch_sizes(256, [largest]) == [compared]


def test_gpus_that_train_together_share_the_compared_size_evenly():
    assert grid.compared_batch_sizes(384, [200], n_gpus=3) == [192]


def test_a_small_gpu_without_the_common_size_has_its_fastest_and_its_largest(fake_model):
    gpus = ["Tesla M60", "H100 PCIe", "H200"]
    rows = answer(Question("resnet50", gpus, samples=10**6, model=fake_model)).rows()
    assert {row.gpu for row in rows if row.batch_size == 256} == {"NVIDIA H100 PCIe", "NVIDIA H200"}
    assert all(row.batch_size <= row.largest_batch_size for row in rows)


def test_python_asks_for_the_largest_batch_size_of_one_cnn_on_one_gpu():
    largest = epochcast.largest_batch_size("ResNet-50", "T4", precision="amp_fp16")
    devices = [(find_gpu("T4"), Mode(precision="amp_fp16"))]
    assert [largest] == grid.largest_local_batch_sizes(zoo_cnn("resnet50"), devices)
    with pytest.raises(SchemaError, match="one CNN on one GPU"):
        epochcast.largest_batch_size(["resnet50", "vgg16"], "T4")
    with pytest.raises(OutOfRangeError, match="not even with one image"):
        epochcast.largest_batch_size("resnet50", "T4", image_size=4000)


def test_powers_of_two_are_tried_up_to_what_fits_anywhere_and_the_samples():
    assert grid.batch_sizes_to_try([5, 17], None) == [1, 2, 4, 8, 16]
    assert grid.batch_sizes_to_try([10**5], None)[-1] == 65_536
    assert grid.batch_sizes_to_try([10**5], 100)[-1] == 64


def test_where_nothing_fits_the_next_step_is_named(fake_model):
    question = Question("resnet50", "T4", model=fake_model, image_size=4000)
    with pytest.raises(OutOfRangeError, match=r"not even with one image\. Ask for GPUs with more memory"):
        answer(question)


def test_without_batch_sizes_each_gpu_has_its_common_fastest_and_largest(fake_model):
    rows = answer(Question("resnet50", ["T4", "H200"], samples=10**6, model=fake_model)).rows()
    sizes = {gpu: [row.batch_size for row in rows if row.gpu == gpu] for gpu in ("Tesla T4", "NVIDIA H200")}
    assert all(128 in sizes_of_gpu for sizes_of_gpu in sizes.values())
    for row in rows:
        assert row.batch_size <= row.largest_batch_size
        assert row.largest_batch_size in sizes[row.gpu]
    assert [row.best_batch for row in rows].count(True) == 2


def test_several_cnns_have_batch_sizes_of_their_own(fake_model):
    rows = answer(Question(["resnet50", "lenet5"], "T4", samples=10**6, model=fake_model)).rows()
    largest = {row.cnn: row.largest_batch_size for row in rows}
    assert largest["lenet5"] > largest["resnet50"]


def test_of_a_small_data_set_the_smallest_power_of_two_near_the_shortest_epoch_is_best():
    options = {"image_size": 32, "data_set": "cifar10", "loader": "none"}
    rows = answer(Question.of("resnet18", "RTX 4090", None, options)).rows()
    best, largest = (max(rows, key=lambda row: getattr(row, name)) for name in ("best_batch", "batch_size"))
    assert largest.throughput_samples_per_s > best.throughput_samples_per_s
    powers = answer(Question.of("resnet18", "RTX 4090", [2**i for i in range(16)], options)).rows()
    most_s = 1.05 * min(row.epoch_time_s for row in powers)
    near = [row.batch_size for row in powers if row.epoch_time_s <= most_s]
    assert best.batch_size == min(near)


_CNNS = ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vgg16", "alexnet")
_GPUS = ("T4", "V100-SXM2-16GB", "A100-SXM4-40GB", "H100 SXM", "GTX 1080 Ti", "RTX 4090", "B200")


def _untrue_words(cnn, gpu, options):
    """Words beside the batch sizes of an answer that some of 100 sizes up to the largest belie."""
    answered = epochcast.predict(cnn, gpu, **options)
    most = int(answered.largest_batch_size[0])
    powers = [2**i for i in range(most.bit_length())]
    sizes = sorted({*powers, *(round(most ** (i / 99)) for i in range(100))})
    paces = epochcast.predict(cnn, gpu, sizes, **options).set_index("batch_size").iteration_time_ms
    paces /= paces.index
    records, question = answered.to_dict("records"), Question(cnn, gpu, None, **options)
    word_of = {record["batch_size"]: _roles_of_sizes(records, question)(record) for record in records}
    [near] = answered.batch_size[answered.best_batch]
    [fastest] = [size for size, word in word_of.items() if word.startswith("fastest")]
    if paces[near] > 1.051 * paces.min() or paces[fastest] > 1.005 * paces.min():
        yield "slow"
    if any(paces[size] < 1.049 * paces.min() for size in powers if size < near):
        yield "not the smallest"


def test_the_words_beside_batch_sizes_are_true_of_every_size_that_fits():
    draw, untrue = random.Random(52), {}  # noqa: S311 - a seeded grid
    for _ in range(60):
        precision = draw.choice([{}, {"precision": "amp_fp16", "memory_format": "channels_last"}])
        asked = (
            draw.choice(_CNNS),
            draw.choice(_GPUS),
            {"image_size": draw.choice([64, 128, 224, 384])} | precision,
        )
        if words := list(_untrue_words(*asked)):
            untrue[str(asked)] = words
    steep = epochcast.predict("convnext_tiny", "T4", image_size=384)  # where more images take longer each
    assert list(steep.batch_size) == sorted(steep.batch_size)
    assert len(steep) == 4
    assert not untrue
