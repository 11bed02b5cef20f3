"""What `epochcast explain` and `epochcast.explain` ask, sent to the core: a question about CNNs, or about tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from predictor.errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd

    from epochcast.transport import Service
    from predictor.answers.explain import Explanation

__all__ = ["MODE_OPTIONS", "USUAL_BATCH_SIZES", "Wanted", "explained", "explanation_frame", "wanted_of"]

USUAL_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

MODE_OPTIONS = ("precision", "memory_format", "framework", "capture")
"""What chooses a mode of a CNN, and among the modes of a table."""

_USUAL = {"autotune": False, "optimizer": "momentum"}  # not chosen: a table has all

_MEASURED = (
    "Measured: times are medians of the table's rows; what bounds the GPU follows from the arithmetic of the layers, "
    "weighted by the times of the table's operators where it has them. Nothing is predicted."
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked: `mode` None or absent is the default, of a table all; `options` are predict's others."""

    what: object
    gpu: object = None
    batch_size: Any = None
    image_size: int | None = None
    samples: int | None = None
    data_set: str | None = None
    mode: Mapping[str, str | None] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def wanted_of(what: object, gpu: object, batch_size: Any, options: Mapping[str, Any]) -> Wanted:
    """From the options of `epochcast.explain`, whichever of them are given."""
    data = {name: options.get(name) for name in ("image_size", "samples", "data_set")}
    mode = {name: options.get(name) for name in MODE_OPTIONS}
    others = {name: value for name, value in options.items() if name not in (*data, *mode)}
    return Wanted(what, gpu, batch_size, **data, mode=mode, options=others)


def explained(wanted: Wanted, service: "Service | None" = None) -> "tuple[list[Explanation], str]":
    """The explanations, and what they cover; a service's where one is given.

    Raises
    ------
    SchemaError
        If a CNN has no GPU to be explained on, a service is asked about a table, or the question makes no sense
        otherwise.
    """
    from predictor.answers.explain_measured import is_measurement_table
    from predictor.checks import texts_of

    many = texts_of(wanted.what)
    tables = [each for each in many if is_measurement_table(each) or _is_frame(each)]
    if tables and service is not None:
        raise SchemaError(
            "a measurement table is explained without a service, since nothing is predicted. Leave the server out."
        )
    if tables:
        return _of_tables(
            wanted, tables, [each for each in many if not any(each is table for table in tables)]
        )
    if wanted.gpu is None:
        raise SchemaError("no GPU is given. Try: epochcast explain resnet50 --gpu H200")
    return _of_cnns(wanted, many, service)


def explanation_frame(found: "Sequence[Explanation]", covers: str) -> "pd.DataFrame":
    """A row per CNN, GPU, mode and batch size; all else in `attrs`, as `epochcast.explain` says."""
    import pandas as pd

    from predictor.answers.explain import explanation_rows, row_columns

    rows = [row for each in found for row in explanation_rows(each)]
    frame = pd.DataFrame(rows, columns=row_columns(found))
    frame.attrs |= {"explanations": found, "covers": covers}
    return frame


def _of_cnns(
    wanted: Wanted, cnns: Sequence[object], service: "Service | None"
) -> "tuple[list[Explanation], str]":
    from predictor.answers.explain import explain
    from predictor.answers.question import load_model
    from predictor.answers.scope import coverage_of

    question = {
        **wanted.options,
        **{name: word for name, word in wanted.mode.items() if word is not None},
        "samples": wanted.samples,
        "data_set": wanted.data_set,
    }
    sizes = USUAL_BATCH_SIZES if wanted.batch_size is None else wanted.batch_size
    if service is not None:
        from epochcast.remote_explanations import explain_remotely

        return explain_remotely(service, cnns, wanted.gpu, sizes, image_size=wanted.image_size, **question)
    question["model"] = load_model(question.get("model"))
    found = explain(cnns, wanted.gpu, sizes, image_size=wanted.image_size, **question)
    covers = coverage_of(found[0].host, trained_on=[each.trained_on for each in found], **question)
    return found, covers


def _of_tables(
    wanted: Wanted, tables: Sequence[object], cnns: Sequence[object]
) -> "tuple[list[Explanation], str]":
    from predictor.answers.explain_measured import explain_measurements
    from predictor.answers.question import samples_of
    from predictor.checks import batch_sizes_of, texts_of
    from predictor.measurements.table import canonical_gpu_name

    _check_options(wanted)
    gpus = None if wanted.gpu is None else [canonical_gpu_name(str(each)) for each in texts_of(wanted.gpu)]
    sizes = None if wanted.batch_size is None else batch_sizes_of(wanted.batch_size)
    samples = samples_of(wanted.samples, wanted.data_set)
    only = {"gpu": gpus, "image_size": wanted.image_size, "batch_size": sizes, **wanted.mode}
    only |= {name: value for name, usual in _USUAL.items() if (value := wanted.options.get(name)) != usual}
    return explain_measurements(list(tables), [str(each) for each in cnns], samples, **only), _MEASURED


def _check_options(wanted: Wanted) -> None:
    given = [
        name
        for name in ("measurements", "host", "model", "anchors", "method")
        if wanted.options.get(name) not in (None, (), "auto")
    ]
    if given:
        raise SchemaError(
            f"{given[0]} has no meaning for a measurement table, of which nothing is predicted. Leave it out, or "
            "ask about a CNN and pass the table as measurements."
        )


def _is_frame(each: object) -> bool:
    return type(each).__name__ == "DataFrame"
