"""Several GPUs in a question: the mini-batch they share, what they add, what is rented, and what is refused."""

import pytest
from case_tables import each_row

from predictor.answers.answer import answer, predict
from predictor.answers.compare import compare
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.models.ratios import ratios_of
from predictor.operators.memory import peak_memory_gib


def row_of(gpu="NVIDIA H200", batch_size=1024, **options):
    (row,) = predict("resnet50", gpu, batch_size, **{"data_set": "imagenet", "n_gpus": 8, **options})
    return row


def test_the_batch_size_is_that_of_all_gpus_and_each_takes_its_part():
    row, alone = row_of(), row_of(batch_size=128, n_gpus=1)
    assert (row.local_batch_size, row.gpus_used, row.link) == (128, 8, "nvlink4")
    assert row.iterations_per_epoch == -(-1_281_167 // 1024)
    assert row.added_ms == pytest.approx(row.iteration_time_ms - alone.iteration_time_ms)
    rates = row.throughput_samples_per_s, alone.throughput_samples_per_s
    assert row.scaling_efficiency == pytest.approx(rates[0] / (8 * rates[1]))
    assert 0.9 < row.scaling_efficiency < 1
    assert (alone.link, alone.nodes, alone.local_batch_size) == (None, 1, 128)
    assert (alone.added_ms, alone.scaling_efficiency) == (0, 1)  # one GPU has no team


def test_the_interval_grows_with_what_was_not_measured():
    machines = {"n_gpus": 16, "batch_size": 2048, "nodes": 2, "link": "efa_100g"}
    teams = ({"n_gpus": 1, "batch_size": 128}, {"n_gpus": 4, "batch_size": 512}, {}, machines)
    widths = [row.high_ms / row.low_ms for row in (row_of(**team) for team in teams)]
    assert widths == sorted(set(widths))


@each_row
def test_what_was_not_measured_of_a_team_is_named(options, words):
    assert words in "; ".join(map(str, row_of(**options).extrapolates))


def test_the_host_waits_for_each_synchronised_batch_norm():
    plain, synchronised = row_of(), row_of(sync_batch_norm=True)
    waits_ms = 53 * ratios_of("data_parallel")["sync_norm_ms"]
    assert synchronised.host_time_ms - plain.host_time_ms == pytest.approx(waits_ms)
    assert synchronised.added_ms - plain.added_ms >= 2 * 53 * 0.030


def test_memory_is_that_of_one_gpus_part_and_its_buckets():
    resolved = ResolvedQuestion.of(Question("resnet50", "NVIDIA H200", 1024, n_gpus=8))
    (table,), ((_, mode),) = resolved.tables, resolved.devices
    buckets = 4 * table.parameters / 2**30
    assert row_of().peak_memory_gib == pytest.approx(peak_memory_gib(table, 128, mode) + buckets)


def test_the_offer_has_enough_gpus_and_every_machine_is_paid_for():
    eight, sixteen = row_of(), row_of(n_gpus=16, batch_size=2048, nodes=2, link="infiniband_8x200g")
    assert eight.offer_gpu_count == sixteen.offer_gpu_count == 8
    assert sixteen.cost_usd / sixteen.epoch_time_s == pytest.approx(2 * eight.cost_usd / eight.epoch_time_s)


def test_gpus_that_are_not_named_are_those_that_an_offer_has_so_many_of():
    ranked = compare(Question("resnet50", None, [512, 1024], data_set="imagenet", n_gpus=8)).rows
    assert {row.gpus_used for row in ranked} == {8}
    for rows in (ranked, predict("resnet18", "all", 256, n_gpus=8)):
        assert {"Tesla T4", "NVIDIA H200"} <= {row.gpu for row in rows}
        assert min(row.offer_gpu_count for row in rows) >= 8


def test_the_scope_names_the_gpus_and_the_learning_rate():
    scope = answer(Question("resnet50", "NVIDIA H200", 1024, n_gpus=8)).scope
    assert "on 8 GPUs of one machine that share each mini-batch" in scope
    assert "larger learning rate" in scope


def test_ones_own_machine_or_more_gpus_than_a_marketplace_has_need_no_offer():
    row = row_of(n_gpus=16, link="nvlink4")
    assert (row.offer, row.cost_usd, row.gpus_used) == ("no offer", None, 16)
    assert row_of(gpu="RTX 4090", n_gpus=4).cost_usd is None
