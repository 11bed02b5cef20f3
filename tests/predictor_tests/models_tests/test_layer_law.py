"""Intervals of sums of measured layers: wider where less was measured, and named."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from ratios_fit import measured_cnn

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.models.layer_times.law import CLASSES, SIZES, OperatorTotals, SummingLaw, layer_sums
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import FARAWAY, MEASURED, NEAR, RUNG_OF, UNKNOWN, DeviceMode
from predictor.models.served import Model
from predictor.operators.operators import operators_of


def sums(**shares):
    places = {"measured": (0, MEASURED), "near": (0, NEAR), "smaller": (-1, MEASURED), "larger": (1, NEAR)}
    places |= {"far": (0, FARAWAY), "unknown": (0, UNKNOWN)}
    beyond = np.zeros((3, len(RUNG_OF), len(CLASSES), 1))
    for name, share in ({"measured": 1.0 - sum(shares.values())} | shares).items():
        beyond[*places[name], 0] = share
    sized = np.full((len(CLASSES), len(SIZES), 1), 1.0 / len(SIZES))
    totals = OperatorTotals(sized, beyond, 1.0, 10.0, {}, 0.1, 4.0)
    names = {
        kind: (("permute",) if totals.support_ms[kind].any() else (),) for kind in range(NEAR, len(RUNG_OF))
    }
    return replace(totals, named=names)


LAW = SummingLaw(spread=0.03, spread_near=0.12, spread_strange=0.5)


def width(**shares):
    return [float(half_width[0]) for half_width in LAW.half_widths(sums(**shares))]


def test_all_measured_has_the_narrowest_interval_and_whatever_was_not_measured_widens_it():
    assert width() == pytest.approx([0.03, 0.03])
    for share in ("near", "far", "unknown"):
        assert np.all(np.array(width(**{share: 0.3})) > width(**{share: 0.1}))
        assert min(width(**{share: 0.1})) > 0.03


def test_a_batch_size_below_the_measured_ones_widens_the_lower_side_alone():
    below, above = width(smaller=0.5)
    assert below > above == pytest.approx(0.03)
    below, above = width(larger=0.5)
    assert below == above > width(near=0.5)[0]


def test_an_operator_of_unknown_type_is_named_and_widens_by_its_whole_share():
    assert width(unknown=0.2) == pytest.approx([near + 0.2 for near in width(near=0.2)])
    assert "permute never measured" in sums(unknown=0.2).reasons()[0][0].text


def test_an_operator_of_unknown_type_takes_the_time_that_specifications_give_its_class():
    before = sums(unknown=0.25)
    assert before.want_specifications
    class_ms = {CLASSES[0]: 3.0 * before.class_ms[0], "another class": np.ones(1)}
    after = before.with_specified(class_ms, np.full(1, 0.4))
    assert after.class_ms[0] == pytest.approx((0.75 + 0.25 * 3.0) * before.class_ms[0])
    assert after.class_ms[1:].tolist() == before.class_ms[1:].tolist()
    assert after.shares[UNKNOWN][0] == pytest.approx(0.75 / 1.5)
    assert after.specified[0] == pytest.approx(0.75 / 1.5)
    near = sums(near=0.25)
    assert not near.want_specifications
    assert near.with_specified(class_ms, np.full(1, 0.4)).class_ms.tolist() == near.class_ms.tolist()


def test_what_specifications_tell_widens_the_interval_by_no_more_than_theirs():
    def above(width, **shares):
        totals = sums(**shares)
        return float(LAW.half_widths(totals.with_specified({}, np.full(1, width)))[1][0])

    assert above(0.4, unknown=1.0) == pytest.approx(0.4 + above(0.4, near=1.0))
    assert above(0.4, unknown=0.1) < 0.1 + above(0.4, near=0.1)


def test_the_host_takes_its_time_per_operator_for_sums_of_gradients_too_unless_they_count_apart():
    law = SummingLaw(host_weight=0.5, host_operator_ms=0.05, host_iteration_ms=2.0)
    assert law.host_ms(sums()) == pytest.approx(0.5 * 1.0 + 0.05 * 10 + 2.0)
    apart = replace(law, gradients_apart=True)
    assert apart.host_ms(sums()) == pytest.approx(0.5 * 0.9 + 0.1 + 0.05 * 6 + 2.0)
    # Without host times of operators, sums of gradients count as others do.
    blind = replace(sums(), host_ms=float("nan"), gradient_host_ms=float("nan"))
    law = SummingLaw(host_weight=0.0, host_operator_ms=0.05, gradients_apart=True)
    assert law.host_ms(blind) == pytest.approx(0.5)


def test_a_law_of_an_older_file_weighs_no_sizes_and_damaged_weights_of_sizes_are_refused():
    newer = ("gradients_apart", "size_weights")
    law = SummingLaw.from_json({key: value for key, value in asdict(LAW).items() if key not in newer})
    assert (law.gradients_apart, law.size_weights) == (False, (0.0,) * (len(SIZES) - 1))
    for wrong in ([0.0], [float("nan")] * (len(SIZES) - 1), "none"):
        with pytest.raises((ValueError, TypeError)):
            SummingLaw.from_json({**asdict(LAW), "size_weights": wrong})


def test_the_size_of_an_operator_counts_beside_its_class_but_not_the_largest_nor_an_optimizer_steps():
    """Small ones take longer between others than alone, those that the L2 cache helps take less."""
    law = SummingLaw(weight=1.1, size_weights=(0.25,) * (len(SIZES) - 1))
    smallest, largest, step = np.zeros((3, len(CLASSES), len(SIZES), 1))
    smallest[CLASSES.index("convolution"), 0], largest[CLASSES.index("convolution"), -1] = 2.0, 2.0
    step[CLASSES.index("optimizer"), 0] = 2.0
    for sized_ms, factor in ((smallest, 1.35), (largest, 1.1), (step, 1.1)):
        assert law.gpu_ms(replace(sums(), sized_ms=sized_ms))[0] == pytest.approx(2.0 * factor)
    assert law.class_ms(replace(sums(), sized_ms=smallest))["convolution"][0] == pytest.approx(2.7)


def test_the_size_of_an_operator_is_its_bytes_over_the_cache_and_none_on_a_cpu():
    operators = list(operators_of(zoo_cnn("resnet18")))
    times = np.array([[8.0, 1.0, np.nan]] * len(operators))

    def sized_ms(gpu, batch):
        library = OperatorLibrary.of_times(DeviceMode(gpu), operators, times, {None})
        sized = layer_sums(library, zoo_cnn("resnet18"), np.array([batch])).sized_ms.sum(axis=(0, 2))
        return sized / sized.sum()

    small, large = (np.arange(len(SIZES)) @ sized_ms("H200", batch) for batch in (1.0, 1024.0))
    assert large > small + 2
    assert sized_ms("cpu:AMD EPYC", 8.0)[-1] == pytest.approx(1.0)  # nobody looked its cache up


def test_each_batch_size_names_what_lies_beyond_at_it_whatever_was_asked_beside_it():
    library = Model.load().layers.measured(DeviceMode("NVIDIA H200", precision="tf32")).library
    table, sizes = zoo_cnn("mobilenet_v2"), [1.0, 7.0, 20_000.0]
    questions = [np.array(sizes), *(np.array([size]) for size in sizes)]
    together, *alone = (layer_sums(library, table, batches, True).reasons() for batches in questions)
    assert together == tuple(reasons for (reasons,) in alone)
    assert len({tuple(reason.text for reason in reasons) for reasons in together}) > 1


def test_a_cnn_of_group_norms_copies_maps_between_its_layers(model):
    """Its operators, measured alone on an H200 in AMP, sum to 13 and 19 % less at 512 images."""
    modes = [("tf32", "nchw"), ("amp_bf16", "nchw"), ("amp_bf16", "channels_last")]
    measured_ms = [(2.927, 7.043, 22.953), (2.415, 5.016, 15.377), (2.622, 5.788, 18.339)]
    devices = [(find_gpu("NVIDIA H200"), Mode("pytorch", *mode)) for mode in modes]
    forecasts = model.forecasts(measured_cnn("other_families.group_norm_se", 64)[0], devices, [32, 128, 512])
    for forecast, ms in zip(forecasts, measured_ms, strict=True):
        assert forecast.gpu_time_ms == pytest.approx(ms, rel=0.08)
