"""From a measurement table to a served model, and what calibration may see."""

import numpy as np
import pandas as pd
import pytest

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.table import check_measurements
from predictor.models.fit import accuracy_of, fit_measurements
from predictor.models.intervals import Predicted, Shares, calibrate, sites_of
from predictor.models.join import join_host
from predictor.models.served import Model
from predictor.operators.operators import operators_of

CNNS = {"resnet18": 1.0, "resnet50": 2.6, "vgg11": 2.9, "mobilenet_v2": 0.9}
GPUS = {"T4": 3.6, "V100-SXM2-16GB": 1.2, "K80": 9.0}


def made_up(cnns=CNNS, gpus=GPUS) -> pd.DataFrame:
    rows = [
        {"gpu": gpu, "cnn": cnn, "image_size": 224, "batch_size": batch, "precision": "fp32"}
        | {"iteration_time_ms": 3 + work * speed * batch}
        for cnn, work in cnns.items()
        for gpu, speed in gpus.items()
        for batch in (16, 32, 64)
    ]
    return check_measurements(pd.DataFrame(rows), "made up")


@pytest.fixture(scope="module")
def model() -> Model:
    return fit_measurements(made_up())


def test_a_model_of_ones_own_measurements_gives_them_back(model):
    forecast = model.forecast(zoo_cnn("resnet50"), find_gpu("T4"), Mode(), [32])
    assert forecast.iteration_time_ms[0] == pytest.approx(3 + 2.6 * 3.6 * 32, rel=0.25)


def test_a_table_with_the_required_columns_alone_is_fitted_as_a_file_of_it_is(model):
    required = made_up()[["gpu", "cnn", "image_size", "batch_size", "precision", "iteration_time_ms"]]
    assert fit_measurements(required).roofline.law_.terms == model.roofline.law_.terms


def test_iterations_of_several_gpus_and_their_sums_are_left_out(model):
    teams = made_up().assign(n_gpus=4, iteration_time_ms=1e3)
    sums = made_up().assign(n_gpus=4, kind="all_reduce", cnn="all_reduce_1000", image_size=1)
    mixed = pd.concat([made_up(), teams, sums], ignore_index=True)
    assert fit_measurements(mixed).roofline.law_.terms == model.roofline.law_.terms


def test_its_card_and_its_ranges_say_what_was_measured(model):
    assert None not in model.card["sources"]
    assert model.card["trained_on"] == "36 iterations of 4 CNNs on 3 GPUs"
    assert model.ranges.batch_size == (16, 64)
    assert model.ranges.modes == (("pytorch", "fp32", "nchw", "False", "False", "eager", "momentum"),)
    assert ("Tesla T4", "pytorch", "fp32") in model.ranges.gpu_modes
    assert set(model.ranges.gpus) == {"Tesla T4", "Tesla V100-SXM2-16GB", "Tesla K80"}


@pytest.mark.parametrize("copies", [False, True])
def test_a_copy_of_images_from_the_host_is_added_for_the_framework_whose_rows_say_so(copies):
    model = fit_measurements(made_up().assign(framework="tensorflow", copies_input=copies))
    assert model.fed_frameworks == ("tensorflow",) * copies
    for from_host in (False, True):
        answer = model.forecast(
            zoo_cnn("resnet50"), find_gpu("T4"), Mode("tensorflow"), [64], from_host=from_host
        )
        joined_ms = join_host(answer.gpu_time_ms, answer.host_time_ms, answer.sharpness)
        added_ms = (answer.iteration_time_ms - joined_ms)[0]
        assert added_ms > 0 if copies and from_host else added_ms == 0


def test_one_gpu_is_enough_if_it_ran_several_cnns():
    alone = fit_measurements(made_up(gpus={"T4": 3.6}))
    elsewhere = alone.forecast(zoo_cnn("resnet50"), find_gpu("V100-SXM2-16GB"), Mode(), [32])
    assert np.isfinite(elsewhere.high_ms).all()
    assert elsewhere.extrapolates[0]


def test_calibration_leaves_out_whole_cnns_and_then_whole_gpus():
    table = made_up()
    times, left_out = table["iteration_time_ms"].to_numpy(), []

    def refit(group):
        left_out.append(group)
        is_known = np.zeros(len(times), dtype=bool)
        return Predicted(times * 1.1, Shares(*np.zeros((5, len(times)))), is_known)

    calibrate(sites_of(table), table["gpu"].tolist(), times, refit, seed=0)
    for group in left_out:
        kept = table.drop(index=table.index[group])
        shares = [set(table.iloc[group][column]) & set(kept[column]) for column in ("cnn", "gpu")]
        assert set() in shares
    assert sorted(np.concatenate(left_out)) == sorted([*range(len(table))] * 2)


def test_accuracy_is_read_from_an_evaluations_summary(tmp_path):
    row = {"scenario": "unseen-cnn", "n": 5, "mape": 0.1, "median": 0.1, "p90": 0.2, "coverage": 0.9}
    table = pd.DataFrame([row | {"predictor": name} for name in ("roofline", "one's own")])
    table.assign(worst_coverage=0.5).to_csv(tmp_path / "summary.csv", index=False)
    [entry] = accuracy_of(tmp_path / "summary.csv")
    assert (entry["scenario"], entry["predictor"], entry["mape"]) == ("unseen-cnn", "roofline", 0.1)


def test_operators_of_the_table_are_served_beside_the_roofline(made_up_gpu, tmp_path):
    rows = made_up_gpu.operator_rows(operators_of(zoo_cnn("resnet18")), (16, 64), host="a desk")
    rows += made_up_gpu.target_rows(("resnet18", "vgg11_bn", "squeezenet1_1"), (16, 64))
    table = pd.concat([made_up(), check_measurements(pd.DataFrame(rows), "made up")], ignore_index=True)
    fit_measurements(table).save(tmp_path / "mine.json")
    served = Model.load(tmp_path / "mine.json")
    answer = served.forecast(zoo_cnn("resnet18"), find_gpu("H200"), Mode(precision="tf32"), [64])
    assert (answer.method, answer.host) == ("layer-times", "a desk")
    assert answer.gpu_time_ms == pytest.approx(made_up_gpu.target_ms(zoo_cnn("resnet18"), [64], {}), rel=0.03)
    assert served.forecast(zoo_cnn("resnet18"), find_gpu("T4"), Mode(), [64]).method == "roofline"
