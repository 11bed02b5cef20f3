"""Plots of explanations: shares of the GPU's time over batch size, and times with what bounds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from predictor.answers.explain import MEASURED_METHOD, Explanation
from predictor.errors import BackendUnavailableError, OutOfRangeError, SchemaError

_METADATA: dict[str, dict[str, None]] = {".png": {"Software": None}, ".svg": {"Date": None}}
ENDINGS = tuple(_METADATA)
MOST_PLOTTED = 8
"""Explanations in one picture."""

_COLORS = {
    "convolution": "#4477aa",
    "depthwise": "#66ccee",
    "linear": "#222255",
    "batch_norm": "#228833",
    "layer_norm": "#88cc88",
    "activation": "#ccbb44",
    "pooling": "#ee8866",
    "add": "#ee6677",
    "multiply": "#aa3377",
    "concat": "#bb8899",
    "permute": "#997755",
    "dropout": "#ddccaa",
    "optimizer": "#777777",
    "loss": "#aaaaaa",
    "bias": "#bbccee",
    "overhead": "#dddddd",
}
_SHADES = {"host": "#f3d9d9", "launch": "#f5ead0", "compute": "#d9e5f3", "memory": "#ddeedd"}
_BOUND_COLORS = {"launch": "#d9b34d", "compute": "#5b8fc9", "memory": "#6fae6f"}
_UNKNOWN_SHADE = "#eeeeee"
_MOST_LABELS = 12


def write_plot(explanations: Sequence[Explanation], path: Path) -> None:
    """Draw two plots side by side for each explanation and write them to a PNG or SVG file.

    Raises
    ------
    SchemaError
        If the file's name ends otherwise.
    OutOfRangeError
        If there are more explanations than a picture holds.
    BackendUnavailableError
        If matplotlib is not installed.
    """
    if path.suffix.casefold() not in ENDINGS:
        raise SchemaError(f"{path} ends in {path.suffix!r}. Give a file ending in {' or '.join(ENDINGS)}.")
    if len(explanations) > MOST_PLOTTED:
        raise OutOfRangeError(
            f"{len(explanations)} CNNs, GPUs and modes are too many for one picture; it holds {MOST_PLOTTED}. "
            "Name some, such as one CNN and one --precision."
        )
    figure = _figure_class()(figsize=(12, 0.6 + 4.2 * len(explanations)), layout="constrained")
    axes = figure.subplots(len(explanations), 2, squeeze=False)
    for (shares, times), explanation in zip(axes, explanations, strict=True):
        _draw_shares(shares, explanation)
        _draw_times(times, explanation)
    figure.savefig(path, dpi=110, metadata=_METADATA[path.suffix.casefold()])


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendUnavailableError(
            "matplotlib is not installed: pip install 'epochcast[plots]', or leave --plot out."
        ) from error
    return Figure


def _draw_shares(axes: Any, explanation: Explanation) -> None:
    """Shares of the classes, stacked; of what bounds the layers by their arithmetic where classes are unknown."""
    parts, colors = explanation.classes or explanation.bound_ms, {**_COLORS, **_BOUND_COLORS}
    if parts and np.isfinite(list(parts.values())).any():
        _stack(axes, explanation.batch_sizes, parts, colors)
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.text(0.5, 0.5, "no operators of it were measured", ha="center", transform=axes.transAxes)
    axes.set(ylim=(0, 100), xlabel="batch size", ylabel="share of the GPU's time (%)")
    what = "" if explanation.classes else ": what bounds its layers, by their arithmetic"
    axes.set_title(f"{_title(explanation)}{what}", fontsize=9)


def _stack(
    axes: Any, batch_sizes: Sequence[int], parts: Mapping[str, Sequence[float]], colors: Mapping[str, str]
) -> None:
    """Areas over batch size; a bar where there is only one."""
    total = np.sum(list(parts.values()), axis=0)
    bottom = np.zeros(len(batch_sizes))
    for name, ms in parts.items():
        share, how = 100.0 * np.array(ms) / total, {"label": name, "color": colors.get(name)}
        if len(batch_sizes) == 1:
            axes.bar([str(batch_sizes[0])], share, bottom=bottom, width=0.4, **how)
        else:
            axes.fill_between(batch_sizes, bottom, bottom + share, linewidth=0, **how)
        bottom += share
    if len(batch_sizes) > 1:
        _scale_batch_sizes(axes, batch_sizes)
        axes.set_xlim(batch_sizes[0], batch_sizes[-1])


def _draw_times(axes: Any, explanation: Explanation) -> None:
    """Iteration, GPU and host time; the ground is coloured by what bounds the iteration."""
    sizes = np.array(explanation.batch_sizes, dtype=float)
    _shade_bounds(axes, sizes, explanation.bound)
    if np.isfinite(explanation.low_ms).any():
        axes.fill_between(
            sizes, explanation.low_ms, explanation.high_ms, alpha=0.2, color="black", label="90 % interval"
        )
    how = "measured" if explanation.method == MEASURED_METHOD else explanation.method
    axes.plot(
        sizes, explanation.iteration_time_ms, "-o", color="black", markersize=3, label=f"iteration, {how}"
    )
    axes.plot(sizes, explanation.gpu_time_ms, "--s", color="#4477aa", markersize=3, label="GPU busy")
    if np.isfinite(explanation.host_time_ms).any():
        axes.plot(sizes, explanation.host_time_ms, ":^", color="#cc3311", markersize=3, label="host enqueues")
    _draw_law(axes, explanation)
    axes.set_yscale("log")
    _scale_batch_sizes(axes, explanation.batch_sizes)
    axes.set(xlabel="batch size", ylabel="time (ms)")
    axes.set_title(f"{explanation.gpu}: ground coloured by what bounds it", fontsize=9)
    axes.legend(fontsize=7, loc="upper left")


def _draw_law(axes: Any, explanation: Explanation) -> None:
    law = explanation.small_batch_law
    if law is None:
        return
    ends = [max(law.from_batch_size, explanation.batch_sizes[0]), law.up_to_batch_size]
    axes.plot(
        ends, [law.iteration_time_ms] * 2, color="#ee7733", linewidth=4, alpha=0.6, label="epoch = K / batch"
    )


def _shade_bounds(axes: Any, sizes: Any, bound: Sequence[str]) -> None:
    """Colour the ground around each batch size, halfway to its neighbours."""
    middles = np.sqrt(sizes[1:] * sizes[:-1])
    edges = np.concatenate([sizes[:1] / 1.2, middles, sizes[-1:] * 1.2])
    named: set[str] = set()
    for left, right, name in zip(edges[:-1], edges[1:], bound, strict=True):
        label = None if name in named else f"bound: {name}"
        axes.axvspan(left, right, color=_SHADES.get(name, _UNKNOWN_SHADE), linewidth=0, label=label)
        named.add(name)
    axes.set_xlim(edges[0], edges[-1])


def _scale_batch_sizes(axes: Any, batch_sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    if len(batch_sizes) <= _MOST_LABELS:
        axes.set_xticks(batch_sizes, labels=[str(size) for size in batch_sizes])


def _title(explanation: Explanation) -> str:
    about = (explanation.precision, explanation.memory_format, explanation.capture)
    return f"{explanation.cnn}, {explanation.image_size} px, {', '.join(about)}"
