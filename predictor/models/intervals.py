"""Interval widths: parts of the variance and conformal factors, from rows that a cold refit never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter, mul
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, find_gpu, generations
from predictor.errors import OutOfRangeError
from predictor.models.residuals import PARTS, Locations, Runs, covariances, gp_posterior

if TYPE_CHECKING:
    import pandas as pd


_MOST_SITES = 500
_LEAST, _MOST = 1e-6, 1.0
_START = 0.005
_CLIP = 3.0
_LOG_SPREAD = 1.0  # standard deviation of ln of a part of the variance around `_USUAL`
_N_GROUPS = {"cnn": 4, "gpu": 6}
_PLAIN, _NEW_CNN = "specifications", "new-cnn"
_LEVELS = (0.5, 0.8, 0.9, 0.95)
_HALF_ON_NEW_GPU = 1.5
_CAMPAIGN = 0.12
"""Standard deviation of ln time between campaigns that ran the same code on the same GPU."""


class Shares(NamedTuple):
    """Shares of the iteration's time, as arrays that broadcast: how far it follows a relative change of each part.

    `host`: share spent on the host. `new_host`: the same on machines never measured, else 0. `depthwise`: share of
    depthwise convolutions. `unmeasured`: share of kernel classes without training rows. `kernel`: 1 / number of the
    CNN's distinct kernels.
    """

    host: Array
    new_host: Array
    depthwise: Array
    unmeasured: Array
    kernel: Array


@dataclass(frozen=True, slots=True)
class Spread:
    """Parts of the variance of ln(measured / predicted).

    `cnn` applies always. `gpu` applies to GPUs never measured, and `generation` once for each generation that they lie
    beyond the measured ones. `enqueued` is multiplied by the squared share of the host; so is `host`, on machines never
    measured. `depthwise` is multiplied by the squared share of depthwise convolutions. `unmeasured` is multiplied by
    the share of kernel classes without training rows, not squared: a share that looks small may itself be wrong.
    `kernel`, on measured GPUs, is multiplied by the share of one kernel, since the errors of many kernels cancel.
    """

    cnn: float = 0.0
    gpu: float = 0.0
    generation: float = 0.0
    host: float = 0.0
    enqueued: float = 0.0
    depthwise: float = 0.0
    unmeasured: float = 0.0
    kernel: float = 0.0

    def variance(self, is_new: bool | NDArray[np.bool_], steps: Array | float, shares: Shares) -> Array:
        """Variance of ln(measured / predicted); arguments broadcast.

        `is_new`: whether the GPU was never measured. `steps`: its generations beyond the measured ones.
        """
        return np.asarray(sum(map(mul, _PARTS(self), _design(is_new, steps, shares))))


_PARTS = attrgetter(*(part.name for part in fields(Spread)))


def _design(is_new: bool | Array | NDArray[np.bool_], steps: Array | float, shares: Shares) -> list[Any]:
    """Design matrix of the variance model: one column per field of `Spread`, in their order."""
    squared = (shares.new_host**2, shares.host**2, shares.depthwise**2)
    return [1.0, is_new, is_new * steps, *squared, shares.unmeasured, shares.kernel]


_USUAL = Spread(
    cnn=0.01, gpu=0.005, generation=0.04, host=0.2, enqueued=0.05, depthwise=0.35, unmeasured=0.7, kernel=0.5
)
"""Parts of the variance to which few machines or CNNs are pulled: three chips cannot tell what a generation adds.

With a generation left out of the default's rows, device-bound iterations miss by 0.10 to 0.15 (root mean square of ln,
median over machines) if others lie on both sides of it; with the newest left out by 0.28, with the oldest by 0.36. With
one of nine classes of kernels left out, the squared error grows by 0.15 to 1.5 times the share that the law then gives
them, 0.7 on average; by 0.5 to 100 times its square."""


def generations_from(gpus: Sequence[Gpu], measured: Collection[str]) -> Array:
    """Generations of each GPU beyond the oldest or newest name of `measured`, shape (n_gpus,); 0 if that is empty.

    A generation between measured ones is predicted as well as these.
    """
    order = {name: rank for rank, name in enumerate(generations())}
    measured_ranks = [order[generation] for generation in measured] or list(order.values())
    places = np.array([order[gpu.generation] for gpu in gpus], dtype=float)
    return np.asarray(np.maximum(0.0, np.maximum(min(measured_ranks) - places, places - max(measured_ranks))))


@lru_cache(maxsize=256)
def _novelty(
    gpus: tuple[Gpu, ...], measured: tuple[str, ...], of_generation: tuple[str, ...]
) -> tuple[NDArray[np.bool_], Array]:
    """Whether each GPU was never measured, and its `generations_from`; cached: CNNs are asked for on the same GPUs."""
    return np.array([gpu.name not in measured for gpu in gpus]), generations_from(gpus, of_generation)


def fit_spread(is_new: Array, steps: Array, shares: Shares, residual: Array, weight: Array) -> Spread:
    """Parts of the variance, by the largest posterior of weighted normal residuals, each clipped at 3 times their rms.

    The prior of each part is log-normal around its usual value.
    """
    from scipy.optimize import minimize

    squares = _clipped(residual) ** 2
    design = np.stack(np.broadcast_arrays(*_design(is_new, steps, shares)), axis=1)
    usual = np.log(astuple(_USUAL))

    def loss(log_parts: Array) -> tuple[float, Array]:
        parts = np.exp(log_parts)
        variance = design @ parts
        slope = 0.5 * weight * (1.0 / variance - squares / variance**2)
        off = (log_parts - usual) / _LOG_SPREAD
        value = 0.5 * float(weight @ (squares / variance + np.log(variance)) + off @ off)
        return value, (design.T @ slope) * parts + off / _LOG_SPREAD

    bounds = [(np.log(_LEAST), np.log(_MOST))] * design.shape[1]
    log_fitted = minimize(loss, usual, jac=True, method="L-BFGS-B", bounds=bounds).x
    return Spread(*(float(value) for value in np.exp(log_fitted)))


def fit_variances(
    sites: Locations, residual: Array, names: tuple[str, ...] = PARTS, seed: int = 0
) -> dict[str, float]:
    """Variance of each named component, by maximum likelihood.

    Residuals are clipped at 3 times their rms. At most 500 sites are used, drawn with `seed`.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    if len(sites) > _MOST_SITES:
        chosen = np.sort(np.random.default_rng(seed).choice(len(sites), _MOST_SITES, replace=False))
        sites, residual = sites.take(chosen), residual[chosen]
    parts = covariances(sites, sites) | {"noise": np.eye(len(sites))}
    matrices, clipped = [parts[name] for name in names], _clipped(residual)

    def loss(log_variances: Array) -> tuple[float, Array]:
        """Negative log likelihood and gradient of a centred Gaussian with the summed covariance."""
        sizes = np.exp(log_variances)
        scaled = (size * matrix for size, matrix in zip(sizes, matrices, strict=True))
        total = sum(scaled, np.zeros_like(matrices[0]))
        factor = cho_factor(total + 1e-9 * np.eye(len(total)), lower=True)
        alpha, inverse = cho_solve(factor, clipped), cho_solve(factor, np.eye(len(total)))
        value = 0.5 * float(clipped @ alpha) + float(np.log(np.diag(factor[0])).sum())
        slope = [0.5 * float(np.sum(inverse * matrix) - alpha @ matrix @ alpha) for matrix in matrices]
        return value, np.array(slope) * sizes

    bounds = [(np.log(_LEAST), np.log(_MOST))] * len(names)
    start = np.full(len(names), np.log(_START))
    log_fitted = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60}).x
    return dict(zip(names, map(float, np.exp(log_fitted)), strict=True))


def _clipped(residual: Array) -> Array:
    """Residuals clipped at 3 times their root mean square, estimated by the median of a squared standard normal."""
    rms = float(np.sqrt(np.median(residual**2) / 0.455))
    return np.clip(residual, -_CLIP * rms, _CLIP * rms)


def interval_factor(
    residual: ArrayLike, variance: ArrayLike, coverage: float, weight: Array | None = None
) -> float:
    """Factor of the standard deviation with which intervals hold a share `coverage` of the residuals' weight.

    The split-conformal quantile (Vovk et al. 2005) of |residual| / standard deviation, weighted as by Tibshirani et al.
    (2019).
    """
    scores = np.abs(residual) / np.sqrt(variance)
    weight = np.ones(scores.size) if weight is None else weight
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weight[order]) / (weight.sum() + weight.mean())
    rank = int(np.searchsorted(reached, coverage - 1e-12))
    return float(scores[order][min(rank, scores.size - 1)])


class Predicted(NamedTuple):
    """Prediction of all rows by a law fitted without some of them: times in ms, and shares as for known machines.

    `is_known`: whether the law has deviations of the row's GPU in its mode.
    """

    times: Array
    shares: Shares
    is_known: NDArray[np.bool_]


Refit = Callable[[NDArray[np.intp]], Predicted]
"""Positions of rows to leave out -> what a law fitted from nothing without these predicts of all rows."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Parts of the variance, variances of residual components and interval factors.

    `gpus` and `generations` were measured. `spread` is of predictions without anchors, `cnn_spread` of
    those of new CNNs on measured GPUs. `variances` maps ``gpu`` (GPU
    outside the data) and ``cnn`` (CNN outside the data) to variances of `residuals.PARTS`, which anchors use. `factors`
    maps ``specifications``, ``new-cnn`` (CNNs left out), ``anchored-gpu`` and ``anchored-cnn`` to factors by coverage.
    `campaign` is the standard deviation of ln time between campaigns; 0 within one.
    """

    gpus: tuple[str, ...] = ()
    cnns: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()
    spread: Spread = field(default_factory=Spread)
    cnn_spread: Spread = field(default_factory=Spread)
    variances: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    campaign: float = _CAMPAIGN

    def check(self) -> None:
        """Raise OutOfRangeError if no rows were left out, or none could be."""
        if self.variances:
            return
        if not self.cnns:
            raise OutOfRangeError(
                "the fit has no intervals: nothing was left out of it. Fit with calibrate=True, or ask only for times."
            )
        raise OutOfRangeError(
            f"the fit has one CNN ({', '.join(self.cnns)}) on one chip ({', '.join(self.gpus)}), from which no "
            "error elsewhere can be estimated. Add measurements of another CNN or GPU."
        )

    def half_widths(
        self, gpus: Sequence[Gpu], is_known: Sequence[bool] | NDArray[np.bool_], shares: Shares, coverage: float,
        is_half: Sequence[bool] = (),
    ) -> Array:  # fmt: skip
        """Half widths of the intervals of ln time.

        On GPUs with deviations: the width of new CNNs in one campaign, joined in quadrature with the difference between
        campaigns. Elsewhere at least that, joined with the variances of new GPUs and generations; in half precision on
        new GPUs 1.5 times as wide (70 % of published iterations lay inside without the factor).
        `is_known`: whether the law has deviations of each GPU in its mode. `shares`: arrays of shape (n_gpus, ...).
        `is_half`: whether each GPU computes in half precision; by default none does. Gives an array of the shape of the
        shares.
        """
        factor = self._factor(_PLAIN, coverage)
        within = self._factor(_NEW_CNN, coverage) * np.sqrt(self.cnn_spread.variance(False, 0.0, shares))
        of_cnn: Array = np.hypot(within, factor * self.campaign)
        if all(is_known):
            return of_cnn
        wider = (slice(None), *[None] * (shares.host.ndim - 1))
        is_new, steps = (column[wider] for column in _novelty(tuple(gpus), self.gpus, self.generations))
        measured_gpu = np.maximum(of_cnn, factor * np.sqrt(self.spread.variance(False, 0.0, shares)))
        of_new_gpu = factor * np.sqrt(is_new * (self.spread.gpu + self.spread.generation * steps))
        in_half = np.array(is_half or [False] * len(gpus))[wider]
        elsewhere = np.hypot(measured_gpu, of_new_gpu) * np.where(is_new & in_half, _HALF_ON_NEW_GPU, 1.0)
        return np.where(np.array(is_known)[wider], of_cnn, elsewhere)

    def host_half_width(self, coverage: float) -> float:
        """Half width of the ln of a host's speed on a machine never measured; NaN if intervals were not calibrated."""
        if not self.variances:
            return math.nan
        return self._factor(_PLAIN, coverage) * math.sqrt(self.spread.host)

    def variances_for(self, gpu: str) -> dict[str, float]:
        """Variances of residual components that apply to a new CNN on a GPU."""
        self.check()
        new_cnn, new_gpu = self.variances["cnn"], self.variances["gpu"]
        if gpu in self.gpus:
            return dict(new_cnn)
        return {name: max(new_cnn.get(name, 0.0), new_gpu.get(name, 0.0)) for name in PARTS}

    def anchored(self, gpu: Gpu, batch_sizes: Array, runs: Runs, coverage: float) -> tuple[Array, Array]:
        """Mean and half width of ln(truth / law) on a GPU, of the shape of `batch_sizes`, given runs of the CNN."""
        variances = self.variances_for(gpu.name)
        noise = np.full(batch_sizes.size, variances.pop("noise", 0.0))
        mean, variance = runs.correction(gpu, batch_sizes, variances, np.ones(batch_sizes.size), noise)
        kind = "anchored-cnn" if gpu.name in self.gpus else "anchored-gpu"
        return mean, self._factor(kind, coverage) * np.sqrt(variance)

    def _factor(self, kind: str, coverage: float) -> float:
        """Factor of one kind, interpolated between calibrated levels."""
        self.check()
        levels = self.factors[kind]
        if (factor := levels.get(str(coverage))) is not None:
            return factor
        return float(np.interp(coverage, [float(level) for level in levels], list(levels.values())))

    def to_json(self) -> dict[str, Any]:
        """The calibration as plain values; the CNNs' names stay with the fit."""
        return {name: value for name, value in asdict(self).items() if name not in ("cnns", "campaign")}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Calibration:
        """Read `to_json`."""

        def numbers(table: Mapping[str, Any]) -> dict[str, float]:
            read = {str(name): float(value) for name, value in table.items()}
            if not np.isfinite(list(read.values())).all():
                raise ValueError(f"{table!r} holds a number that is not finite")
            return read

        return cls(
            gpus=tuple(stored["gpus"]),
            generations=tuple(stored["generations"]),
            spread=Spread(**numbers(stored["spread"])),
            cnn_spread=Spread(**numbers(stored.get("cnn_spread", stored["spread"]))),
            variances={kind: numbers(parts) for kind, parts in stored["variances"].items()},
            factors={kind: numbers(levels) for kind, levels in stored["factors"].items()},
        )


def sites_of(X: pd.DataFrame) -> Locations:
    """Locations of the residuals of a feature table's rows."""
    columns = [name for name in ("framework", "precision", "xla", "memory_format") if name in X]
    modes = [X[name].astype(object).fillna("").astype(str) for name in columns]
    return Locations(
        [find_gpu(name) for name in X["gpu"]],
        [str(name) for name in X["cnn"]],
        [int(size) for size in X["image_size"]],
        [float(size) for size in X["batch_size"]],
        ["|".join(words) for words in zip(*modes, strict=True)] if modes else [""] * len(X),
    )


def calibrate(
    sites: Locations, machines: Sequence[str], times: Array, refit: Refit, seed: int
) -> Calibration:
    """Fit parts and factors by cross-validation: leave groups of CNNs, then of chips, out in turn, each refit cold.

    `sites`: of rows of whole CNNs. `machines`: machine of each row: every machine weighs the same. `times`, shape (n,):
    measured times in ms.
    """
    # Groups of CNNs and of chips to leave out, drawn at random; none of a kind that has one label.
    labels = {"cnn": sites.cnns, "gpu": [gpu.chip for gpu in sites.gpus]}
    held: dict[str, list[_LeftOut]] = {kind: [] for kind in labels}
    for kind, of_rows in labels.items():
        drawn = np.random.default_rng(seed).permutation(sorted(set(of_rows)))
        for left_out in np.array_split(drawn, min(_N_GROUPS[kind], drawn.size)) if drawn.size > 1 else ():
            group = np.flatnonzero(np.isin(np.array(of_rows, dtype=np.str_), left_out))
            held[kind].append(_left_out(sites, np.array(machines, dtype=np.str_), times, refit, group))
    everything = [fold for parts in held.values() for fold in parts]
    uncalibrated = Calibration(
        gpus=tuple(sorted({gpu.name for gpu in sites.gpus})),
        cnns=tuple(sorted(set(sites.cnns))),
        generations=tuple(sorted({gpu.generation for gpu in sites.gpus})),
    )
    if not everything:
        return uncalibrated
    joined = _Parts.joined([fold.parts for fold in everything])
    without = joined.shares._replace(kernel=np.zeros(joined.residual.size))
    spread = replace(fit_spread(*joined._replace(shares=without)), kernel=0.0)
    of_known = [fold.of_known() for fold in held["cnn"] if fold.is_known.any()] or held["cnn"] or everything
    cnn_spread = fit_spread(*_Parts.joined([fold.parts for fold in of_known]))
    variances: dict[str, dict[str, float]] = {}
    factors = {
        _PLAIN: _factors([fold.plain(spread) for fold in everything]),
        _NEW_CNN: _factors([fold.plain(cnn_spread) for fold in of_known]),
    }
    for kind, parts in held.items():
        if not parts:
            continue
        left = sites.take(np.concatenate([fold.group for fold in parts]))
        residual = np.concatenate([fold.parts.residual for fold in parts])
        names = PARTS if kind == "gpu" else PARTS[1:]
        variances[kind] = fit_variances(left, residual, names, seed)
        factors[f"anchored-{kind}"] = _factors([fold.anchored(sites, variances[kind]) for fold in parts])
    # Figures for new GPUs and for new CNNs; where there is one GPU or one CNN, the other kind's.
    for by_kind, prefix in ((variances, ""), (factors, "anchored-")):
        for missing, present in (("gpu", "cnn"), ("cnn", "gpu")):
            if prefix + present in by_kind:
                by_kind.setdefault(prefix + missing, by_kind[prefix + present])
    calibrated = replace(uncalibrated, spread=spread, cnn_spread=cnn_spread)
    return replace(calibrated, variances=variances, factors=factors)


class _Parts(NamedTuple):
    """Arguments of `fit_spread`, with an entry for each row left out."""

    is_new: Array
    steps: Array
    shares: Shares
    residual: Array
    weight: Array

    @classmethod
    def joined(cls, parts: Sequence[_Parts]) -> _Parts:
        """All rows of these parts."""
        columns = zip(*parts, strict=True)
        is_new, steps, shares, residual, weight = (np.concatenate(column, axis=-1) for column in columns)
        return cls(is_new, steps, Shares(*shares), residual, weight)

    def take(self, rows: NDArray[np.bool_]) -> _Parts:
        """The parts of these rows."""
        shares = Shares(*(share[rows] for share in self.shares))
        return _Parts(self.is_new[rows], self.steps[rows], shares, self.residual[rows], self.weight[rows])


_Score = tuple[Array, Array, Array]  # residual, variance, weight


@dataclass(frozen=True, slots=True, eq=False)
class _LeftOut:
    """Rows left out of one refit, the rows kept with their residuals, and where deviations answered."""

    group: NDArray[np.intp]
    kept: NDArray[np.intp]
    kept_residual: Array
    parts: _Parts
    is_known: NDArray[np.bool_]

    def of_known(self) -> _LeftOut:
        """The left-out rows whose GPU has deviations."""
        rows = self.is_known
        return replace(self, group=self.group[rows], parts=self.parts.take(rows), is_known=rows[rows])

    def plain(self, spread: Spread) -> _Score:
        """Scores of predictions from only specifications."""
        is_new, steps, shares, residual, weight = self.parts
        return residual, spread.variance(is_new > 0, steps, shares), weight

    def anchored(self, sites: Locations, variances: dict[str, float]) -> _Score:
        """Scores of predictions corrected by the residuals of the rows that were kept."""
        kept, left_out = sites.take(self.kept), sites.take(self.group)
        mean, variance = gp_posterior(kept, self.kept_residual, left_out, variances)
        return self.parts.residual - mean, variance, self.parts.weight


def _left_out(
    sites: Locations, machines: NDArray[np.str_], times: Array, refit: Refit, group: NDArray[np.intp]
) -> _LeftOut:
    kept = np.setdiff1d(np.arange(len(sites)), group)
    predicted = refit(group)
    residual = np.log(times / predicted.times)
    measured = {sites.gpus[i].name for i in kept}
    of_generation = {sites.gpus[i].generation for i in kept}
    machine, count = np.unique(machines, return_counts=True)
    weight = dict(zip(machine, 1.0 / count, strict=True))
    shares = Shares(*(share[group] for share in predicted.shares))
    is_new_machine = ~np.isin(machines[group], machines[kept])
    parts = _Parts(
        np.array([float(sites.gpus[i].name not in measured) for i in group]),
        generations_from([sites.gpus[i] for i in group], of_generation),
        shares._replace(new_host=shares.host * is_new_machine),
        residual[group],
        np.array([weight[machines[i]] for i in group]),
    )
    return _LeftOut(group, kept, residual[kept], parts, predicted.is_known[group])


def _factors(scores: list[_Score]) -> dict[str, float]:
    residual, variance, weight = (np.concatenate(column) for column in zip(*scores, strict=True))
    return {str(level): interval_factor(residual, variance, level, weight) for level in _LEVELS}
