"""Columns from kept forecasts are the rows of `predict`, number by number."""

from dataclasses import fields

import pytest

from predictor.answers.forecast_memo import ForecastMemo
from predictor.answers.grid_answer import OfferFinder, grid_answer
from predictor.answers.predict import PredictionRow, predict
from predictor.answers.question import gpus_of
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import load_offers
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError
from predictor.models.served import Model

SIZES = [1, 32, 64, 100, 4096]


@pytest.fixture(scope="module")
def model():
    return Model.load()


@pytest.fixture(scope="module")
def memo(model):
    return ForecastMemo(model)


def rows_by_memo(memo, cnn, gpus, mode, **options):
    """What `grid_answer` gives, as rows."""
    table, chosen = zoo_cnn(cnn), gpus_of(gpus, mode.precision)
    method, host = options.pop("method", "auto"), options.pop("host", None)
    grid = memo.grid(table, chosen, SIZES, mode, method, host)
    spot = options.pop("spot", False)
    answer = grid_answer(grid, table, chosen, SIZES, mode, memo.model, OfferFinder(load_offers()), spot)
    epochs = answer.epochs(**options)
    return [row_at(answer, epochs, i, j) for i in range(len(chosen)) for j in range(len(SIZES))]


def row_at(answer, epochs, i, j):
    cell = i * len(SIZES) + j
    found = dict(answer.shared)
    found |= {name: values[i] for name, values in answer.by_gpu.items()}
    found |= {name: values[j] for name, values in answer.by_size.items()}
    found |= {name: values[cell] for name, values in (answer.by_cell | epochs).items()}
    return PredictionRow(**found, extrapolates=answer.reasons[answer.why[cell]])


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for field in fields(PredictionRow):
            a, b = getattr(one, field.name), getattr(other, field.name)
            assert a == (pytest.approx(b, rel=1e-12) if isinstance(b, float) else b), (field.name, other)


@pytest.mark.parametrize(
    ("cnn", "gpus", "mode", "options"),
    [
        ("resnet50", "all", {}, {"samples": 1_281_167}),
        ("mobilenet_v2", ["T4", "H200", "K80"], {}, {}),
        ("vgg16", ["T4", "RTX 3090"], {"precision": "amp_fp16"}, {"samples": 50_000, "validation_samples": 10_000}),
        ("resnet18", ["V100-SXM2-16GB"], {"framework": "tensorflow"}, {"samples": 777, "spot": True}),
        ("resnet18", ["H200"], {"capture": "graph", "memory_format": "channels_last"}, {"samples": 1}),
        ("resnet18", ["T4"], {"optimizer": "adam", "autotune": True}, {"method": "roofline"}),
    ],
)  # fmt: skip
def test_columns_are_the_rows_of_predict(model, memo, cnn, gpus, mode, options):
    expected = predict(cnn, gpus, SIZES, model=model, **mode, **options)
    assert_same(rows_by_memo(memo, cnn, gpus, Mode(**mode), **options), expected)
    assert_same(rows_by_memo(memo, cnn, gpus, Mode(**mode), **options), expected)  # now from the memo alone


def test_a_memo_gives_what_it_knows_and_asks_the_model_for_the_rest(model):
    memo, table, gpus = ForecastMemo(model), zoo_cnn("resnet18"), [find_gpu("T4"), find_gpu("H200")]
    assert memo.find(table, gpus, SIZES, Mode()) is None
    memo.grid(table, gpus[:1], SIZES[:2], Mode())
    assert memo.find(table, gpus[:1], SIZES[1:2], Mode()) is not None
    assert memo.find(table, gpus, SIZES[:2], Mode()) is None
    assert memo.find(table, gpus[:1], SIZES, Mode()) is None
    assert memo.find(table, gpus[:1], SIZES[:2], Mode(precision="amp_fp16")) is None
    assert memo.find(zoo_cnn("resnet18", 64), gpus[:1], SIZES[:2], Mode()) is None
    grown = memo.grid(table, gpus, SIZES, Mode())
    assert grown.times.shape == (5, 2, 5)


def test_a_memo_calls_the_model_once_for_each_cell(model, monkeypatch):
    memo, table, gpus, asked = ForecastMemo(model), zoo_cnn("resnet18"), [find_gpu("T4")], []
    forecast = Model.forecast

    def counted(self, table, gpu, mode, sizes, *rest):
        asked.append(sizes)
        return forecast(self, table, gpu, mode, sizes, *rest)

    monkeypatch.setattr(Model, "forecast", counted)
    for sizes in ([8, 16], [8, 16], [8, 32], [16, 32, 8]):
        memo.grid(table, gpus, sizes, Mode())
    assert asked == [[8, 16], [32]]


def test_a_memo_keeps_growing_past_its_first_room(model):
    memo, table, gpus = ForecastMemo(model), zoo_cnn("resnet18"), [find_gpu("T4")]
    for size in range(1, 40):
        memo.grid(table, gpus, [size], Mode())
    grid = memo.find(table, gpus, list(range(1, 40)), Mode())
    assert (grid.times[0, 0, 1:] > 0).all()


def test_a_memo_forgets_the_oldest_rather_than_grow_without_end(model, monkeypatch):
    monkeypatch.setattr("predictor.answers.forecast_memo._MOST_NUMBERS", 1500)
    memo, gpus = ForecastMemo(model), [find_gpu("T4")]
    for cnn in ("resnet18", "resnet34", "alexnet"):
        memo.grid(zoo_cnn(cnn), gpus, [8], Mode())
    assert memo.find(zoo_cnn("resnet18"), gpus, [8], Mode()) is None
    assert memo.find(zoo_cnn("alexnet"), gpus, [8], Mode()) is not None


def test_a_time_that_is_none_is_refused_and_not_kept(model, monkeypatch):
    memo, table, gpus = ForecastMemo(model), zoo_cnn("resnet18"), [find_gpu("T4")]
    forecast = Model.forecast

    def broken(self, *args):
        found = forecast(self, *args)
        found.iteration_time_ms[:] = float("nan")
        return found

    monkeypatch.setattr(Model, "forecast", broken)
    with pytest.raises(OutOfRangeError, match="nan ms for resnet18 on Tesla T4 at batch_size 8"):
        memo.grid(table, gpus, [8], Mode())
    monkeypatch.undo()
    assert memo.find(table, gpus, [8], Mode()) is None
    assert memo.grid(table, gpus, [8], Mode()).times[0, 0, 0] > 0
