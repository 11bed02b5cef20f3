"""Pictures of answers for notebooks: epoch time against batch size, cost against time, modes side by side.

Every function returns a figure, which a notebook shows by itself and `figure.savefig("name.png")` saves.

>>> import epochcast
>>> from epochcast import plots
>>> answer = epochcast.predict("resnet50", gpu=["T4", "H200"], batch_size=[16, 64], data_set="imagenet")
>>> [axes.get_title() for axes in plots.epoch_times(answer).axes]
['Tesla T4', 'NVIDIA H200']
"""

import io
import math
from collections.abc import Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from predictor.answers.question import Plan, named
from predictor.catalogue.devices import short_name
from predictor.errors import BackendUnavailableError, SchemaError

if TYPE_CHECKING:
    import pandas as pd

# Distinguishable for colour-blind readers.
_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#d55e00", "#009e73", "#a0a0a0"
_SERIES = (_BLUE, _ORANGE, _GREEN, "#cc79a7", "#56b4e9", "#e69f00")
_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
_DPI = 96
_PANEL_INCHES = (3.4, 2.6)
_MOST_COLUMNS = 3
_LABEL_CHARACTERS = 26  # of a line; longer names of offers are wrapped


def epoch_times(answer: "pd.DataFrame") -> Any:
    """Epoch time against batch size, a panel for each GPU, with 90 % intervals.

    Parameters
    ----------
    answer : DataFrame
        Of `epochcast.predict`, for one CNN in one mode, with `samples` or `data_set`.

    Returns
    -------
    matplotlib.figure.Figure
        A star is the smallest batch size within 5 % of the best, a hollow point does not fit in memory, a dashed
        line extrapolates; the other GPUs are grey.

    Raises
    ------
    SchemaError
        If there are no epoch times, or of several CNNs.
    BackendUnavailableError
        If matplotlib is not installed.
    """
    _check(answer, ("gpu", "batch_size", "epoch_time_s", "epoch_low_s", "epoch_high_s", "best_batch"))
    if len(set(answer["cnn"])) > 1:
        raise SchemaError("epoch_times draws one CNN: choose the rows of one.")
    gpus = list(dict.fromkeys(answer["gpu"]))
    scale, unit = _unit(answer["epoch_time_s"].median())
    columns = min(_MOST_COLUMNS, len(gpus))
    rows = math.ceil(len(gpus) / columns)
    figure = _new_figure(columns * _PANEL_INCHES[0], rows * _PANEL_INCHES[1] + 0.5)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, gpu in zip(panels, gpus, strict=False):
        _draw_gpu(axes, answer, gpu, scale)
    for axes in panels[len(gpus) :]:
        axes.remove()
    figure.supxlabel("batch size")
    figure.supylabel(f"epoch ({unit})")
    legends = [axes.get_legend_handles_labels() for axes in figure.axes]
    handles = {label: handle for legend in legends for handle, label in zip(*legend, strict=True)}
    return _with_legend(figure, len(handles), handles.values(), handles.keys())


def cost_against_time(
    ranking: "pd.DataFrame", budget_usd: float | None = None, deadline_h: float | None = None
) -> Any:
    """Cost of the whole training against its time, a point for each offer, with the Pareto front.

    Parameters
    ----------
    ranking : DataFrame
        Of `epochcast.compare`; offers without a price are not drawn.
    budget_usd, deadline_h : float, optional
        What lies outside is shaded.

    Returns
    -------
    matplotlib.figure.Figure
        Hollow points extrapolate. A line through a point of the front is its 90 % interval: one that takes longer
        costs more.

    Raises
    ------
    SchemaError
        If no row has a price and fits in memory.
    BackendUnavailableError
        If matplotlib is not installed.
    """
    _check(ranking, ("gpu", "offer", "total_time_h", "total_cost_usd", "pareto", "extrapolates"))
    plan = Plan(budget_usd=budget_usd, deadline_h=deadline_h)  # checks them
    shown = ranking[ranking["total_cost_usd"].notna() & ranking["fits_in_memory"]]
    if shown.empty:
        raise SchemaError("cost_against_time has nothing to draw: no row has a price and fits in memory.")
    figure = _new_figure(9.0, 5.6)
    axes = figure.subplots()
    front = shown[shown["pareto"]].sort_values("total_time_h")
    _scatter(axes, shown[~shown["pareto"]], _GREY, "other offers")
    axes.step(front["total_time_h"], front["total_cost_usd"], where="post", color=_BLUE, linewidth=1)
    for number, row in enumerate(front.to_dict("records")):
        ends = row["total_low_h"], row["total_high_h"]
        costs = [row["total_cost_usd"] * end / row["total_time_h"] for end in ends]
        label = "90 % interval" if number == 0 else None
        axes.plot(ends, costs, color=_BLUE, alpha=0.25, linewidth=5, zorder=2, label=label)
    _scatter(axes, front, _BLUE, "Pareto front")
    axes.set(xscale="log", yscale="log", xlabel="time of the whole training (h)", ylabel="its cost (US$)")
    _plain_ticks(axes.xaxis, axes.yaxis)
    _shade(axes, plan.budget_usd, plan.deadline_h)
    _with_legend(figure, 3)
    _label(figure, axes, front)
    return figure


def modes(answers: "Mapping[str, pd.DataFrame]") -> Any:
    """Epoch time of each GPU in several modes, at its best batch size, with 90 % intervals.

    Parameters
    ----------
    answers : dict of DataFrame
        By the name of the mode, each of `epochcast.predict`; a GPU that lacks a mode has no point there.

    Raises
    ------
    SchemaError
        If there are no epoch times.
    BackendUnavailableError
        If matplotlib is not installed.
    """
    if not isinstance(answers, Mapping) or not answers:
        raise SchemaError("modes has nothing to draw: give it at least one answer by name, as a dict.")
    for answer in answers.values():
        _check(answer, ("gpu", "epoch_time_s", "epoch_low_s", "epoch_high_s", "best_batch"))
    best = {name: answer[answer["best_batch"]] for name, answer in answers.items()}
    gpus = list(dict.fromkeys(gpu for answer in best.values() for gpu in answer["gpu"]))[::-1]
    scale, unit = _unit(max(answer["epoch_time_s"].median() for answer in best.values()))
    figure = _new_figure(9.0, 0.75 * len(gpus) + 1.2)
    axes = figure.subplots()
    for number, (name, answer) in enumerate(best.items()):
        offset = 0.32 - 0.64 * (number + 0.5) / len(best)
        color = _SERIES[number % len(_SERIES)]
        heights = [gpus.index(gpu) + offset for gpu in answer["gpu"]]
        epochs, low, high = _epochs(answer, scale)
        axes.hlines(heights, low, high, color=color, alpha=0.35, linewidth=4)
        axes.plot(epochs, heights, "o", color=color, markersize=6, label=name)
    axes.set_yticks(range(len(gpus)), labels=gpus)
    axes.set(xscale="log", xlabel=f"epoch ({unit})")
    _plain_ticks(axes.xaxis)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.6)
    return _with_legend(figure, len(best))


def _new_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        message = "matplotlib is not installed: pip install 'epochcast[plots]'."
        raise BackendUnavailableError(message) from error

    class Shown(Figure):
        """A figure that notebooks show, whether pyplot is loaded or not."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
            return file.getvalue()

    return Shown(figsize=(width, height), layout="constrained")


def _with_legend(figure: Any, columns: int, *handles_and_labels: Any) -> Any:
    figure.legend(*handles_and_labels, loc="outside upper center", ncols=columns, frameon=False)
    return figure


def _check(frame: "pd.DataFrame", columns: tuple[str, ...]) -> None:
    missing = [name for name in columns if name not in getattr(frame, "columns", ())]
    if missing:
        raise SchemaError(
            f"there is nothing to draw: the frame has no column {missing[0]!r}. Give what epochcast.predict or "
            "epochcast.compare returned."
        )
    if frame.empty:
        raise SchemaError("there is nothing to draw: the frame has no rows.")
    if "epoch_time_s" in columns and frame["epoch_time_s"].isna().any():
        message = f"there are no epoch times to draw. Ask with {named('samples')} or {named('data_set')}."
        raise SchemaError(message)


def _unit(seconds: float) -> tuple[float, str]:
    """Seconds in the largest unit that fits twice, and its name."""
    return max(unit for unit in _UNITS if unit[0] == 1.0 or seconds >= 2 * unit[0])


def _epochs(answer: "pd.DataFrame", scale: float) -> "tuple[pd.Series[float], ...]":
    """Epoch times and both ends of their intervals, in the unit of the axis."""
    return tuple(answer[name] / scale for name in ("epoch_time_s", "epoch_low_s", "epoch_high_s"))


def _draw_gpu(axes: Any, answer: "pd.DataFrame", gpu: str, scale: float) -> None:
    for name, rows in answer.groupby("gpu", sort=False):
        if name != gpu:
            times = _epochs(rows, scale)[0]
            axes.plot(rows["batch_size"], times, color="#dcdcdc", linewidth=1, zorder=1)
    rows = answer[answer["gpu"] == gpu]
    sizes, guessed = rows["batch_size"], rows["extrapolates"].map(bool)
    epochs, low, high = _epochs(rows, scale)
    axes.fill_between(sizes, low, high, color=_BLUE, alpha=0.18, linewidth=0, label="90 % interval")
    axes.plot(sizes, epochs, "--", color=_BLUE, linewidth=1, label="extrapolates" if guessed.any() else None)
    axes.plot(sizes, epochs.mask(guessed), "-o", color=_BLUE, markersize=3, label="prediction")
    over, best = ~rows["fits_in_memory"], rows["best_batch"]
    points = {"linestyle": "", "color": _ORANGE, "zorder": 4}
    if over.any():
        hollow = {"marker": "o", "markerfacecolor": "white", "label": "does not fit in memory"}
        axes.plot(sizes[over], epochs[over], **points, **hollow)
    star = {"marker": "*", "markersize": 13, "label": "smallest within 5 % of the best"}
    axes.plot(sizes[best], epochs[best], **points, **star)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes, labels=[f"{size:,}" for size in sizes])
    axes.minorticks_off()
    _plain_ticks(axes.yaxis)
    axes.set_title(gpu, fontsize=10)
    axes.grid(color="#eeeeee", linewidth=0.6)


def _scatter(axes: Any, rows: "pd.DataFrame", color: str, label: str) -> None:
    """Filled where measurements speak, hollow where the answer extrapolates."""
    guessed = rows["extrapolates"].map(bool)
    style = {"s": 34, "edgecolors": color, "linewidths": 1.3, "zorder": 3}
    faces = ((rows[~guessed], color, label), (rows[guessed], "white", f"{label}, extrapolates"))
    for points, face, text in faces:
        if len(points):
            axes.scatter("total_time_h", "total_cost_usd", data=points, facecolors=face, label=text, **style)


def _label(figure: Any, axes: Any, front: "pd.DataFrame") -> None:
    """Number the points of the front, where nothing lies below or left of them, and name them beside the plot."""
    from matplotlib.lines import Line2D

    handles, names = [], []
    for number, row in enumerate(front.to_dict("records"), start=1):
        point = (row["total_time_h"], row["total_cost_usd"])
        place_of_number = {"xytext": (-5, -3), "textcoords": "offset points", "ha": "right", "va": "top"}
        axes.annotate(str(number), point, zorder=5, **place_of_number)
        handles.append(Line2D([], [], linestyle="", marker=f"${number}$", color="black"))
        labels = (short_name(row["gpu"]), row["offer"])
        names.append("\n".join(line for name in labels for line in wrap(name, _LABEL_CHARACTERS)))
    figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=8, title="Pareto front")


def _shade(axes: Any, budget_usd: float | None, deadline_h: float | None) -> None:
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    style = {"color": _ORANGE, "alpha": 0.08}
    labels = iter(("over budget or deadline", None))  # named once in the legend
    if budget_usd is not None:
        axes.axhspan(budget_usd, max(top, 1.3 * budget_usd), label=next(labels), **style)
    if deadline_h is not None:
        axes.axvspan(deadline_h, max(right, 1.3 * deadline_h), label=next(labels), **style)
    axes.set_xlim(left, max(right, 1.3 * (deadline_h or 0)))
    axes.set_ylim(bottom, max(top, 1.3 * (budget_usd or 0)))


def _plain_ticks(*axes: Any) -> None:
    """Write 0.5, 2, 10 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
