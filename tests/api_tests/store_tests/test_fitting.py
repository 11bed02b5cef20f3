"""`epochcast fit --store` fits on what was uploaded, and writes a model that others may be reading."""

import pytest

import epochcast
from api.store.measurements import store_rows
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, SchemaError
from predictor.models.served import Model
from predictor.operators.operators import operator_row, operators_of


@pytest.fixture(scope="module")
def rows(make_rows):
    """Two CNNs on two GPUs, every operator of one of them, and a CPU, which the model is not fitted on."""
    cnns = [(gpu, cnn) for gpu in ("Tesla T4", "V100-SXM2-16GB") for cnn in ("resnet18", "vgg11")]
    iterations = [
        {"gpu": gpu, "cnn": cnn, "batch_size": 8 * 2**j, "iteration_time_ms": (100 + i) * 2.0**j}
        for i, (gpu, cnn) in enumerate(cnns)
        for j in range(5)
    ]
    times = {"iteration_time_ms": 0.5, "gpu_time_ms": 0.5, "host_time_ms": 0.02}
    operators = [
        {"batch_size": 64} | operator_row(operator) | times for operator in operators_of(zoo_cnn("resnet18"))
    ]
    cpu = {"gpu": "cpu:some model", "cnn": "resnet18"}
    return [made for row in (*iterations, *operators, cpu) for made in make_rows(1, **row)]


@pytest.fixture
def uploaded(store, key_id, rows):
    store_rows(store, rows, key_id)


def test_a_model_and_the_library_beside_it_are_fitted_on_what_was_uploaded(uploaded, store_url, tmp_path):
    model = epochcast.fit(store=store_url, out=tmp_path / "model.json")
    assert model.card["trained_on"] == "20 iterations of 2 CNNs on 2 GPUs"
    assert Model.load(tmp_path / "model.json").card == model.card
    answer = epochcast.predict("resnet18", "T4", 64, model=tmp_path / "model.json")
    assert answer["method"].tolist() == ["layer-times"]


def test_a_table_and_a_store_are_fitted_together(uploaded, store_url):
    import pandas as pd

    columns = ["gpu", "cnn", "image_size", "batch_size", "precision", "iteration_time_ms"]
    table = pd.DataFrame([["Tesla T4", "resnet34", 224, 8, "fp32", 300.0]], columns=columns)
    assert epochcast.fit(table, store=store_url).card["trained_on"] == "21 iterations of 3 CNNs on 2 GPUs"


def test_an_empty_store_and_nothing_to_fit_on_are_errors(store, store_url):
    with pytest.raises(DataError, match="no such measurement"):
        epochcast.fit(store=store_url)
    with pytest.raises(SchemaError, match="needs measurements, a folder of published ones, or a store"):
        epochcast.fit()


def test_the_command_says_which_libraries_it_wrote_and_where(uploaded, store_url, tmp_path):
    from typer.testing import CliRunner

    from epochcast.command import build_app

    out = tmp_path / "model.json"
    run = CliRunner().invoke(build_app(), ["fit", "--store", store_url, "--out", str(out)])
    assert run.exit_code == 0, run.output
    (line,) = [line for line in run.output.splitlines() if line.startswith("Operator libraries in")]
    assert all(word in line.casefold() for word in (f"{tmp_path}/model_operators".casefold(), "t4", "fp32"))
    assert "single_layers" not in run.output
