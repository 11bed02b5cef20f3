"""What the judged figures compare: measurements, and what was predicted of them by fits that did not see them.

A judge takes scenarios and gives a table with a row for each measurement: `measured` and `predicted` or their `error`,
`low` and `high` where there is an interval, and `scenario`, `gpu`, `precision`, `memory_format`, `cnn`, `predictor` as
far as it tells them apart. Rows of one `part` are averaged before the mean over parts is taken. A new judge is one
function and one entry of `JUDGES`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from claims import asked_claims, claims
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
    chainer_pairs,
    compiled_pairs,
    measured_cnn,
    own_tables,
    team_pairs,
)

from predictor.catalogue.devices import find_gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.evaluation.run import evaluate, registered_predictors
from predictor.evaluation.served import held_out_tables, judge_served
from predictor.evaluation.splits import LIBRARIES
from predictor.files import data_root, published_data_root
from predictor.measurements.features import feature_table
from predictor.measurements.published import published_features
from predictor.measurements.schema import is_compiled
from predictor.measurements.table import read_measurements
from predictor.models.base import Case
from predictor.models.chainer import SINGLE
from predictor.models.fit import HELD_OUT, TrainingData, fit_layer_models, own_measurements
from predictor.models.forecast import IterationForecast
from predictor.models.join import join_host
from predictor.models.layer_times.estimator import LayerTimes, modes_of
from predictor.models.layer_times.files import LayerModels, library_mode
from predictor.models.layer_times.fit import with_forests
from predictor.models.layer_times.law import counted_operators, layer_sums
from predictor.models.layer_times.library import CarriedOver, OperatorLibrary
from predictor.models.layer_times.served import forecast_by_layers
from predictor.models.roofline.model import Roofline
from predictor.models.served import Model
from predictor.operators.memory import CONTEXT_GIB, peak_memory_gib
from predictor.operators.operators import Operator
from predictor.operators.work import operator_class

MODE = ["precision", "memory_format"]
_COLUMNS = ["gpu", *MODE, "cnn", "measured", "predicted", "low", "high"]
FORECASTS = Path(__file__).with_name("forecasts.csv")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a judge is asked: its scenarios, the predictors and precisions that figures name, and where data lie.

    `published` is the folder of published measurements; None where it is not known.
    """

    scenarios: tuple[str, ...]
    predictors: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    published: Path | None = None
    jobs: int = 1

    @property
    def scenario(self) -> str:
        """The only scenario, of judges that are asked for one at a time."""
        (scenario,) = self.scenarios
        return scenario

    @property
    def published_folder(self) -> Path:
        """The folder of published measurements; a DataError that says how to get them if it is not known."""
        return published_data_root(self.published)


def of_published(asked: Asked) -> pd.DataFrame:
    """Scenarios of `epochcast evaluate` on all that the default is fitted on, by its own recipe."""
    return _evaluated(asked, TrainingData.of_default(asked.published_folder).features)


def of_own_tables(asked: Asked) -> pd.DataFrame:
    """A scenario of `epochcast evaluate` on our own tables."""
    return _evaluated(asked, own_features(asked.precisions))


class _WithinCampaign(Roofline):
    """The law, its intervals without what campaigns differ in: CNNs left out lie beside others of their campaign."""

    def forecasts(self, cases: Sequence[Case]) -> list[IterationForecast]:
        law = replace(self.law_, calibration=replace(self.law_.calibration, campaign=0.0))
        return Roofline.of(law, self.ranges_, self.trained_on_).forecasts(cases)


_WITHIN = "within-campaign"


def _evaluated(asked: Asked, features: pd.DataFrame) -> pd.DataFrame:
    names: Sequence[str] | dict[str, Any] = [name for name in asked.predictors if name != _WITHIN]
    if _WITHIN in asked.predictors:  # shares its fits with the law's
        names = registered_predictors(names) | {_WITHIN: _WithinCampaign()}
    result = evaluate(features, asked.scenarios, names or None, n_jobs=asked.jobs)
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


def of_held_out(asked: Asked) -> pd.DataFrame:
    """The shipped model, by the path of answers, on CNNs of ours that no fit has read.

    Scenario ``families``: of families of another library, timed eagerly beside the compiled iterations.
    """
    if asked.scenario == "families":
        return _eager_families()
    return _renamed(judge_served(held_out_tables(data_root() / "measurements"), Model.load()))


def _eager_families() -> pd.DataFrame:
    model, measured, rows = Model.load(), own_tables("compiled"), []
    theirs = measured["cnn"].str.contains(".", regex=False) & (measured["capture"] == "eager")
    for row in measured[theirs & measured["gpu_time_ms"].notna()].itertuples():
        table, _ = measured_cnn(row.cnn, int(row.image_size))
        mode = Mode("pytorch", row.precision, row.memory_format, capture="graph")
        answer = model.forecast(table, find_gpu(row.gpu), mode, [row.batch_size])
        rows.append(_row(row.gpu, mode, row.cnn, row.gpu_time_ms, answer))
    return pd.DataFrame(rows, columns=_COLUMNS)


def of_three_minutes(asked: Asked) -> pd.DataFrame:
    """The same CNNs, batch 8 to 192, where only three minutes of `quick` are known of their GPU.

    The scenario says whether the chip is ``known`` by the shipped operators of its other cards, or ``unknown``.
    """
    folder, shipped, tables = data_root() / "measurements", Model.load(), []
    for path in sorted(folder.glob("*_quick_sample_operators.csv.gz")):
        measured = read_measurements(path)
        gpu = str(measured["gpu"].iloc[0])
        known = _of_other_gpus(shipped.layers, gpu) if asked.scenario == "known" else LayerModels()
        model = replace(shipped, layers=known.with_more(fit_layer_models(measured, known)))
        own = [
            table for table in held_out_tables(folder) if str(read_measurements(table)["gpu"].iloc[0]) == gpu
        ]
        judged = judge_served(own, model)
        tables.append(_renamed(judged[judged["batch_size"].between(8, 192)]))
    return pd.concat(tables)


def _of_other_gpus(layers: LayerModels, gpu: str) -> LayerModels:
    """The shipped operators of all GPUs but one, without those that rest on measurements of it."""
    models = layers.in_files()
    return LayerModels(
        added={model.library.mode: model for model in models if gpu not in _measured_on(model.library)}
    )


def _measured_on(library: OperatorLibrary | CarriedOver) -> set[str]:
    """GPUs on which a library and those that it rests on were measured."""
    base = library.source if isinstance(library, CarriedOver) else library.base
    return {library.mode.gpu} | (_measured_on(base) if base is not None else set())


def _renamed(judged: pd.DataFrame) -> pd.DataFrame:
    return judged.rename(columns={f"{name}_ms": name for name in ("measured", "predicted", "low", "high")})


_H200 = find_gpu("NVIDIA H200")
_LEFT_OUT = {
    "type": (
        *("activation", "batch_norm", "add", "max_pool", "concat", "avg_pool", "multiply", "linear"),
        "elementwise",  # all of activation, add, multiply, concat
    ),
    "convolution": ("depthwise", "1 x 1", "3 x 3", "larger"),
}


def of_left_out(asked: Asked) -> pd.DataFrame:
    """GPU time on an H200 of our CNNs with a type or kind of convolution that is left out of its operators.

    A part is one of these. Predictors: ``default`` as served, ``layer-times`` by the other operators, ``roofline``.
    """
    measured, model, tables = _graph_times(), Model.load(), []
    for words, rows in measured.groupby(MODE, sort=False):
        mode = Mode(**dict(zip(MODE, words, strict=True)), capture="graph", float32_matmul_precision="high")
        layers = model.layers.measured(library_mode(_H200, mode))
        for kind in _LEFT_OUT[asked.scenario] if layers is not None else ():
            gone = [each for each in layers.library.operators if _is_of(each, kind)]
            lesser = layers.library.without(gone)
            if asked.scenario == "convolution":  # trees have seen all of them
                lesser = with_forests(replace(lesser, base=None, forests={}, expected=None, hidden={}))
            known = replace(layers, library=lesser)
            serving = replace(model, layers=LayerModels().with_more([known]))
            for (cnn, size), own in rows.groupby(["cnn", "image_size"]):
                table, batches = zoo_cnn(cnn, int(size)), own["batch_size"].to_numpy(dtype=float)
                if not any(_is_of(each, kind) for each in counted_operators(table)[0]):
                    continue
                case = Case(cnn, int(size), table, _H200, mode, batches, ())
                answers = {
                    "default": serving.forecast(table, _H200, mode, batches),
                    "layer-times": forecast_by_layers(known, case, known.sums),
                    "roofline": serving.forecast(table, _H200, mode, batches, method="roofline"),
                }
                tables += [
                    own[["gpu", *MODE, "cnn"]].assign(
                        predictor=name,
                        part=kind,
                        measured=own["gpu_time_ms"],
                        predicted=answer.gpu_time_ms,
                        low=answer.gpu_low_ms,
                        high=answer.gpu_high_ms,
                    )
                    for name, answer in answers.items()
                ]
    return pd.concat(tables)


def _graph_times() -> pd.DataFrame:
    """GPU times of the H200's CNNs in PyTorch, uncompiled, in three modes; TF32 with matrix products in it."""
    rows = own_measurements(("targets",))
    rows = rows[(rows["gpu"] == _H200.name) & (rows["framework"] == "pytorch") & ~is_compiled(rows)]
    rows = rows[
        (rows["source"] == "epochcast") & rows["gpu_time_ms"].notna() & (rows["n_gpus"].fillna(1) == 1)
    ]
    rows = rows[~rows["autotune"].fillna(False).astype(bool)]
    rows = rows.assign(memory_format=rows["memory_format"].fillna("nchw"))
    in_tf32 = (rows["precision"] == "tf32") & (rows["memory_format"] == "nchw")
    rows = rows[in_tf32 & (rows["float32_matmul_precision"] == "high") | (rows["precision"] == "amp_bf16")]
    return rows.groupby(["gpu", *MODE, "cnn", "image_size", "batch_size"], as_index=False)[
        "gpu_time_ms"
    ].median()


def _is_of(operator: Operator, kind: str) -> bool:
    """Whether an operator is of a type, or a kind of convolution."""
    if operator.type != "conv2d":
        return operator.type == kind or (kind == "elementwise" and operator_class(operator) in _ELEMENTWISE)
    if operator_class(operator) == "depthwise":
        return kind == "depthwise"
    return kind == {1: "1 x 1", 3: "3 x 3"}.get(operator.kernel_height, "larger")


_ELEMENTWISE = ("activation", "add", "multiply", "concat")

_LARGEST_EAGER_BATCH = 32


def of_eager(asked: Asked) -> pd.DataFrame:
    """Small eager iterations of CNNs whose operators were measured; whole iterations and hosts by other CNNs."""
    features = own_features(asked.precisions)
    features = features[(features["source"] == "h200") & ~features["held_out"]]
    small = (features["kind"] == "target") & (features["batch_size"] <= _LARGEST_EAGER_BATCH)
    small &= features["host_time_ms"].notna() & features["layer_table"].notna()
    tables = []
    for words, rows in features[small].groupby(MODE, sort=False):
        of_mode = (features[MODE] == list(words)).all(axis=1)
        for cnn in sorted(set(rows["cnn"])):
            known = features[of_mode & (features["cnn"] != cnn)]
            tables.append(_eager_answers(known, rows[rows["cnn"] == cnn]))
    return pd.concat(tables)


def _eager_answers(known: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    times = known["iteration_time_ms"].to_numpy()
    fitted = LayerTimes(calibrate=False).fit(known.drop(columns="iteration_time_ms_iqr"), times)
    predicted = []
    for row, mode in zip(rows.to_dict("records"), modes_of(rows), strict=True):
        layers = fitted.models_.added[mode]
        sums = layer_sums(layers.library, row["layer_table"], np.array([float(row["batch_size"])]))
        predicted.append(float(join_host(layers.law.gpu_ms(sums), np.array([layers.law.host_ms(sums)]))[0]))
    return rows[["gpu", *MODE, "cnn"]].assign(measured=rows["iteration_time_ms"], predicted=predicted)


def of_compile(asked: Asked) -> pd.DataFrame:
    """GPU time of compiled iterations.

    The scenario is what is left out: ``gpu``, or ``family``, whose CNNs the layer models have not seen either.
    """
    measured, shipped = own_tables("compiled"), Model.load()
    known = compiled_pairs(measured, shipped)
    of_group = {"family": lambda pair: pair.family, "gpu": lambda pair: pair.gpu.name}[asked.scenario]
    rows = []
    for name in dict.fromkeys(map(of_group, known)):
        ratios = COMPILE.fitted([pair for pair in known if of_group(pair) != name])
        own = [pair for pair in known if of_group(pair) == name]
        cnns = {pair.table.cnn for pair in own}
        if asked.scenario == "family" and not all("." in cnn for cnn in cnns):
            own = compiled_pairs(measured[measured["cnn"].isin(cnns)], _model_without(*cnns))
        for pair in own:
            answer = pair.forecast(ratios)
            ends = (float(each[0]) for each in (answer.gpu_time_ms, answer.gpu_low_ms, answer.gpu_high_ms))
            rows.append((pair.gpu.name, *_words(pair.mode), pair.cnn, pair.gpu_ms, *ends))
    return pd.DataFrame(rows, columns=_COLUMNS)


def _row(gpu: str, mode: Mode, cnn: str, measured: float, answer: IterationForecast) -> tuple[Any, ...]:
    """A row of `_COLUMNS` of an iteration's answer at one batch size."""
    ends = (float(each[0]) for each in (answer.iteration_time_ms, answer.low_ms, answer.high_ms))
    return (gpu, *_words(mode), cnn, measured, *ends)


def _words(mode: Mode) -> tuple[str, str]:
    return mode.precision, mode.memory_format


@cache
def _own() -> pd.DataFrame:
    return own_measurements()


def _model_without(*cnns: str) -> Model:
    """The shipped model with layer models refitted from nothing without CNNs; their operators are known."""
    models = fit_layer_models(_own()[~_own()["cnn"].isin(cnns).to_numpy()])
    return replace(Model.load(), layers=LayerModels().with_more(models))


def of_chainer(asked: Asked) -> pd.DataFrame:
    """Chainer's GPU time in fp32 and TF32 from PyTorch's, each family of CNNs left out, or all proxies.

    The scenario is ``cnns`` or ``proxies``, CNNs of a single convolution, whose intervals are wider.
    """
    known, rows, of_proxies = chainer_pairs(Model.load()), [], asked.scenario == "proxies"
    for group in sorted({pair.group for pair in known if (pair.group == "proxies") == of_proxies}):
        cnns = {pair.cnn for pair in known if pair.group == group}
        ratios = CHAINER.fitted([pair for pair in known if pair.group != group])
        for pair in chainer_pairs(_model_without(*cnns), cnns):
            if not math.isfinite(pair.gpu_ms):
                continue
            time_ms = pair.predicted_ms(ratios)
            within = math.exp(ratios.spread * (SINGLE if of_proxies else 1.0))
            ends = time_ms, time_ms / within, time_ms * within
            rows.append((pair.gpu, pair.precision, "nchw", pair.cnn, pair.gpu_ms, *ends))
    return pd.DataFrame(rows, columns=_COLUMNS)


def of_several_gpus(asked: Asked) -> pd.DataFrame:
    """Iterations of several GPUs from that of one as measured, CNNs left out.

    The scenario is ``iteration`` where the GPU is the bottleneck, ``added``: what several GPUs add to it; ``small``:
    iterations of 2 to 32 images on each of two GPUs, which no fit reads.
    """
    fitted = team_pairs(own_tables("ddp"))
    of_small = asked.scenario == "small"
    pairs = team_pairs(own_tables("ddp_small")) if of_small else [pair for pair in fitted if pair.gpu_bound]
    without, rows = DATA_PARALLEL.held_out(fitted), []
    for pair in pairs:
        one_ms = pair.one_ms if asked.scenario == "added" else 0.0
        ratios = without.get(pair.cnn) or DATA_PARALLEL.fitted(fitted)
        time_ms = pair.predicted_ms(ratios)
        within = ratios.spread * (time_ms - pair.one_ms)
        mode, more_ms = (pair.precision, pair.memory_format), time_ms - one_ms
        ends = more_ms, more_ms - within, more_ms + within
        rows.append((pair.gpu.name, *mode, pair.cnn, abs(pair.team_ms - one_ms), *ends))
    return pd.DataFrame(rows, columns=_COLUMNS)


def of_energy(asked: Asked) -> pd.DataFrame:
    """Energy of iterations, time and power predicted; the scenario is what is left out: ``cnn`` or ``gpu``."""
    readings = own_readings()
    groups = {"cnn": lambda reading: reading.cnn, "gpu": lambda reading: reading.gpu.name}
    power_w = held_out_w(readings, groups[asked.scenario], served=True)
    rows = [
        (reading.gpu.name, *_words(reading.mode), reading.cnn, reading.power_w * reading.iteration_ms)
        for reading in readings
    ]
    energy = power_w * [reading.predicted_ms[0] for reading in readings]
    return pd.DataFrame(rows, columns=_COLUMNS[:5]).assign(predicted=energy)


_PAIR_GPUS = ("T4", "V100-SXM2-16GB", "RTX 3060", "RTX 3090", "A100-SXM4-40GB", "RTX 4090", "L4", "L40S")
_PAIR_CNNS = (
    "alexnet", "convnext_tiny", "densenet121", "densenet201", "efficientnet_b0", "efficientnet_b4", "googlenet",
    "inception_v3", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "regnet_y_1_6gf", "resnet18", "resnet50",
    "resnet152", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1", "vgg16", "wide_resnet50_2",
)  # fmt: skip
_FASTER = (("tf32", "fp32"), ("amp_fp16", "fp32"), ("fp16", "amp_fp16"))


def of_pairs(_: Asked) -> pd.DataFrame:
    """Precisions in the wrong order at batch 64: `error` is 1 where the faster one is answered slower, else 0.

    By the GPU's time: autocast makes the host slower.
    """
    model, rows = Model.load(), []
    for name, gpu in product(_PAIR_CNNS, map(find_gpu, _PAIR_GPUS)):
        times = {
            precision: model.forecast(
                zoo_cnn(name), gpu, Mode(precision=precision), np.array([64])
            ).gpu_time_ms[0]
            for precision in precisions_of(gpu)
        }
        rows += [
            {"gpu": gpu.name, "precision": fast, "cnn": name, "error": float(times[fast] > times[slow])}
            for fast, slow in _FASTER
            if {fast, slow} <= set(times)
        ]
    return pd.DataFrame(rows)


_LEAST_GIB = 0.5
# Written by an earlier program: its peaks hold what CNNs before left behind (datasets/README.md).
_UNCLEAN = "h200_pytorch_targets.csv.gz"


def of_memory(_: Asked) -> pd.DataFrame:
    """Peak memory above half a GiB that PyTorch's allocator reached on our H200, without the CUDA context."""
    folder = data_root() / "measurements"
    paths = [path for path in sorted(folder.glob("h200_pytorch_*targets.csv.gz")) if path.name != _UNCLEAN]
    frame = pd.concat([read_measurements(path) for path in paths], ignore_index=True)
    frame = frame[frame["peak_memory_mib"] > 1024 * _LEAST_GIB]
    frame = frame.drop_duplicates(["cnn", "image_size", "batch_size", *MODE])
    predicted = [
        peak_memory_gib(
            zoo_cnn(row.cnn, int(row.image_size)),
            int(row.batch_size),
            Mode(precision=row.precision, memory_format=row.memory_format),
        )
        - CONTEXT_GIB
        for row in frame.itertuples()
    ]
    return frame[["gpu", *MODE, "cnn"]].assign(measured=frame["peak_memory_mib"] / 1024, predicted=predicted)


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


def of_profiles(asked: Asked) -> pd.DataFrame:
    """How the GPU's time of PROFET's iterations divides: predicted share of a type of kernels minus the profiled one.

    No fit reads profiles. A part is a type; a fused convolution holds its bias and activation.
    """
    key, model, tables = ["gpu", "cnn", "image_size", "batch_size"], Model.load(), []
    profiles = pd.read_csv(asked.published_folder / "profet_op_profile.csv.gz")
    profiles = profiles.assign(
        gpu=[find_gpu(name).name for name in profiles["gpu"]], cnn="profet/" + profiles["cnn"]
    )
    features = published_features(asked.published_folder, ("profet",)).drop_duplicates(key)
    rows = profiles.merge(features[[*key, "layer_table"]], on=key)
    for (gpu, cnn, size), own in rows.groupby(key[:3]):
        table, batches = own["layer_table"].iloc[0], own["batch_size"].to_numpy(dtype=float)
        case = Case(cnn, size, table, find_gpu(gpu), Mode("tensorflow", "fp32"), batches)
        ms = pd.DataFrame(model.roofline.forecasts([case])[0].class_ms)
        predicted, profiled = (
            pd.DataFrame({name: found.filter(regex=words[name]).sum(axis=1).to_numpy() for name in _PROFILED})
            for found, words in ((ms, {name: name for name in _PROFILED}), (own, _PROFILED))
        )
        shares = (found.div(found.sum(axis=1), axis=0) for found in (predicted, profiled))
        off = next(shares) - next(shares)
        tables.append(off.melt(var_name="part", value_name="error").assign(gpu=gpu, cnn=cnn))
    return pd.concat(tables)


_NEW_CNNS = ("mobilenet_v2", "resnet18_cifar", "own_plain")  # of the second set


def of_epochs(asked: Asked) -> pd.DataFrame:
    """Whole epochs that were forecast before they ran.

    The scenario is ``first`` or ``later`` with what is kept of them: ``resnet50`` on one GPU, ``all``, those ``new`` in
    the second set, or the third set's ``strangers``, CNNs of families that no table has.
    """
    which, _, kept = asked.scenario.partition(" ")
    rows = []
    for case, forecast, measured in trained_epochs("" if kept in ("all", "resnet50") else kept):
        if kept == "resnet50" and (case.cnn != "resnet50" or case.n_gpus > 1):
            continue
        if kept == "new" and case.cnn not in _NEW_CNNS:
            continue
        ends, seconds = forecast_and_measured(forecast, measured, later=which == "later")
        rows.append((measured["gpu"], *_words(case.mode), case.cnn, seconds, *ends))
    return pd.DataFrame(rows, columns=_COLUMNS)


def of_starts(asked: Asked) -> pd.DataFrame:
    """Starts of trainings, without the first mini-batch, by numbers that were fitted without the CNN.

    Scenario ``step``: of trainings on arrays, what their first step takes beside an iteration, its mini-batch ready.
    """
    epochs = pytorch_epochs()
    judged = held_out_starts(epochs)
    if "step" not in asked.scenarios:
        return judged
    arrays = epochs[epochs["from_files"] == 0]
    judged = judged.loc[arrays.index]
    return judged.assign(measured=judged["measured"] - (arrays["first_wait_s"] - arrays["one_worker_s"]))


def of_hosts(_: Asked) -> pd.DataFrame:
    """Eager iterations of those trainings, their mini-batch on the GPU, on machines that the answer is not told of."""
    epochs, model, rows = pytorch_epochs(), Model.load(), []
    for row in epochs[(epochs["n_gpus"] == 1) & epochs["alone_ms"].notna()].itertuples():
        case = EpochCase.named(row.case)
        answer = model.forecast(case.table, find_gpu(row.gpu), case.mode, [case.local_batch_size])
        rows.append(_row(row.gpu, case.mode, case.cnn, row.alone_ms, answer))
    return pd.DataFrame(rows, columns=_COLUMNS)


_ITERATIONS = ("compiled_hosts_h100_3.csv", "compiled_hosts_h100_4.csv")


def of_iterations(asked: Asked) -> pd.DataFrame:
    """Whole iterations at batch 4 and 64 on an H100, its host not named: ``eager``, or compiled by ``default``."""
    model, rows = Model.load(), []
    for row in chain.from_iterable(map(read_rows, _ITERATIONS)):
        if row["error"] or row["how"] != asked.scenario:
            continue
        of_row = ("tf32",) if row["mode"] == "tf32" else ("amp_bf16", "channels_last")
        capture = "eager" if row["how"] == "eager" else "compile"
        mode = Mode("pytorch", *of_row, capture=capture, float32_matmul_precision="high")
        answer = model.forecast(zoo_cnn(row["cnn"]), find_gpu(row["gpu"]), mode, [int(row["batch_size"])])
        rows.append(_row(row["gpu"], mode, row["cnn"], float(row["wall_ms"]), answer))
    return pd.DataFrame(rows, columns=_COLUMNS)


def of_forecasts(asked: Asked) -> pd.DataFrame:
    """Forecasts of one quantity that were committed before it was measured.

    The scenario is a quantity and a campaign of forecasts.csv: ``epoch_time of sixth epochs``. A question counts as a
    CNN.
    """
    quantity, _, campaign = asked.scenario.partition(" of ")
    rows = read_forecasts()
    rows = rows[(rows["quantity"] == quantity) & (rows["campaign"] == campaign)]
    return rows.rename(columns={"question": "cnn", "forecast": "predicted", "truth": "measured"})


def read_forecasts() -> pd.DataFrame:
    """Forecasts with their truths, of finished campaigns (tag `campaigns`, commit 96df2659)."""
    rows = pd.read_csv(FORECASTS)
    return rows[rows["forecast"].notna() & rows["truth"].notna()]


def forecast_errors() -> pd.DataFrame:
    """Mean absolute error, truths inside their interval and number of forecasts, by campaign and quantity.

    `inside` is NA where forecasts have no interval.
    """
    rows = read_forecasts()
    inside = rows["truth"].between(rows["low"], rows["high"]).astype("Int64").where(rows["low"].notna())
    rows = rows.assign(error=(rows["forecast"] / rows["truth"] - 1).abs(), inside=inside)
    groups = rows.groupby(["campaign", "quantity"], sort=False)
    totals = groups["inside"].sum(min_count=1)
    return groups["error"].agg(error="mean", n="size").assign(inside=totals).reset_index()


def of_claims(asked: Asked) -> pd.DataFrame:
    """Published trainings as `predict` answers them; of all, a part is a group of sources."""
    rows = asked_claims(claims(asked.scenario))
    return rows.rename(columns={"group": "part"}) if asked.scenario == "all" else rows


JUDGES: dict[str, Callable[[Asked], pd.DataFrame]] = {
    "published": of_published,
    "own": of_own_tables,
    "held-out": of_held_out,
    "three-minutes": of_three_minutes,
    "left-out": of_left_out,
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
