"""What `epochcast explain` and `epochcast.explain` ask, sent to the core: a question about CNNs, or about tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from predictor.errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd

    from epochcast.transport import Service
    from predictor.answers.explain import Explanation

__all__ = ["USUAL_BATCH_SIZES", "ExplainRequest", "explained", "explanation_frame"]

USUAL_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

MODE_OPTIONS = ("precision", "memory_format", "framework", "capture", "autotune", "optimizer")
"""What chooses a mode of a CNN, and among the modes of a table."""

_OF_TABLES = ("image_size", "samples", "data_set", *MODE_OPTIONS)

_MEASURED = (
    "Measured: times are medians of the table's rows; what bounds the GPU follows from the arithmetic of the layers, "
    "weighted by the times of the table's operators where it has them. Nothing is predicted."
)


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """CNNs to be predicted or measurement tables to be read; `options` are a `Question`'s, those that were given."""

    subject: object
    gpu: object = None
    batch_size: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


def explained(request: ExplainRequest, service: "Service | None" = None) -> "tuple[list[Explanation], str]":
    """The explanations, and what they cover; a service's where one is given.

    Raises
    ------
    SchemaError
        If a CNN has no GPU to be explained on, a service is asked about a table, or the question makes no sense
        otherwise.
    """
    from predictor.answers.explain_measured import is_measurement_table
    from predictor.checks import as_list

    many = as_list(request.subject)
    tables = [each for each in many if is_measurement_table(each) or _is_frame(each)]
    if tables and service is not None:
        raise SchemaError(
            "a measurement table is explained without a service, since nothing is predicted. Leave the server out."
        )
    if tables:
        return _of_tables(
            request, tables, [each for each in many if not any(each is table for table in tables)]
        )
    if request.gpu is None:
        raise SchemaError("no GPU is given. Try: epochcast explain resnet50 --gpu H200")
    return _of_cnns(request, many, service)


def explanation_frame(found: "Sequence[Explanation]", covers: str) -> "pd.DataFrame":
    """A row per CNN, GPU, mode and batch size; all else in `attrs`, as `epochcast.explain` says."""
    import pandas as pd

    from predictor.answers.explain import explanation_rows, row_columns

    rows = [row for each in found for row in explanation_rows(each)]
    frame = pd.DataFrame(rows, columns=row_columns(found))
    frame.attrs |= {"explanations": found, "covers": covers}
    return frame


def _of_cnns(
    request: ExplainRequest, cnns: Sequence[object], service: "Service | None"
) -> "tuple[list[Explanation], str]":
    from predictor.answers.explain import explain
    from predictor.answers.question import Question

    sizes = USUAL_BATCH_SIZES if request.batch_size is None else request.batch_size
    question = Question.of(cnns, request.gpu, sizes, request.options)
    if service is not None:
        from epochcast.remote_explanations import explain_remotely

        return explain_remotely(service, question)
    return explain(question)


def _of_tables(
    request: ExplainRequest, tables: Sequence[object], cnns: Sequence[object]
) -> "tuple[list[Explanation], str]":
    from predictor.answers.explain_measured import explain_measurements
    from predictor.answers.question import Question
    from predictor.checks import as_list, batch_sizes_of
    from predictor.measurements.table import canonical_gpu_name

    given = {name: value for name, value in request.options.items() if value not in (None, (), "auto", False)}
    for name in given:
        if name not in _OF_TABLES:
            raise SchemaError(
                f"{name} has no meaning for a measurement table, since nothing is predicted. Leave it out, or "
                "explain a CNN and pass the table as measurements."
            )
    checked = Question.of(cnns, None, 1, given)
    gpus = None if request.gpu is None else [canonical_gpu_name(str(each)) for each in as_list(request.gpu)]
    sizes = None if request.batch_size is None else batch_sizes_of(request.batch_size)
    only = {"gpu": gpus, "image_size": checked.image_size, "batch_size": sizes}
    only |= {name: given.get(name) for name in MODE_OPTIONS if name in given}
    names = [str(each) for each in cnns]
    return explain_measurements(list(tables), names, checked.epoch_samples(), **only), _MEASURED


def _is_frame(each: object) -> bool:
    return type(each).__name__ == "DataFrame"
