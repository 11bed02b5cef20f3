"""Answers as data frames that a notebook shows: the sentence, then the table of the command."""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
from pandas.plotting import PlotAccessor

from epochcast.tables import Column, Record, json_ready
from predictor.answers.question import Plan, Question
from predictor.checks import as_list
from predictor.errors import SchemaError

if TYPE_CHECKING:
    from predictor.answers.answer import Answer
    from predictor.answers.compare import Comparison
    from predictor.answers.explain import Explanation

_MOST_COLUMNS = 8
_MOST_ROWS = 60
_BAR = (
    '<td><div style="position:relative;min-width:9em;height:1em">'
    '<span style="position:absolute;top:.35em;height:.35em;background:#0072b280;left:{low:.1f}%;width:{width:.1f}%">'
    '</span><span style="position:absolute;height:1em;width:2px;background:#0072b2;left:{middle:.1f}%"></span>'
    "</div></td>"
)


@dataclass(frozen=True)
class Shown:
    """What a notebook shows of an answer: a sentence, the text of the command, and columns over `records`.

    `rows` are the answer's objects. `interval` has the names of the ends of an interval and of its middle, which the
    page of a notebook draws as bars. `figure` draws the answer, given the frame; None where no figure suits.
    """

    sentence: str
    rows: list[Any]
    text: Callable[[], object]
    records: Sequence[Record] = ()
    columns: Sequence[Column] = ()
    interval: tuple[str, str, str] = ("", "", "")
    figure: Callable[[pd.DataFrame], Any] | None = None


class AnswerFrame(pd.DataFrame):
    """An answer: a data frame with a sentence, shown as the command shows it.

    What pandas makes of it (a selection, a copy, a group) is a plain data frame. `attrs` holds what the frame's columns
    cannot: ``covers``, a comparison's ``verdict``, an explanation's ``explanations``.

    >>> import epochcast
    >>> answer = epochcast.predict("resnet50", "T4", 64, samples=50_000)
    >>> answer.sentence.startswith("T4 at batch 64: "), type(answer[["gpu"]]).__name__
    (True, 'DataFrame')
    """

    _internal_names = [*pd.DataFrame._internal_names, "_show"]  # type: ignore[attr-defined]  # noqa: RUF012 - as pandas has it
    _internal_names_set = set(_internal_names)  # noqa: RUF012
    _show: Callable[[], Shown]

    @classmethod
    def of(cls, frame: pd.DataFrame, show: Callable[[], Shown]) -> "AnswerFrame":
        """The frame given with what is shown of it, which is made when it is first asked for."""
        frame.__class__ = cls  # a copy would take a tenth of a new question's time
        answer = cast(AnswerFrame, frame)
        answer._show = show
        return answer

    @cached_property
    def _shown(self) -> Shown:
        return self._show()

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    @property
    def sentence(self) -> str:
        """The answer in a sentence, one for each CNN."""
        return self._shown.sentence

    @property
    def rows(self) -> list[Any]:
        """The answer's rows as objects, such as `epochcast.PredictionRow`."""
        return self._shown.rows

    @property
    def verdict(self) -> Any:
        """The `epochcast.Verdict` of a comparison; None of another answer."""
        return self.attrs.get("verdict")

    @property
    def plot(self) -> "AnswerPlot":
        """``plot()`` draws the answer; with arguments, and by its attributes, it is pandas's own."""
        return AnswerPlot(self)

    def __reduce__(self) -> Any:
        frame = pd.DataFrame(self)
        frame.attrs = self.attrs
        return pd.DataFrame.copy, (frame,)

    def to_parquet(self, *arguments: Any, **keywords: Any) -> Any:
        """As pandas, with objects in cells and in `attrs` as JSON has them: structs, lists and text."""
        cells = {
            name: cells.map(json_ready) if cells.dtype == object else cells for name, cells in self.items()
        }
        frame = pd.DataFrame(cells, self.index)
        frame.attrs = json_ready(self.attrs)
        return frame.to_parquet(*arguments, **keywords)

    def __repr__(self) -> str:
        text = io.StringIO()
        with redirect_stdout(text):
            self._shown.text()
        return text.getvalue().strip()

    def _repr_html_(self) -> str:
        shown = self._shown
        if not shown.records:
            text = repr(self).partition("\n\n")[2]
            return f"<p><strong>{escape(shown.sentence)}</strong></p><pre>{escape(text)}</pre>"
        records = shown.records[:_MOST_ROWS]
        cells = [[column.text(record) for record in records] for column in shown.columns]
        filled = [i for i, column in enumerate(shown.columns) if any(cells[i])]
        kept = sorted(sorted(filled, key=lambda i: shown.columns[i].rank)[:_MOST_COLUMNS])
        bars = self._bars(records)
        headers = "".join(f"<th>{escape(shown.columns[i].header)}</th>" for i in kept)
        lines = (
            "<tr>" + "".join(f"<td>{escape(cells[i][row])}</td>" for i in kept) + bar + "</tr>"
            for row, bar in enumerate(bars)
        )
        more = len(shown.records) - len(records)
        return (
            f"<p><strong>{escape(shown.sentence)}</strong></p><table><thead><tr>{headers}"
            f"{'<th>90 % interval</th>' * any(bars)}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
            + f"<p>... and {more:,} more rows.</p>"
            * (more > 0)
        )

    def _bars(self, records: Sequence[Record]) -> list[str]:
        """The interval of each record as a cell, on a common scale from 0; empty where records have none."""
        names = self._shown.interval
        longest = max((record[names[2]] or 0.0 for record in records), default=0.0)
        if not longest:
            return [""] * len(records)
        ends = ([100 * (record[name] or 0.0) / longest for name in names] for record in records)
        return [_BAR.format(low=low, width=high - low, middle=middle) for low, middle, high in ends]

    def _chart(self) -> Any:
        """An Altair chart of the intervals by GPU; SchemaError of an answer without intervals."""
        import altair

        low, middle, high = self._shown.interval
        if not middle:
            raise SchemaError(
                "this answer has no intervals to draw. Call plot() of a prediction or a comparison."
            )
        names = ("cnn", "gpu", "offer", "batch_size", "total_cost_usd", low, middle, high)
        values = [{name: record.get(name) for name in names} for record in self._shown.records]
        chart = altair.Chart(altair.Data(values=values)).encode(
            y=altair.Y("gpu:N", sort=None, title="GPU"),
            color=altair.Color("batch_size:O", title="batch size"),
        )
        ranges = chart.mark_rule().encode(x=altair.X(f"{low}:Q", title=middle), x2=f"{high}:Q")
        return ranges + chart.mark_point(filled=True).encode(
            x=f"{middle}:Q", tooltip=[f"{name}:N" for name in names]
        )


class AnswerPlot(PlotAccessor):
    """``answer.plot()``: the figure of the answer; with arguments, what pandas draws.

    ``plot(backend="altair")`` is a chart of Altair, as is ``plot()`` where Altair is installed and matplotlib is not.
    """

    def __init__(self, answer: AnswerFrame) -> None:
        super().__init__(answer)
        self._answer = answer

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The answer's figure; what pandas draws if there are arguments, or no figure suits."""
        without = not keywords and find_spec("matplotlib") is None and find_spec("altair") is not None
        if not arguments and (keywords == {"backend": "altair"} or without):
            return self._answer._chart()
        figure = self._answer._shown.figure
        return (
            super().__call__(*arguments, **keywords)
            if arguments or keywords or figure is None
            else figure(self._answer)
        )


def prediction_frame(prediction: "Answer", question: Question) -> AnswerFrame:
    """The data frame of predictions."""

    def show() -> Shown:
        from epochcast.commands.predict import prediction_columns, sentence_of, show_prediction
        from epochcast.plots import epoch_times

        records = prediction.records()
        by_cnn: dict[tuple[str, int], list[Record]] = {}
        for record in records:
            by_cnn.setdefault((record["cnn"], record["image_size"]), []).append(record)
        prefix = "{}: " * (len(by_cnn) > 1)
        sentences = (prefix.format(cnn) + sentence_of(rows, question) for (cnn, _), rows in by_cnn.items())
        columns = prediction_columns(records, None, question)
        in_epochs = records[0]["epoch_time_s"] is not None
        iteration = ("low_ms", "iteration_time_ms", "high_ms")
        return Shown(
            " ".join(sentences),
            prediction.rows(),
            lambda: show_prediction(prediction, question, verbose=None),
            records,
            [Column("CNN", lambda r: r["cnn"], left=True), *columns] if prefix else columns,
            ("epoch_low_s", "epoch_time_s", "epoch_high_s") if in_epochs else iteration,
            epoch_times if in_epochs else None,
        )

    return AnswerFrame.of(prediction.frame(), show)


def comparison_frame(comparison: "Comparison", question: Question, plan: Plan) -> AnswerFrame:
    """The data frame of a comparison."""

    def show() -> Shown:
        from epochcast.commands.compare import short_columns, show_comparison
        from epochcast.plots import cost_against_time

        records = comparison.records()
        return Shown(
            comparison.verdict.sentence,
            comparison.rows,
            lambda: show_comparison(comparison, plan, question, verbose=None),
            records,
            short_columns(records),
            ("total_low_h", "total_time_h", "total_high_h"),
            lambda frame: cost_against_time(frame, plan.budget_usd, plan.deadline_h),
        )

    return AnswerFrame.of(comparison.frame(), show)


def explanation_frame(
    frame: pd.DataFrame, explained: "list[Explanation]", scope: str, cnns: object
) -> AnswerFrame:
    """A data frame of explanations with what is shown of them."""
    sentences = [explanation.sentence for explanation in explained]
    names = [cnn for cnn in as_list(cnns) if not isinstance(cnn, pd.DataFrame)]

    def show() -> None:
        from epochcast.commands.explain import show_explanations

        print(" ".join(sentences), end="\n\n")
        show_explanations(explained, scope, names, verbose=None)

    return AnswerFrame.of(frame, lambda: Shown(" ".join(sentences), explained, show))
