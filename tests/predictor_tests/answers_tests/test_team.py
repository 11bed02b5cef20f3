"""Several GPUs in a question: the mini-batch they share, what they add, what is rented, and what is refused."""

import pytest

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
    assert row.scaling_efficiency == pytest.approx(
        row.throughput_samples_per_s / (8 * alone.throughput_samples_per_s)
    )
    assert 0.9 < row.scaling_efficiency < 1


def test_one_gpu_has_no_team_and_adds_nothing():
    row = row_of(n_gpus=1)
    assert (row.link, row.nodes, row.local_batch_size) == (None, 1, 1024)
    assert (row.added_ms, row.scaling_efficiency) == (0, 1)


def test_the_interval_grows_with_what_was_not_measured():
    machines = {"n_gpus": 16, "batch_size": 2048, "nodes": 2, "link": "efa_100g"}
    teams = ({"n_gpus": 1, "batch_size": 128}, {"n_gpus": 4, "batch_size": 512}, {}, machines)
    widths = [row.high_ms / row.low_ms for row in (row_of(**team) for team in teams)]
    assert widths == sorted(set(widths))


def test_an_unmeasured_link_and_several_machines_are_named():
    assert any(
        str(reason).startswith("link: training on 8 GPUs over nvlink4") for reason in row_of().extrapolates
    )
    spread = row_of(n_gpus=16, nodes=2, link="infiniband_400g").extrapolates
    assert any(str(reason).startswith("nodes: 2 machines") for reason in spread)


def test_chainer_says_that_its_data_parallelism_was_not_measured():
    row = row_of(gpu="Tesla V100-SXM2-16GB", framework="chainer")
    assert any("measured with PyTorch, not with chainer" in reason.text for reason in row.extrapolates)


def test_the_host_waits_for_each_synchronised_batch_norm_and_the_answer_says_what_it_rests_on():
    plain, synchronised = row_of(), row_of(sync_batch_norm=True)
    waits_ms = 53 * ratios_of("data_parallel")["sync_norm_ms"]
    assert synchronised.host_time_ms - plain.host_time_ms == pytest.approx(waits_ms)
    assert synchronised.added_ms - plain.added_ms >= 2 * 53 * 0.030
    assert any(str(reason).startswith("sync_batch_norm: computed") for reason in synchronised.extrapolates)


def test_memory_is_that_of_one_gpus_part_and_its_buckets():
    resolved = ResolvedQuestion.of(Question("resnet50", "NVIDIA H200", 1024, n_gpus=8))
    (table,), ((_, mode),) = resolved.tables, resolved.devices
    buckets = 4 * table.parameters / 2**30
    assert row_of().peak_memory_gib == pytest.approx(peak_memory_gib(table, 128, mode) + buckets)


def test_the_offer_has_enough_gpus_and_every_machine_is_paid_for():
    eight, sixteen = row_of(), row_of(n_gpus=16, batch_size=2048, nodes=2, link="infiniband_8x200g")
    assert eight.offer_gpu_count == sixteen.offer_gpu_count == 8
    assert sixteen.cost_usd / sixteen.epoch_time_s == pytest.approx(2 * eight.cost_usd / eight.epoch_time_s)


def test_a_comparison_ranks_machines_with_enough_gpus():
    rows = compare(Question("resnet50", None, [512, 1024], data_set="imagenet", n_gpus=8)).rows
    assert len(rows) > 5
    assert {row.gpus_used for row in rows} == {8}
    assert min(row.offer_gpu_count for row in rows) >= 8


def test_the_scope_names_the_gpus_and_the_learning_rate():
    scope = answer(Question("resnet50", "NVIDIA H200", 1024, n_gpus=8)).scope
    assert "on 8 GPUs of one machine that share each mini-batch" in scope
    assert "larger learning rate" in scope


def test_all_gpus_are_those_that_an_offer_has_so_many_of():
    rows = predict("resnet18", "all", 256, n_gpus=8)
    assert {"Tesla T4", "NVIDIA H200"} <= {row.gpu for row in rows}
    assert min(row.offer_gpu_count for row in rows) >= 8


def test_ones_own_machine_needs_no_offer():
    row = row_of(n_gpus=16, link="nvlink4")
    assert (row.offer, row.cost_usd, row.gpus_used) == ("no offer", None, 16)


def test_more_gpus_than_a_marketplace_has_are_answered_without_a_price():
    assert row_of(gpu="RTX 4090", n_gpus=4).cost_usd is None
