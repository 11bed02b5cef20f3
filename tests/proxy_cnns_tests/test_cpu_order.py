"""A CPU, which has time for few configurations, measures those first that tell most in a second."""

import csv
from collections import Counter

import pytest

import epochcast
from epochcast.profiling import ProfileRequest, request_for
from proxy_cnns.configuration import Configuration
from proxy_cnns.estimates import estimated_ms
from proxy_cnns.presets import configurations, in_modes, preset
from proxy_cnns.profiler import Measured
from proxy_cnns.rows_file import measurement_row

_CPU = {"framework": "pytorch", "gpu": "cpu:fake", "host": "fake, 2 cores", "device_kind": "cpu"}


@pytest.fixture(scope="module")
def quick() -> tuple[Configuration, ...]:
    return request_for(ProfileRequest("quick", device="cpu"), "x.csv")[0].configurations


def _time_ms(configuration: Configuration) -> float:
    subject, mode = configuration.subject, configuration.mode
    return estimated_ms(subject, configuration.batch_size, mode, on_cpu=True)


def _in_a_minute(chosen: tuple[Configuration, ...]) -> list[Configuration]:
    """As many as end in a minute where an operator takes 30 ms to build and nine iterations of 16 copies."""
    left_s, done = 60.0, []
    for configuration in chosen:
        left_s -= 0.03 + 9 * max(20.0, 4 * _time_ms(configuration)) / 1000
        if left_s < 0:
            break
        done.append(configuration)
    return done


def test_the_order_leaves_nothing_out(quick):
    kept, _ = configurations(in_modes(preset("quick"), [quick[0].mode]))
    assert Counter(quick) == Counter(kept)


def test_what_most_cnns_consist_of_is_among_the_first(quick):
    first = [each.subject.operator for each in quick[:60]]
    assert {each.type for each in first} >= {"conv2d", "batch_norm", "activation", "add", "linear"}
    assert {each.kernel_height for each in first if each.type == "conv2d"} >= {1, 3}
    assert len({each.name for each in first}) > 50


def test_large_operators_do_not_come_first(quick):
    dear = sorted(map(_time_ms, quick))[-len(quick) // 4]
    assert max(map(_time_ms, quick[:40])) < dear


def test_a_minute_measures_many_and_narrows_resnet_18_to_a_factor_of_two(quick, tmp_path):
    done = _in_a_minute(quick)
    assert len(done) >= 100
    rows = []
    for configuration in done:
        times_ms = tuple(share * _time_ms(configuration) for share in (0.99, 1, 1, 1, 1, 1.01))
        rows.append(measurement_row(configuration, Measured(times_ms, None, ()), _CPU))
    with (tmp_path / "minute.csv").open("w") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), restval="")
        writer.writeheader()
        writer.writerows(rows)
    about = {"gpu": "cpu:fake", "batch_size": 32, "precision": "fp32"}
    for image_size in (32, 224):
        row = epochcast.predict(
            "resnet18", **about, image_size=image_size, measurements=tmp_path / "minute.csv"
        ).iloc[0]
        assert row["high_ms"] < 2 * row["iteration_time_ms"], image_size
