"""The law of data parallelism: what several GPUs add to an iteration, and what it was fitted on."""

import math

import numpy as np
import pytest
from ratios_fit import DATA_PARALLEL, own_tables, sync_norm_ms, team_pairs

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.links import find_link
from predictor.cnns.zoo import zoo_cnn
from predictor.models.data_parallel import Exchange, Gradients, Team, added_gpu_ms, team_iteration_ms
from predictor.models.ratios import Ratios, ratios_of

H200, SHIPPED = find_gpu("NVIDIA H200"), ratios_of("data_parallel")
NOTHING = {"tensor_ms": 0.0, "ring": 0.0, "wait": 0.0, "host": 1.0, "sync_norm_ms": 0.0}


@pytest.fixture(scope="module")
def pairs():
    return team_pairs(own_tables("ddp"))


@pytest.fixture(scope="module")
def held_out(pairs):
    without = DATA_PARALLEL.held_out(pairs)
    return np.array([pair.predicted_ms(without[pair.cnn]) for pair in pairs])


def added_ms(link="nvlink4", n_gpus=4, nodes=1, one_ms=60.0, cnn="resnet50"):
    team = Team(n_gpus, nodes, find_link(link))
    exchange = Exchange.of(Gradients.of(zoo_cnn(cnn)), H200, team)
    return float(added_gpu_ms(np.array([one_ms]), exchange)[0])


def test_the_shipped_ratios_are_what_the_fit_gives(pairs, same_ratios):
    same_ratios(DATA_PARALLEL.shipped(pairs), SHIPPED)


def test_cnns_held_out_are_within_two_percent_where_the_gpu_is_the_bottleneck(pairs, held_out):
    errors = [abs(ms / pair.team_ms - 1) for ms, pair in zip(held_out, pairs, strict=True) if pair.gpu_bound]
    assert len(errors) > 50
    assert np.mean(errors) < 0.02


def test_the_spread_holds_nine_of_ten_teams(pairs, held_out):
    one_ms, measured = (np.array([getattr(pair, name) for pair in pairs]) for name in ("one_ms", "team_ms"))
    inside = np.abs(measured - held_out) <= SHIPPED.spread * (held_out - one_ms)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)


def test_gradients_are_counted_as_pytorch_counts_them():
    gradients = Gradients.of(zoo_cnn("vgg16"))
    assert (gradients.n_tensors, gradients.n_bytes, gradients.n_buckets) == (32, 4 * 138_357_544, 22)


def test_sums_that_do_not_overlap_with_computing_add_all_their_time():
    team = Team(2, 1, find_link("pcie4_host"))
    exchange, one_ms = Exchange.of(Gradients.of(zoo_cnn("vgg16")), H200, team), np.array([60.0, 600.0])
    short, long = added_gpu_ms(one_ms, exchange) - SHIPPED["wait"] * exchange.slowest * one_ms
    assert short == long > exchange.ring_ms > 4 * 138.4 / 8


def test_a_slower_link_adds_more_and_what_the_backward_pass_hides_adds_nothing():
    adds = [added_ms(link) for link in ("nvlink4", "nvlink3", "pcie4", "pcie3")]
    assert adds == sorted(adds)
    exposed = added_ms("ethernet_10g", 2, 2) - added_ms("ethernet_10g", 2, 2, one_ms=90.0)
    wait_ms = 30.0 * SHIPPED["wait"] * math.sqrt(2 * math.log(2))
    assert exposed == pytest.approx(20.0 - wait_ms)  # 30 ms more hide 20 ms more
    by_cnn = [added_ms(cnn=cnn) for cnn in ("resnet18", "resnet50", "wide_resnet50_2")]  # more parameters
    assert by_cnn == sorted(by_cnn)


def test_the_host_counts_where_it_becomes_the_slower_one():
    ratios = Ratios({**NOTHING, "host": 1.5})
    team, gradients = Team(2, 1, find_link("nvlink4")), Gradients(1, 4.0)
    one_ms = np.array([10.0, 10.0])
    slow, fast = team_iteration_ms(one_ms, np.array([10.0, 1.0]), Exchange.of(gradients, H200, team), ratios)
    assert slow == pytest.approx(15.0, rel=0.01)
    assert fast == pytest.approx(10.0, rel=0.01)


def test_a_pair_is_predicted_from_one_gpu_as_measured(pairs):
    pair = next(pair for pair in pairs if pair.cnn == "resnet50" and pair.local_batch_size == 128)
    assert pair.one_ms < pair.predicted_ms(SHIPPED) < 1.1 * pair.one_ms


def test_the_wait_for_the_slowest_gpu_grows_slowly_with_their_number():
    ratios = Ratios({**NOTHING, "wait": 0.01})
    link, one_ms, no_gradients = find_link("nvlink4"), np.array([100.0]), Gradients(1, 0.0)
    teams = [Team(n, 1, link) for n in (2, 8, 64, 512)]
    of_rows = Exchange.of_rows(no_gradients, [H200], np.zeros(4, dtype=int), teams, np.arange(4))
    waits = added_gpu_ms(one_ms, of_rows, ratios).tolist()
    alone = [Exchange.of(no_gradients, H200, team) for team in teams]
    assert waits == [float(added_gpu_ms(one_ms, exchange, ratios)[0]) for exchange in alone]
    assert waits == pytest.approx([1.18, 2.04, 2.88, 3.53], abs=0.01)


def test_a_synchronised_batch_norm_takes_what_the_fit_gives_where_the_host_is_the_slower_one():
    assert SHIPPED["sync_norm_ms"] == sync_norm_ms(own_tables("ddp_synchronised"))
    gradients, link = Gradients.of(zoo_cnn("resnet50")), find_link("nvlink4")
    exchanges = [Exchange.of(gradients, H200, Team(2, 1, link, sync)) for sync in (False, True)]
    one_ms, slow = np.array([20.0]), np.array([20.0])
    plain, synchronised = (float(team_iteration_ms(one_ms, slow, exchange)[0]) for exchange in exchanges)
    assert synchronised - plain == pytest.approx(53 * SHIPPED["sync_norm_ms"], rel=0.1)
    captured = float(team_iteration_ms(one_ms, np.zeros(1), exchanges[1])[0])
    assert captured < plain
