"""What the judged figures compare: measurements, and what was predicted of them by fits that did not see them.

A judge takes a request and gives a table with a row for each measurement: `measured` and `predicted` or their `error`,
`low` and `high` where there is an interval, and `scenario`, `gpu`, `precision`, `memory_format`, `cnn`, `predictor` as
far as it tells them apart. Rows of one `part` are averaged before the mean over parts is taken. A new judge is one
function and one entry of `JUDGES`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from claims import answered_claims, claims
from epochs import (
    EpochCase,
    forecast_and_measured,
    held_out_starts,
    pytorch_epochs,
    read_rows,
    trained_epochs,
)
from power_fit import held_out_w, own_readings
from ratios_fit import (
    CHAINER,
    COMPILE,
    DATA_PARALLEL,
    CompiledPair,
    chainer_pairs,
    compiled_pairs,
    measured_cnn,
    own_tables,
    team_pairs,
)

from predictor.catalogue.devices import Gpu, find_gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.evaluation.run import errors_by, evaluate, registered_predictors
from predictor.evaluation.served import held_out_tables, judge_served
from predictor.evaluation.splits import LIBRARIES
from predictor.files import data_root, published_data_root
from predictor.measurements.features import feature_table
from predictor.measurements.published import published_features
from predictor.measurements.table import read_measurements
from predictor.models.base import Case
from predictor.models.chainer import SINGLE
from predictor.models.fit import HELD_OUT, TrainingData, fit_layer_models, own_measurements
from predictor.models.forecast import IterationForecast
from predictor.models.join import join_host
from predictor.models.layer_times.estimator import LayerTimes, modes_of
from predictor.models.layer_times.files import LayerModels
from predictor.models.layer_times.law import layer_sums
from predictor.models.layer_times.library import CarriedOver, OperatorLibrary
from predictor.models.roofline.model import Roofline
from predictor.models.served import Model
from predictor.operators.memory import CONTEXT_GIB, peak_memory_gib

MODE = ["precision", "memory_format"]
_COLUMNS = ["gpu", *MODE, "cnn", "measured", "predicted", "low", "high"]
FORECASTS = Path(__file__).with_name("forecasts.csv")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to judge: scenarios, the predictors and precisions that figures name, and folders of data.

    `published` is the folder of published measurements; None where it is not known.
    """

    scenarios: tuple[str, ...]
    predictors: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    published: Path | None = None
    jobs: int = 1

    @property
    def scenario(self) -> str:
        """The only scenario of the request."""
        (scenario,) = self.scenarios
        return scenario

    @property
    def published_folder(self) -> Path:
        """Folder of published measurements; DataError if it is not known."""
        return published_data_root(self.published)


class Measured(NamedTuple):
    """A measured time in ms of one mini-batch of a CNN."""

    gpu: Gpu
    mode: Mode
    cnn: str
    table: LayerTable
    batch_size: int
    time_ms: float


def _served(rows: Iterable[Measured]) -> pd.DataFrame:
    """Times beside the shipped model's answers, its machine not named."""
    model, answers = Model.load(), []
    for gpu, mode, cnn, table, batch_size, time_ms in rows:
        answer = model.forecast(table, gpu, mode, [batch_size])
        ends = [float(ms[0]) for ms in (answer.iteration_time_ms, answer.low_ms, answer.high_ms)]
        answers.append(_row(gpu, mode, cnn, time_ms, ends))
    return _table(answers)


def _row(gpu: Gpu, mode: Mode, cnn: str, measured: float, ends: Sequence[float]) -> tuple[Any, ...]:
    return (gpu.name, mode.precision, mode.memory_format, cnn, measured, *ends)


def _table(rows: Iterable[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=_COLUMNS)


class _WithinCampaign(Roofline):
    """The law, its intervals without what campaigns differ in: CNNs left out lie beside others of their campaign."""

    def forecasts(self, cases: Sequence[Case]) -> list[IterationForecast]:
        law = replace(self.law_, calibration=replace(self.law_.calibration, campaign=0.0))
        return Roofline.of(law, self.ranges_, self.trained_on_).forecasts(cases)


_WITHIN = "within-campaign"


def _evaluated(request: Request, features: pd.DataFrame) -> pd.DataFrame:
    names: Sequence[str] | dict[str, Any] = [name for name in request.predictors if name != _WITHIN]
    if _WITHIN in request.predictors:  # shares its fits with the law's
        names = registered_predictors(names) | {_WITHIN: _WithinCampaign()}
    result = evaluate(features, request.scenarios, names or None, n_jobs=request.jobs)
    rows = features.iloc[result.predictions["row"].to_numpy()].reset_index(drop=True)
    machine = rows["source"].astype(str) + ": " + rows["host"].fillna(rows["gpu"]).astype(str)
    of_machines = result.predictions["scenario"] == "unseen-gpu"  # a machine counts once
    return result.predictions.assign(memory_format=rows["memory_format"], part=machine.where(of_machines, ""))


def own_features(precisions: Sequence[str] = ()) -> pd.DataFrame:
    """Feature table of the PyTorch rows of our operator and target tables, with each operator's library.

    `h200_pytorch_targets` was measured before there was an instrument, its gradients added to kept ones: two launches
    per parameter tensor and 16 bytes per parameter more than operators add up to, 0.2 to 1.1 ms. It is left out.
    """
    root = data_root() / "measurements"
    paths = [path for kind in ("operators", "targets") for path in sorted(root.glob(f"*_{kind}.csv.gz"))]
    if not any("operators" in path.name for path in paths):
        raise DataError(f"{root} has no *_operators.csv.gz. Measure them with `epochcast profile`.")
    frame = pd.concat([_with_library(path) for path in paths], ignore_index=True)
    frame = frame[(frame["framework"] == "pytorch") & (frame["source"] == "epochcast")]
    if precisions:
        frame = frame[frame["precision"].isin(precisions)]
    single = set(frame.loc[frame["kind"] == "operator", "cnn"])  # no CNNs: looking for them takes seconds

    def layers_of(cnn: str, image_size: int) -> LayerTable | None:
        return None if cnn in single else zoo_cnn(cnn, image_size)

    source = frame["gpu"].map(lambda name: find_gpu(name).name.split()[1].lower())
    return feature_table(frame.assign(source=source).reset_index(drop=True), layers_of)


def _with_library(path: Path) -> pd.DataFrame:
    """One table; its name says which preset measured it, and notes shall: the same operator may be in several."""
    frame = read_measurements(path)
    library = next((name for name in LIBRARIES if f"_{name}_" in path.name), "zoo")
    single = frame["kind"] == "operator"
    notes = frame["notes"].astype(object).where(~single, f"library={library}")
    return frame.assign(notes=notes, held_out=path.name.endswith(HELD_OUT))


def of_held_out(request: Request) -> pd.DataFrame:
    """Errors of the shipped model, asked as by a user, on the project's CNNs that no fit has read.

    Scenario ``families``: of families of another library, timed eagerly beside the compiled iterations.
    """
    if request.scenario != "families":
        return judge_served(held_out_tables(data_root() / "measurements"), Model.load())
    measured, rows = own_tables("compiled"), []
    of_families = measured["cnn"].str.contains(".", regex=False) & (measured["capture"] == "eager")
    for row in measured[of_families & measured["gpu_time_ms"].notna()].itertuples():
        table, _ = measured_cnn(row.cnn, int(row.image_size))
        mode = Mode("pytorch", row.precision, row.memory_format, capture="graph")
        rows.append(Measured(find_gpu(row.gpu), mode, row.cnn, table, row.batch_size, row.gpu_time_ms))
    return _served(rows)


def of_three_minutes(request: Request) -> pd.DataFrame:
    """Errors on held-out CNNs, batch 8 to 192, of a model that knows only three minutes of `quick` of their GPU.

    The scenario says whether the chip is ``known`` by the shipped operators of its other cards, or ``unknown``.
    """
    folder, shipped, tables = data_root() / "measurements", Model.load(), []
    for path in sorted(folder.glob("*_quick_sample_operators.csv.gz")):
        measured = read_measurements(path)
        gpu = str(measured["gpu"].iloc[0])
        layers = LayerModels()
        if request.scenario == "known":
            others = (own for own in shipped.layers.in_files() if gpu not in _measured_on(own.library))
            layers = LayerModels(added={model.library.mode: model for model in others})
        model = replace(shipped, layers=layers.with_more(fit_layer_models(measured, layers)))
        judged = judge_served(held_out_tables(folder), model)
        tables.append(judged[(judged["gpu"] == gpu) & judged["batch_size"].between(8, 192)])
    return pd.concat(tables)


def _measured_on(library: OperatorLibrary | CarriedOver) -> set[str]:
    """GPUs on which a library and those that it rests on were measured."""
    base = library.source if isinstance(library, CarriedOver) else library.base
    return {library.mode.gpu} | (_measured_on(base) if base is not None else set())


_LARGEST_EAGER_BATCH = 32


def of_eager(request: Request) -> pd.DataFrame:
    """Errors on small eager iterations, by fits that saw the CNN's operators but no iteration or host time of it."""
    features = own_features(request.precisions)
    features = features[(features["source"] == "h200") & ~features["held_out"]]
    small = (features["kind"] == "target") & (features["batch_size"] <= _LARGEST_EAGER_BATCH)
    small &= features["host_time_ms"].notna() & features["layer_table"].notna()
    tables = []
    for words, rows in features[small].groupby(MODE, sort=False):
        of_mode = (features[MODE] == list(words)).all(axis=1)
        for cnn in sorted(set(rows["cnn"])):
            of_others = features[of_mode & (features["cnn"] != cnn)]
            tables.append(_eager_answers(of_others, rows[rows["cnn"] == cnn]))
    return pd.concat(tables)


def _eager_answers(fitted_on: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    times = fitted_on["iteration_time_ms"].to_numpy()
    fitted = LayerTimes(calibrate=False).fit(fitted_on.drop(columns="iteration_time_ms_iqr"), times)
    predicted = []
    for row, mode in zip(rows.to_dict("records"), modes_of(rows), strict=True):
        layers = fitted.models_.added[mode]
        sums = layer_sums(layers.library, row["layer_table"], np.array([float(row["batch_size"])]))
        predicted.append(float(join_host(layers.law.gpu_ms(sums), np.array([layers.law.host_ms(sums)]))[0]))
    return rows[["gpu", *MODE, "cnn"]].assign(measured=rows["iteration_time_ms"], predicted=predicted)


@cache
def _own() -> pd.DataFrame:
    return own_measurements()


def _model_without(*cnns: str) -> Model:
    """The shipped model with layer models refitted from nothing without CNNs; their operators are known."""
    models = fit_layer_models(_own()[~_own()["cnn"].isin(cnns).to_numpy()])
    return replace(Model.load(), layers=LayerModels().with_more(models))


def of_compile(request: Request) -> pd.DataFrame:
    """GPU time of compiled iterations.

    The scenario is what is left out: ``gpu``, or ``family``, whose CNNs the layer models have not seen either.
    """
    measured, group = own_tables("compiled"), _COMPILED_GROUPS[request.scenario]
    pairs, rows = compiled_pairs(measured, Model.load()), []
    for name, ratios in COMPILE.held_out(pairs, group).items():
        own = [pair for pair in pairs if group(pair) == name]
        cnns = {pair.table.cnn for pair in own}
        if request.scenario == "family" and not all("." in cnn for cnn in cnns):
            own = compiled_pairs(measured[measured["cnn"].isin(cnns)], _model_without(*cnns))
        for pair in own:
            answer = pair.forecast(ratios)
            times = (answer.gpu_time_ms, answer.gpu_low_ms, answer.gpu_high_ms)
            rows.append(_row(pair.gpu, pair.mode, pair.cnn, pair.gpu_ms, [float(ms[0]) for ms in times]))
    return _table(rows)


_COMPILED_GROUPS: dict[str, Callable[[CompiledPair], str]] = {
    "family": lambda pair: pair.family,
    "gpu": lambda pair: pair.gpu.name,
}


def of_chainer(request: Request) -> pd.DataFrame:
    """Chainer's GPU time in fp32 and TF32 from PyTorch's, each family of CNNs left out, or all proxies.

    The scenario is ``cnns`` or ``proxies``, CNNs of a single convolution, whose intervals are wider.
    """
    pairs, rows, of_proxies = chainer_pairs(Model.load()), [], request.scenario == "proxies"
    for group, ratios in sorted(CHAINER.held_out(pairs).items()):
        if (group == "proxies") != of_proxies:
            continue
        cnns = {pair.cnn for pair in pairs if pair.group == group}
        within = math.exp(ratios.spread * (SINGLE if of_proxies else 1.0))
        for pair in chainer_pairs(_model_without(*cnns), cnns):
            if math.isfinite(pair.gpu_ms):
                ms, mode = pair.predicted_ms(ratios), Mode("chainer", pair.precision)
                ends = ms, ms / within, ms * within
                rows.append(_row(find_gpu(pair.gpu), mode, pair.cnn, pair.gpu_ms, ends))
    return _table(rows)


def of_several_gpus(request: Request) -> pd.DataFrame:
    """Iterations of several GPUs from that of one as measured, CNNs left out.

    The scenario is ``iteration`` where the GPU is the bottleneck, ``added``: what several GPUs add to it; ``small``:
    iterations of 2 to 32 images on each of two GPUs, which no fit reads.
    """
    fitted = team_pairs(own_tables("ddp"))
    of_small = request.scenario == "small"
    pairs = team_pairs(own_tables("ddp_small")) if of_small else [pair for pair in fitted if pair.gpu_bound]
    without, rows = DATA_PARALLEL.held_out(fitted), []
    for pair in pairs:
        one_ms = pair.one_ms if request.scenario == "added" else 0.0
        ratios = without.get(pair.cnn) or DATA_PARALLEL.fitted(fitted)
        time_ms = pair.predicted_ms(ratios)
        within, more_ms = ratios.spread * (time_ms - pair.one_ms), time_ms - one_ms
        ends = more_ms, more_ms - within, more_ms + within
        rows.append(_row(pair.gpu, pair.mode, pair.cnn, abs(pair.team_ms - one_ms), ends))
    return _table(rows)


def of_energy(request: Request) -> pd.DataFrame:
    """Energy of iterations, time and power predicted; the scenario is what is left out: ``cnn`` or ``gpu``."""
    readings = own_readings()
    groups = {"cnn": lambda reading: reading.cnn, "gpu": lambda reading: reading.gpu.name}
    rows, watts = [], held_out_w(readings, groups[request.scenario], served=True)
    for reading, power_w in zip(readings, watts, strict=True):
        ends = power_w * reading.predicted_ms[0], math.nan, math.nan
        millijoule = reading.power_w * reading.iteration_ms
        rows.append(_row(reading.gpu, reading.mode, reading.cnn, millijoule, ends))
    return _table(rows)


_PAIR_GPUS = ("T4", "V100-SXM2-16GB", "RTX 3060", "RTX 3090", "A100-SXM4-40GB", "RTX 4090", "L4", "L40S")
_PAIR_CNNS = (
    "alexnet", "convnext_tiny", "densenet121", "densenet201", "efficientnet_b0", "efficientnet_b4", "googlenet",
    "inception_v3", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "regnet_y_1_6gf", "resnet18", "resnet50",
    "resnet152", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1", "vgg16", "wide_resnet50_2",
)  # fmt: skip
_FASTER = (("tf32", "fp32"), ("amp_fp16", "fp32"), ("fp16", "amp_fp16"))


def of_pairs(_: Request) -> pd.DataFrame:
    """Pairs of precisions at batch 64: `error` is 1 if the order of their predicted GPU times is wrong, else 0."""
    model, rows = Model.load(), []
    for name, gpu in product(_PAIR_CNNS, map(find_gpu, _PAIR_GPUS)):
        devices = [(gpu, Mode(precision=precision)) for precision in precisions_of(gpu)]
        forecasts = model.forecasts(zoo_cnn(name), devices, [64])
        times = {mode.precision: ms.gpu_time_ms[0] for (_, mode), ms in zip(devices, forecasts, strict=True)}
        rows += [
            {"gpu": gpu.name, "precision": fast, "cnn": name, "error": float(times[fast] > times[slow])}
            for fast, slow in _FASTER
            if {fast, slow} <= set(times)
        ]
    return pd.DataFrame(rows)


_LEAST_GIB = 0.5
# Written by an earlier program: its peaks hold what CNNs before left behind (datasets/README.md).
_UNCLEAN = "h200_pytorch_targets.csv.gz"


def of_memory(_: Request) -> pd.DataFrame:
    """Measured and predicted peak memory in GiB of PyTorch's allocator on an H200, without the CUDA context.

    Rows of at most half a GiB are left out.
    """
    folder = data_root() / "measurements"
    paths = [path for path in sorted(folder.glob("h200_pytorch_*targets.csv.gz")) if path.name != _UNCLEAN]
    frame = pd.concat([read_measurements(path) for path in paths], ignore_index=True)
    frame = frame[frame["peak_memory_mib"] > 1024 * _LEAST_GIB]
    frame = frame.drop_duplicates(["cnn", "image_size", "batch_size", *MODE])
    predicted = predicted_peaks_gib(frame)
    return frame[["gpu", *MODE, "cnn"]].assign(measured=frame["peak_memory_mib"] / 1024, predicted=predicted)


def predicted_peaks_gib(rows: pd.DataFrame) -> list[float]:
    """Peak memory of each row of a measurement table in GiB, without the CUDA context."""
    return [
        peak_memory_gib(table, int(row.batch_size), Mode("pytorch", row.precision, row.memory_format))
        - CONTEXT_GIB
        for row in rows.itertuples()
        for table in (zoo_cnn(row.cnn, int(row.image_size)),)
    ]


_PROFILED = {
    "conv_": "^Device_(_Fused)?Conv2D",
    "depthwise": "^Device_Depthwise",
    "matmul": "^Device_MatMul$",
    "bias": "^Device_BiasAdd",
    "batch_norm": "^Device_FusedBatchNorm",
    "activation": "^Device_Relu",
    "_pool": "^Device_(Max|Avg)Pool",
    "add|fan_out": "^Device_Add(V2|N)$",
    "concat": "^Device_(ConcatV2|Slice)$",
    "optimizer": "^Device_ResourceApply",
}
"""Classes of kernels -> operations of TensorFlow's profiles; regular expressions."""


def of_profiles(request: Request) -> pd.DataFrame:
    """Predicted minus profiled share of each type of kernels in the GPU time of PROFET's iterations.

    No fit reads profiles. A part is a type; a fused convolution holds its bias and activation.
    """
    key, model, tables = ["gpu", "cnn", "image_size", "batch_size"], Model.load(), []
    profiles = pd.read_csv(request.published_folder / "profet_op_profile.csv.gz")
    names = [find_gpu(name).name for name in profiles["gpu"]]
    profiles = profiles.assign(gpu=names, cnn="profet/" + profiles["cnn"])
    features = published_features(request.published_folder, ("profet",)).drop_duplicates(key)
    rows = profiles.merge(features[[*key, "layer_table"]], on=key)
    for (gpu, cnn, size), own in rows.groupby(key[:3]):
        table, batches = own["layer_table"].iloc[0], own["batch_size"].to_numpy(dtype=float)
        case = Case(cnn, size, table, find_gpu(gpu), Mode("tensorflow", "fp32"), batches)
        ms = pd.DataFrame(model.roofline.forecasts([case])[0].class_ms)
        predicted, profiled = (
            pd.DataFrame({name: times.filter(regex=words[name]).sum(axis=1).to_numpy() for name in _PROFILED})
            for times, words in ((ms, {name: name for name in _PROFILED}), (own, _PROFILED))
        )
        shares = (times.div(times.sum(axis=1), axis=0) for times in (predicted, profiled))
        off = next(shares) - next(shares)
        tables.append(off.melt(var_name="part", value_name="error").assign(gpu=gpu, cnn=cnn))
    return pd.concat(tables)


_NEW_CNNS = ("mobilenet_v2", "resnet18_cifar", "own_plain")  # of the second set


def of_epochs(request: Request) -> pd.DataFrame:
    """Whole epochs that were forecast before they ran.

    The scenario is ``first`` or ``later`` with what is kept of them: ``resnet50`` on one GPU, ``all``, those ``new`` in
    the second set, or the third set's ``strangers``, CNNs of families that no table has.
    """
    number, _, kept = request.scenario.partition(" ")
    rows = []
    for case, forecast, measured in trained_epochs("" if kept in ("all", "resnet50") else kept):
        if kept == "resnet50" and (case.cnn != "resnet50" or case.n_gpus > 1):
            continue
        if kept == "new" and case.cnn not in _NEW_CNNS:
            continue
        ends, seconds = forecast_and_measured(forecast, measured, later=number == "later")
        rows.append(_row(find_gpu(measured["gpu"]), case.mode, case.cnn, seconds, ends))
    return _table(rows)


def of_starts(request: Request) -> pd.DataFrame:
    """Starts of trainings in s, without the first mini-batch, by ratios fitted without the CNN.

    Scenario ``step``: of trainings on arrays, what their first step takes beside an iteration, its mini-batch ready.
    """
    epochs = pytorch_epochs()
    judged = held_out_starts(epochs)
    if "step" not in request.scenarios:
        return judged
    arrays = epochs[epochs["from_files"] == 0]
    judged = judged.loc[arrays.index]
    return judged.assign(measured=judged["measured"] - (arrays["first_wait_s"] - arrays["one_worker_s"]))


def of_hosts(_: Request) -> pd.DataFrame:
    """Eager iterations of the forecast epochs on one GPU, without loading; the question names no host."""
    epochs = pytorch_epochs()
    epochs = epochs[(epochs["n_gpus"] == 1) & epochs["alone_ms"].notna()]
    cases = [(EpochCase.named(row.case), row) for row in epochs.itertuples()]
    return _served(
        Measured(find_gpu(row.gpu), case.mode, case.cnn, case.table, case.local_batch_size, row.alone_ms)
        for case, row in cases
    )


_ITERATIONS = ("compiled_hosts_h100_3.csv", "compiled_hosts_h100_4.csv")


def of_iterations(request: Request) -> pd.DataFrame:
    """Whole iterations at batch 4 and 64 on an H100, its host not named: ``eager``, or compiled by ``default``."""
    rows = []
    for row in chain.from_iterable(map(read_rows, _ITERATIONS)):
        if not row["error"] and row["how"] == request.scenario:
            words = ("tf32",) if row["mode"] == "tf32" else ("amp_bf16", "channels_last")
            capture = "eager" if request.scenario == "eager" else "compile"
            mode = Mode("pytorch", *words, capture=capture, float32_matmul_precision="high")
            size, wall_ms = int(row["batch_size"]), float(row["wall_ms"])
            rows.append(Measured(find_gpu(row["gpu"]), mode, row["cnn"], zoo_cnn(row["cnn"]), size, wall_ms))
    return _served(rows)


def of_forecasts(request: Request) -> pd.DataFrame:
    """Forecasts of one quantity that were committed before it was measured.

    The scenario is a quantity and a campaign of forecasts.csv: ``epoch_time of sixth epochs``. A question counts as a
    CNN.
    """
    quantity, _, campaign = request.scenario.partition(" of ")
    rows = read_forecasts()
    rows = rows[(rows["quantity"] == quantity) & (rows["campaign"] == campaign)]
    return rows.rename(columns={"question": "cnn", "forecast": "predicted", "truth": "measured"})


def read_forecasts() -> pd.DataFrame:
    """Forecasts with their truths, of finished campaigns (tag `campaigns`, commit 96df2659)."""
    rows = pd.read_csv(FORECASTS)
    return rows[rows["forecast"].notna() & rows["truth"].notna()]


def forecast_errors() -> pd.DataFrame:
    """Errors of forecasts (`errors_by`) by campaign and quantity; `inside` counts truths inside their interval."""
    rows = read_forecasts().rename(columns={"forecast": "predicted", "truth": "measured"})
    table = errors_by(rows, ["campaign", "quantity"])
    return table.assign(inside=(table["inside"] * table["n"]).round().astype("Int64")).reset_index()


def of_claims(request: Request) -> pd.DataFrame:
    """Published trainings of a scenario beside the answers of `predict`; of `all`, `part` is the group of sources."""
    rows = answered_claims(claims(request.scenario))
    return rows.rename(columns={"group": "part"}) if request.scenario == "all" else rows


JUDGES: dict[str, Callable[[Request], pd.DataFrame]] = {
    # scenarios of `epochcast evaluate`, on all that the default is fitted on and on our own tables
    "published": lambda request: _evaluated(
        request, TrainingData.of_default(request.published_folder).features
    ),
    "own": lambda request: _evaluated(request, own_features(request.precisions)),
    "held-out": of_held_out,
    "three-minutes": of_three_minutes,
    "eager": of_eager,
    "compile": of_compile,
    "chainer": of_chainer,
    "several-gpus": of_several_gpus,
    "energy": of_energy,
    "memory": of_memory,
    "profiles": of_profiles,
    "pairs": of_pairs,
    "epochs": of_epochs,
    "hosts": of_hosts,
    "starts": of_starts,
    "iterations": of_iterations,
    "forecasts": of_forecasts,
    "claims": of_claims,
}
