"""The served model: fitted coefficients, read from JSON, applied with numpy.

The file holds only numbers and text, no training rows and no code: loading an untrusted model is safe.
`predictor.models.fit` makes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from logging import getLogger
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, check_precision, find_gpu, is_cpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import ArtifactError, EpochcastError, OutOfRangeError, SchemaError, nearest
from predictor.files import data_file, replace_file
from predictor.measurements.hosts import HostMeasurement
from predictor.models.base import Case, Measuring, check_image_size, table_of
from predictor.models.chainer import CHAINER_BY_PYTORCH, check_chainer, pytorch_host
from predictor.models.compiled import COMPILED
from predictor.models.epochs import Epochs
from predictor.models.extrapolation import Ranges, types_never_measured
from predictor.models.forecast import COVERAGE, Anchor, GpuTimeSplit, IterationForecast, Reason
from predictor.models.forecasts import Forecasts, positions_of_modes
from predictor.models.hosts import host_ms, idle_ms, measuring_on, speed_of
from predictor.models.join import join_host, with_gpu_share
from predictor.models.layer_times.files import LayerModels, library_mode
from predictor.models.named import BETTER, Methods
from predictor.models.ratios import DerivedMode
from predictor.models.registry import METHODS, WHOLE_METHODS
from predictor.models.residuals import is_of
from predictor.models.roofline.arrays import arrays_on
from predictor.models.roofline.model import Roofline
from predictor.operators.kernels import operator_classes_of
from predictor.operators.optimizers import update_of
from predictor.stopping import check_stop

if TYPE_CHECKING:
    from predictor.models.layer_times.law import OperatorTotals
    from predictor.models.layer_times.model import LayerModel

FORMAT_VERSION = 5

_TUNED_GPU_TIME = 0.95
"""GPU time autotuned over that without: on Hopper 61 convolutions take 0.91 (0.42 to 1.04) and are half of the time."""

_TUNED_AT_BEST = 0.85
_UNTUNED = Reason(
    "autotune",
    "autotuned convolutions were not measured on this chip in this mode; autotuning is taken to leave "
    f"{_TUNED_GPU_TIME} of the GPU time ({_TUNED_AT_BEST} to 1.0), as on Hopper, where it leaves 0.91 of a "
    "convolution's (0.42 to 1.04)",
)
_UNTUNED_RUN = Reason(
    "autotune",
    "autotuned convolutions were not measured on this chip in this mode; the given runs are taken to be autotuned",
)


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """Arguments of `Model.forecasts` that are the same on all devices."""

    table: LayerTable
    batches: Array
    anchors: Sequence[Anchor]
    method: str
    host: str | HostMeasurement | None
    from_host: bool

    def case(self, gpu: Gpu, mode: Mode, measuring: Measuring = Measuring()) -> Case:  # noqa: B008 - a tuple
        """The question on one device."""
        table = self.table
        return Case(table.cnn, table.image_size, table, gpu, mode, self.batches, self.anchors, measuring)


@dataclass(eq=False)
class Model(Epochs):
    """The law of specifications, operators measured on GPUs, and what was measured; the fields of the JSON file.

    `roofline` is the very object that evaluations judge. `methods` are the other predictors that a question may name,
    or what unpacks them when one is named.
    """

    roofline: Roofline
    card: dict[str, Any]
    layers: LayerModels = field(default_factory=LayerModels)
    methods: Methods | Callable[[], Methods] = field(default_factory=Methods)

    @property
    def fed_frameworks(self) -> tuple[str, ...]:
        """Frameworks whose iterations wait for the copy of mini-batches that come from the host."""
        return self.roofline.law_.fed_frameworks

    @property
    def ranges(self) -> Ranges:
        """Ranges of the training data of the law of specifications."""
        return self.roofline.ranges_

    @classmethod
    def load(cls, path: str | PathLike[str] | None = None) -> Model:
        """Read a model file; without path, the default that comes with epochcast.

        ArtifactError if the file is missing, damaged or of another version.
        """
        chosen = os.fspath(data_file("models/default.json") if path is None else path)
        try:  # by `os`, for every question
            return _read(os.path.abspath(chosen), os.stat(chosen).st_mtime_ns)  # noqa: PTH100, PTH116
        except OSError as error:
            raise ArtifactError(
                f"cannot read the model {chosen}: {error.strerror}. Write one with `epochcast fit`."
            ) from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as JSON, last, with the digests of the files beside it: a reader gets them all or none."""
        operators, methods = self.layers.save(Path(path)), self.named_methods()
        digest = methods.save(Path(path)) if methods.fitted or methods.errors else None
        written = {
            "format_version": FORMAT_VERSION,
            "files": {"methods": digest, "operators": operators},
            "card": self.card,
            "epoch_ms_per_iteration": self.epoch_ms_per_iteration,
            "ranges": self.ranges.as_json(),
            "roofline": self.roofline.law_.to_json(),
        }
        replace_file(path, json.dumps(written, indent=1, allow_nan=False) + "\n")

    def forecast(
        self,
        table: LayerTable,
        gpu: Gpu,
        mode: Mode,
        batch_sizes: Sequence[int] | ArrayLike,
        anchors: Sequence[Anchor] = (),
        method: str = "auto",
        host: str | HostMeasurement | None = None,
        *,
        from_host: bool = False,
    ) -> IterationForecast:
        """Time of one training iteration on one GPU; see `forecasts`."""
        devices = [(gpu, mode)]
        return self.forecasts(table, devices, batch_sizes, anchors, method, host, from_host=from_host)[0]

    def forecasts(
        self,
        table: LayerTable,
        devices: Sequence[tuple[Gpu, Mode]],
        batch_sizes: Sequence[int] | ArrayLike,
        anchors: Sequence[Anchor] = (),
        method: str = "auto",
        host: str | HostMeasurement | None = None,
        *,
        from_host: bool = False,
    ) -> Sequence[IterationForecast]:
        """Time of one training iteration of a CNN on each GPU, in the mode given with it, at each batch size.

        `from_host`: mini-batches come from the host, and not from the GPU's memory as synthetic data do: in frameworks
        of `fed_frameworks` an iteration waits for their copy. OutOfRangeError if a GPU lacks the precision, the host is
        unknown, `anchored` is asked for without anchors, or a named method leaves its range; SchemaError if the method
        is unknown, or a layer lacks its shape.
        """
        if method not in METHODS:
            text = f"no method is called {method!r}. Nearest: {nearest(method, METHODS)}."
            raise SchemaError(text).about("method")
        places = positions_of_modes(devices)
        for mode, own in places.items():
            alike: dict[float, Gpu] = {}  # the compute capability decides
            for gpu in (devices[place][0] for place in own):
                alike.setdefault(gpu.compute_capability, gpu)
            for gpu in alike.values():
                check_precision(gpu, mode.precision)
                if mode.framework == "chainer":
                    check_chainer(mode)
        batches = np.asarray(batch_sizes, dtype=float)
        if method in WHOLE_METHODS:
            try:
                return self.named_methods().forecasts(method, table, devices, batches, anchors)
            except EpochcastError as error:
                error.about("method")
                raise
        if method == "anchored" and not anchors:
            raise OutOfRangeError(
                "'anchored' needs a measurement of the CNN. Give an anchor, or use 'roofline'."
            )
        question = _Question(table, batches, anchors, method, host, from_host)
        return Forecasts.joined(
            (own, self._in_mode(question, tuple(devices[place][0] for place in own), mode))
            for mode, own in places.items()
        )

    def _in_mode(self, question: _Question, gpus: tuple[Gpu, ...], mode: Mode) -> Forecasts:
        """Forecasts in one mode: by another method where that is judged better, with what the CNN's step waits for."""
        check_stop()
        answers = self._by_default(question, gpus, mode)
        better = BETTER.get((mode.framework, bool(question.anchors)))
        if better is not None and question.method == "auto" and question.host is None:
            answers = answers.changed(
                lambda i, answer: self._judged_better(better, question.case(gpus[i], mode), answer)
            )
        if question.table.step is None:
            return answers
        return answers.changed(lambda _, answer: _with_waits(answer, question.table, mode))

    def _by_default(self, question: _Question, gpus: tuple[Gpu, ...], mode: Mode) -> Forecasts:
        """Forecast on each GPU in one mode: from its operators where they were measured, else from specifications."""
        if mode.is_compiled:
            return self._by_ratios(COMPILED, question, gpus, mode)
        method, host = question.method, question.host
        devices = [(gpu, mode) for gpu in gpus]
        plain = replace(mode, autotune=False) if mode.autotune else mode
        if mode.autotune:  # plain where no autotuned operator was measured on the chip
            own = self.layers.find_each([library_mode(gpu, mode) for gpu in gpus])
            devices = [(gpu, mode if layers else plain) for gpu, layers in zip(gpus, own, strict=True)]
        answers: dict[int, IterationForecast] = {}
        doubts: dict[int, Reason] = {}
        layers = enumerate(self._layers(devices, method, question.anchors))
        measured = {position: own for position, own in layers if own is not None}
        for (position, own_layers), own_totals in zip(
            measured.items(), _totals([*measured.values()], question, mode), strict=True
        ):
            check_stop()
            answer = self._by_layers(own_layers, own_totals, question.case(*devices[position]), method, host)
            if isinstance(answer, IterationForecast):
                answers[position] = answer
            else:
                doubts[position] = answer
        tuned = {position for position in answers if devices[position][1].autotune}
        left = [position for position in range(len(devices)) if position not in answers]
        unmeasured = tuple(gpus[position] for position in left)
        runs = [anchor for anchor in question.anchors if method != "roofline" and not is_cpu(anchor.gpu)]
        of_runs = replace(question, anchors=runs) if question.anchors else question
        if left and mode.framework == "chainer" and all(words[0] != "chainer" for words in self.ranges.modes):
            of_runs = replace(of_runs, host=pytorch_host(host))
            specified: Sequence[IterationForecast] = self._by_ratios(
                CHAINER_BY_PYTORCH, of_runs, unmeasured, plain
            )
        else:
            specified = self._by_specifications(of_runs, unmeasured, plain)
        forecasts = Forecasts.joined([(list(answers), [*answers.values()]), (left, specified)])

        def doubted(position: int, answer: IterationForecast) -> IterationForecast:
            if position in doubts:
                answer = _doubted(answer, doubts[position])
            if not mode.autotune or position in tuned:
                return answer
            if runs:  # they hold the effect, which was not measured there
                return _doubted(answer, _UNTUNED_RUN)
            return with_gpu_share(answer, _TUNED_GPU_TIME, _TUNED_AT_BEST, 1.0, _UNTUNED)

        return forecasts.changed(doubted) if doubts or mode.autotune else forecasts

    def on(self, device: str) -> Model:
        """The model whose law of specifications is computed on a device; errors as of `arrays_on`."""
        law = replace(self.roofline.law_, arrays=arrays_on(device))
        return replace(self, roofline=self.roofline.with_law(law))

    def _by_ratios(
        self, derived: DerivedMode, question: _Question, gpus: Sequence[Gpu], mode: Mode
    ) -> Forecasts:
        """Forecasts in a mode that ratios derive from another one; anchors are runs in the derived mode."""
        table, batches, host = question.table, question.batches, question.host
        in_known_mode = [(gpu, derived.known_mode(table, gpu, mode)) for gpu in gpus]
        converted = self._anchors_in_known_mode(derived, question, mode)
        bases = self.forecasts(table, in_known_mode, batches, converted, question.method, host)
        plain = self.forecasts(table, in_known_mode, batches, host=host) if converted else bases
        by_default = plain if converted or question.method == "auto" else None
        shares = self._host_shares(derived, question, in_known_mode, mode, by_default)
        return Forecasts.of(bases).changed(
            lambda i, base: derived.forecast(
                base, table, gpus[i], mode, batches, shares[i], uncorrected=plain[i]
            )
        )

    def _host_shares(
        self,
        derived: DerivedMode,
        question: _Question,
        known: list[tuple[Gpu, Mode]],
        mode: Mode,
        bases: Sequence[IterationForecast] | None,
    ) -> list[float]:
        """Host time in `derived.own_mode` over that on `known`, of which there may be `bases`, at the same sizes."""
        table, batches, host = question.table, question.batches, question.host
        own = [(gpu, derived.own_mode(mode)) for gpu, _ in known]
        if own == known or mode.replays:
            return [1.0] * len(known)
        bases = bases or self.forecasts(table, known, batches, host=host)
        pairs = zip(self.forecasts(table, own, batches, host=host), bases, strict=True)
        return [float(answer.host_time_ms[0] / base.host_time_ms[0]) for answer, base in pairs]

    def _anchors_in_known_mode(self, derived: DerivedMode, question: _Question, mode: Mode) -> list[Anchor]:
        """The anchors converted to `derived.known_mode`: their times over the predicted ratio of the two modes."""
        table, anchors = question.table, question.anchors
        positions: dict[tuple[str, str | None], list[int]] = {}
        for position, anchor in enumerate(anchors):
            positions.setdefault((anchor.gpu, anchor.precision), []).append(position)
        converted: dict[int, Anchor] = {}
        for (name, precision), own in positions.items():
            gpu, run_mode = find_gpu(name), replace(mode, precision=precision or mode.precision)
            start = derived.known_mode(table, gpu, run_mode)
            batches = np.array([float(anchors[position].batch_size) for position in own])
            base = self.forecast(table, gpu, start, batches, (), "auto", question.host)
            at_runs = replace(question, batches=batches)
            (share,) = self._host_shares(derived, at_runs, [(gpu, start)], run_mode, [base])
            changed = derived.forecast(base, table, gpu, run_mode, batches, share)
            ratios = changed.iteration_time_ms / base.iteration_time_ms
            for position, ratio in zip(own, ratios.tolist(), strict=True):
                run, precision_of_start = anchors[position], precision and start.precision
                time_ms = run.iteration_time_ms / ratio
                converted[position] = replace(run, iteration_time_ms=time_ms, precision=precision_of_start)
        return [converted[position] for position in range(len(anchors))]

    def _judged_better(self, name: str, case: Case, default: IterationForecast) -> IterationForecast:
        """The forecast of the method `name` where it is judged better, split as the default's, else the default's."""
        better = self.named_methods().judged_better(name, case)
        if better is None:
            return default
        factor = better.iteration_time_ms / default.iteration_time_ms
        scaled = ("gpu_time_ms", "host_time_ms", "gpu_low_ms", "gpu_high_ms")
        times = {name: factor * getattr(default, name) for name in scaled}
        split = None if default.split is None else partial(_scaled_split, default.split, factor)
        own = ("iteration_time_ms", "low_ms", "high_ms", "method", "trained_on", "extrapolates")
        return replace(default, **times, **{name: getattr(better, name) for name in own}, split=split)

    def named_methods(self) -> Methods:
        """The methods beside the default's own."""
        return self.methods if isinstance(self.methods, Methods) else self.methods()

    def _by_layers(
        self,
        layers: LayerModel,
        totals: OperatorTotals,
        case: Case,
        method: str,
        host: str | HostMeasurement | None,
    ) -> IterationForecast | Reason:
        """The forecast from operators measured on this GPU, or a reason to use specifications."""
        from predictor.models.layer_times.served import forecast_by_layers, too_little_measured

        sums: Callable[[Case], OperatorTotals] = layers.sums
        if not is_cpu(case.gpu.name):  # no specification of a CPU is known
            sums, totals = partial(self._sums, layers), self._specified(totals, case)
            if method != "layer-times":
                doubt = too_little_measured(layers, totals)
                if doubt is not None:
                    return doubt
        is_own, measured_on = layers.library.host_mode in self.layers.added, layers.library.host
        if is_cpu(case.gpu.name) or (is_own if host is None else host == measured_on):
            return forecast_by_layers(layers, case, sums, totals)
        if host is None and measured_on is not None:
            spread = self.roofline.law_.calibration.host_half_width(COVERAGE)
            return forecast_by_layers(layers, case, sums, totals, host_spread=spread)
        speed = speed_of(host, case.gpu, case.mode) if case.mode.framework == "pytorch" else None
        if speed is not None:
            known_ms = host_ms(table_of(case), case.mode, speed)
            return forecast_by_layers(layers, case, sums, totals, speed.name, known_ms, speed.spread)
        measuring = measuring_on(host, table_of(case), case.mode, self.roofline.law_)
        known_ms = self.roofline.host_ms(replace(case, measuring=measuring))
        return forecast_by_layers(layers, case, sums, totals, str(host), known_ms)

    def _sums(self, layers: LayerModel, case: Case) -> OperatorTotals:
        """Totals of a case's operators, those that specifications know better with the specifications' time."""
        return self._specified(layers.sums(case), case)

    def _specified(self, sums: OperatorTotals, case: Case) -> OperatorTotals:
        """The totals, with the specifications' time of operators that these know better."""
        if not sums.want_specifications:
            return sums
        plain = replace(case, mode=replace(case.mode, autotune=False), anchors=())
        (by_class,) = self.roofline.forecasts_on((case.gpu,), plain)
        half_width = np.log(by_class.gpu_high_ms / by_class.gpu_time_ms)
        return sums.with_specified(operator_classes_of(by_class.class_ms), half_width)

    def _by_specifications(
        self, question: _Question, gpus: tuple[Gpu, ...], mode: Mode
    ) -> Sequence[IterationForecast]:
        """Forecasts from GPU specifications, corrected by anchors if given."""
        if not gpus:
            return ()
        for anchor in question.anchors:
            check_image_size(anchor, question.table)
            check_precision(find_gpu(anchor.gpu), anchor.precision or mode.precision)
        measuring = measuring_on(question.host, question.table, mode, self.roofline.law_)
        measuring = measuring._replace(copies=question.from_host and mode.framework in self.fed_frameworks)
        case, law = question.case(gpus[0], mode, measuring), self.roofline.law_
        if not types_never_measured(question.table, self.ranges.layer_types):
            return self.roofline.forecasts_on(gpus, case)
        from predictor.models.carried import carried_types

        carried = carried_types(gpus, case, self.layers, law, self.ranges.layer_types)
        return self.roofline.forecasts_on(gpus, case, carried)

    def hosts(self) -> list[str]:
        """Names of the hosts in the training data."""
        return list(self.roofline.law_.hosts())

    def _layers(
        self, devices: Sequence[tuple[Gpu, Mode]], method: str, anchors: Sequence[Anchor]
    ) -> list[LayerModel | None]:
        """The operators measured on each GPU in its mode, unless another method is asked for."""
        layer_models = self.layers.find_each([library_mode(gpu, mode) for gpu, mode in devices])
        for position, (gpu, mode) in enumerate(devices):
            if method in ("auto", "layer-times") or is_cpu(gpu.name):
                if layer_models[position] is None and (method == "layer-times" or is_cpu(gpu.name)):
                    raise self._not_measured(gpu, mode)
            elif method == "roofline" or not any(is_of(anchor, gpu) for anchor in anchors):
                layer_models[position] = None
        return layer_models

    def _not_measured(self, gpu: Gpu, mode: Mode) -> OutOfRangeError:
        if is_cpu(gpu.name):
            measured = [", ".join(key[1:4]) for key in self.layers.added if key.gpu == gpu.name]
            return OutOfRangeError(
                f"{gpu.name} is predicted from operators measured on it, in {mode.framework}, {mode.precision}, "
                f"{mode.memory_format}; measured: {' and '.join(measured) or 'nothing'}. Measure some, `epochcast "
                "profile --device cpu --preset cnn:NAME --time-limit 3min --out cpu.csv`, and pass "
                "the table as measurements."
            )
        return OutOfRangeError(
            f"no operator was measured on {gpu.name} or another card of its chip with {mode.framework}, "
            f"{mode.precision}, {mode.memory_format}{', autotune' if mode.autotune else ''}; "
            f"measured: {', '.join(self.layers.modes()) or 'nothing'}. "
            "Measure some with `epochcast profile --preset quick` and pass the table as measurements."
        )


def _scaled_split(split: Callable[[], GpuTimeSplit], factor: Array) -> GpuTimeSplit:
    by_class, by_rung = split()
    rungs = {rung: {name: factor * ms for name, ms in times.items()} for rung, times in by_rung.items()}
    return {name: factor * ms for name, ms in by_class.items()}, rungs


def _with_waits(forecast: IterationForecast, table: LayerTable, mode: Mode) -> IterationForecast:
    """The forecast of a step that waits for numbers of the GPU, which then waits for the host.

    A run of the CNN, which corrects the forecast, holds this already.
    """
    idle, trips_ms = idle_ms(table, mode, forecast.host_time_ms)
    if not trips_ms or "anchored" in forecast.method:
        return forecast
    gpu_ms, host_ms = forecast.gpu_time_ms, forecast.host_time_ms
    left_ms = join_host(gpu_ms, np.maximum(host_ms - idle, 0.0), forecast.sharpness)
    longer = (left_ms + (idle + trips_ms)) / join_host(gpu_ms, host_ms, forecast.sharpness)
    times = {name: longer * getattr(forecast, name) for name in ("iteration_time_ms", "low_ms", "high_ms")}
    return replace(forecast, **times)


def _totals(measured: Sequence[LayerModel], question: _Question, mode: Mode) -> Sequence[OperatorTotals]:
    """Totals of the CNN's operators in each library; they are imported where there are some, for commands start so."""
    if not measured:
        return ()
    from predictor.models.layer_times.law import sums_of_each

    libraries, update = [own.library for own in measured], update_of(question.table, mode)
    return sums_of_each(libraries, question.table, question.batches, mode.fp32_products, update)


def _doubted(forecast: IterationForecast, doubt: Reason) -> IterationForecast:
    """The forecast with one more reason for caution."""
    return replace(forecast, extrapolates=tuple((*at_size, doubt) for at_size in forecast.extrapolates))


@lru_cache(maxsize=8)
def _read(path: str, _modified_ns: int) -> Model:
    path = str(Path(path).resolve())
    getLogger("epochcast.model").info("reading the model %s", path)
    try:
        stored = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ArtifactError(
            f"{path} is not a model: it is not JSON ({error}). Write one with `epochcast fit`."
        ) from error
    version = stored.get("format_version") if isinstance(stored, dict) else None
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"{path} has model format version {version!r}; this epochcast reads {FORMAT_VERSION}. "
            "Refit it with `epochcast fit`."
        )
    try:
        card, between, files = dict(stored["card"]), stored["epoch_ms_per_iteration"], stored["files"]
        return Model(
            layers=LayerModels.beside(Path(path), files["operators"]),
            roofline=Roofline.from_json(stored | {"trained_on": card["trained_on"]}),
            epoch_ms_per_iteration={name: float(ms) for name, ms in between.items()},
            card=card,
            methods=Methods.beside(Path(path), files["methods"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is a damaged model ({error!r}). Refit it with `epochcast fit`."
        ) from error
