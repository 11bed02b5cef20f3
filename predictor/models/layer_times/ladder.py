"""Chooses what each library's measurements are compared with: the roofline, or another card or mode of its chip.

Operators measured on another card, or in a mode that runs nearly the same kernels, say more about an operator that was
not measured here than its shape does: the base carries them over, the library's own measurements correct it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from zlib import crc32

import numpy as np

from predictor.catalogue.devices import all_gpus, find_gpu, is_cpu
from predictor.models.layer_times.interpolation import WIDE_WINDOWS, family_of
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import DeviceMode
from predictor.models.layer_times.transfer import CarriedOver
from predictor.operator_types import RECURRENT_TYPES, VOLUME_TYPES

_HALF_PRECISIONS = ("amp_bf16", "amp_fp16")  # the same kernels but for the type of their numbers
_SAMPLE = 1000
"""Operators above which a library knows its shapes better than kernels of another precision or memory format do."""

_CARRIED = (
    *VOLUME_TYPES, *RECURRENT_TYPES, "instance_norm", "pad", "softmax", "softmax of maps", WIDE_WINDOWS,
)  # fmt: skip
"""Families without trees, measured on one card."""
_N_GROUPS = 3
_FEW = 12  # operators below which no held-out error can be estimated


def with_bases(
    libraries: Mapping[DeviceMode, OperatorLibrary],
    earlier: Callable[[DeviceMode], OperatorLibrary | None],
    grow: Callable[[OperatorLibrary], OperatorLibrary],
) -> dict[DeviceMode, OperatorLibrary]:
    """Each library on its base, or with trees over the roofline where these predict its held-out operators better.

    A richer library of this mode on a card of the chip is the base; else a like mode's if it does better than trees. A
    base has more measurements than the library, so that no two are each other's base. `earlier`: operators measured
    earlier on a GPU in a mode; None where there are none. `grow`: grows the trees of a library that has no base.
    """
    based: dict[DeviceMode, OperatorLibrary] = {}
    for mode in sorted(libraries, key=lambda candidate: (-libraries[candidate].n_measured, candidate)):
        library = replace(libraries[mode], base=None, forests={}, expected=None)
        same = [earlier(mode), *(based.get(card) or earlier(card) for card in cards_of_the_chip(mode))]
        like = [based.get(like_mode) or earlier(like_mode) for like_mode in _like_modes(mode, len(library))]
        on_cards, on_like_modes = (
            [
                library.on_base(CarriedOver(source, mode))
                for source in sources
                if source is not None and source.n_measured > library.n_measured
            ]
            for sources in (same, like)
        )
        if mode.autotune and on_like_modes:
            based[mode] = on_like_modes[0]
        elif on_cards:
            based[mode] = max(on_cards, key=_likeness)
        else:
            based[mode] = (
                min([grow(library), *on_like_modes], key=held_out_error) if on_like_modes else grow(library)
            )
    return based


def with_volumes(libraries: Mapping[DeviceMode, OperatorLibrary]) -> dict[DeviceMode, OperatorLibrary]:
    """Each library with what another card of its chip measured of `_CARRIED` types, carried over.

    No trees predict these, and few were measured on each card; of other types each card has its own.
    """
    completed = dict(libraries)
    for mode in libraries:
        for card in cards_of_the_chip(mode):
            more = _volumes(libraries[card], completed[mode]) if card in libraries else None
            completed[mode] = completed[mode].with_carried(more) if more is not None else completed[mode]
    return completed


def _volumes(source: OperatorLibrary, lacking: OperatorLibrary) -> OperatorLibrary | None:
    own = frozenset(lacking.operators)
    rows = [
        i
        for i, operator in enumerate(source.operators)
        if family_of(operator) in _CARRIED and operator not in own
    ]
    if not rows:
        return None
    operators = tuple(source.operators[i] for i in rows)
    ms = CarriedOver(source, lacking.mode).times(operators, source.batch_sizes).gpu_ms
    log_ms = np.where(np.isfinite(source.log_ms[rows]), np.log(ms), np.nan)
    unknown = np.full(len(rows), np.nan)  # the host was that of another machine
    return OperatorLibrary(lacking.mode, operators, source.batch_sizes, log_ms, unknown)


def _likeness(library: OperatorLibrary) -> tuple[bool, int]:
    """Whether a library's base was measured on the same card, then the number of its times."""
    source = library.base.source if library.base is not None else library
    return source.mode.gpu == library.mode.gpu, source.n_measured


def held_out_error(library: OperatorLibrary) -> float:
    """Mean absolute error of ln time of operators left out by thirds; 0 for few operators with a base.

    The base still knows them. Operators weigh by the square root of their time: large ones decide a CNN's time.
    """
    if len(library) < _FEW:
        return 0.0 if library.base is not None else np.inf
    group = np.array([crc32(operator.name.encode()) % _N_GROUPS for operator in library.operators])
    errors, weights = [], []
    for number in range(_N_GROUPS):
        rows = np.flatnonzero(group == number)
        left_out = [library.operators[int(i)] for i in rows]
        lesser = replace(library.without(left_out), base=library.base)
        if not rows.size or not len(lesser):
            continue
        truth = library.log_ms[rows]
        predicted = np.log(lesser.times(left_out, library.batch_sizes).gpu_ms)
        at = np.isfinite(truth)
        errors.append(np.abs(predicted - truth)[at])
        weights.append(np.exp(truth[at] / 2.0))
    return float(np.average(np.concatenate(errors), weights=np.concatenate(weights)))


def cards_of_the_chip(mode: DeviceMode) -> list[DeviceMode]:
    """The same mode on the other cards of the chip."""
    if is_cpu(mode.gpu):
        return []
    return [mode._replace(gpu=name) for name in _cards(find_gpu(mode.gpu).name)]


@lru_cache(maxsize=256)
def _cards(name: str) -> tuple[str, ...]:
    chip = find_gpu(name).chip
    return tuple(gpu.name for gpu in all_gpus() if gpu.chip == chip and gpu.name != name)


def _like_modes(mode: DeviceMode, n_operators: int) -> Iterator[DeviceMode]:
    """Modes of the same card whose operators may be a base; for an autotuned mode, those without autotuning."""
    if mode.autotune:
        yield mode._replace(autotune=False)
        return
    if mode.precision in _HALF_PRECISIONS:
        yield from (mode._replace(precision=half) for half in _HALF_PRECISIONS if half != mode.precision)
    if n_operators > _SAMPLE:
        return
    if mode.memory_format != "nchw":
        yield mode._replace(memory_format="nchw")
    if mode.precision != "tf32":
        yield mode._replace(precision="tf32")
    if mode.memory_format != "nchw" and mode.precision != "tf32":
        yield mode._replace(precision="tf32", memory_format="nchw")
