"""Questions to a service instead of the local core, with the same options and the same rows as answers."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeVar

import predictor.errors
from epochcast.transport import Answer, Service
from predictor.answers.compare import ComparisonRow
from predictor.answers.predict import PredictionRow
from predictor.checks import MAX_IMAGE_SIZE, MAX_SAMPLES, batch_sizes_of, texts_of, whole_number
from predictor.errors import EpochcastError, SchemaError, ServiceError

if TYPE_CHECKING:
    import pandas as pd

    from predictor.cnns.layer_table import LayerTable

__all__ = [
    "answer_of",
    "check_version",
    "cnn_as_asked",
    "compare_remotely",
    "gpu_name",
    "options_as_asked",
    "predict_remotely",
]

R = TypeVar("R", PredictionRow, ComparisonRow)

_WHOLE = (
    ("samples", 1, MAX_SAMPLES),
    ("validation_samples", 0, MAX_SAMPLES),
    ("epochs", 1, 1_000_000),
)  # checked here as the core does, with its errors
_MOST_ROWS = 20_000  # as services take

_LOCAL_ONLY = {
    "model": "The service answers with its own model.",
    "offers": "The service has its own prices.",
}


def predict_remotely(
    service: Service, cnn: object, gpus: object, batch_sizes: int | str | Iterable[object], **options: Any
) -> tuple[list[PredictionRow], str]:
    """Ask a service what `predictor.answers.predict.predict` would answer; also what the answer covers.

    Raises
    ------
    SchemaError
        If an option cannot be asked of a service.
    ServiceError
        If it does not answer.
    EpochcastError
        What it refuses, with the class that the core would raise.
    """
    given = options_as_asked(options)
    question = {
        "gpus": [gpu_name(gpu) for gpu in texts_of(gpus)],
        "batch_sizes": batch_sizes_of(batch_sizes),
        "precisions": [given.pop("precision", "fp32")],
        "memory_formats": [given.pop("memory_format", "nchw")],
        **given,
    }
    rows: list[PredictionRow] = []
    covers = ""
    for each in texts_of(cnn):
        found = answer_of(service, "/v1/predictions", question | cnn_as_asked(each, options))
        rows += [_row(PredictionRow, row) for row in found["rows"]]
        covers = covers or found["covers"][0]
    return rows, covers


def compare_remotely(
    service: Service,
    cnn: object,
    batch_sizes: int | str | Iterable[object],
    gpus: object = None,
    **options: Any,
) -> tuple[list[ComparisonRow], str]:
    """Ask a service what `predictor.answers.compare.compare` would answer; also what the answer covers.

    Raises
    ------
    EpochcastError
        As `predict_remotely`.
    """
    if len(texts_of(cnn)) != 1:
        raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
    question = {"batch_sizes": batch_sizes_of(batch_sizes), **options_as_asked(options)}
    if gpus is not None:
        question["gpus"] = [gpu_name(gpu) for gpu in texts_of(gpus)]
    found = answer_of(service, "/v1/comparisons", question | cnn_as_asked(texts_of(cnn)[0], options))
    return [_row(ComparisonRow, row) for row in found["rows"]], found["covers"]


def answer_of(service: Service, path: str, question: Mapping[str, Any] | None = None) -> Any:
    """Post a question, or get what lies at a path; raises what the service refuses."""
    if question is None:
        answer = service.get(path)
    else:
        import json

        answer = service.post(path, json.dumps(question, allow_nan=False).encode(), "application/json")
    if answer.status != 200:
        raise _refused(service, answer)
    return answer.found


def _refused(service: Service, answer: Answer) -> EpochcastError:
    """The error that the service names, with its message; ServiceError where it names none."""
    problem = answer.found if isinstance(answer.found, dict) else {}
    kind = getattr(predictor.errors, str(problem.get("error", "")), None)
    message = str(problem.get("detail") or f"{service.url} answers with HTTP status {answer.status}.")
    if isinstance(kind, type) and issubclass(kind, EpochcastError):
        return kind(message)
    if answer.status in (404, 405):
        message = f"{service.url} has no such address: is it an epochcast service, and of this version?"
    return ServiceError(message)


def options_as_asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the service takes them; those that are not given are its own defaults, which are the core's."""
    for name, why in _LOCAL_ONLY.items():
        if options.get(name) is not None:
            raise SchemaError(f"{name} cannot be sent to a service. {why} Leave it out, or ask locally.")
    given = {
        name: value
        for name, value in options.items()
        if value is not None and name not in (*_LOCAL_ONLY, "image_size", "anchors", "measurements")
    }
    for name, least, most in _WHOLE:
        if name in given:
            given[name] = whole_number(name, given[name], least, most)
    given["anchors"] = [_anchor(each) for each in options.get("anchors") or ()]
    if options.get("measurements") is not None:
        given["measurements"] = _measurement_columns(options["measurements"])
    return given


def _anchor(anchor: object) -> dict[str, Any]:
    found = asdict(anchor) if is_dataclass(anchor) and not isinstance(anchor, type) else dict(anchor)  # type: ignore[call-overload]
    return {name: value for name, value in found.items() if value not in (None, "")}


def _measurement_columns(table: "pd.DataFrame | str | PathLike[str]") -> dict[str, list[Any]]:
    """The table column by column, without columns that hold nothing; SchemaError where a question cannot hold it."""
    from predictor.measurements.schema import COLUMNS
    from predictor.measurements.table import check_measurements, read_measurements

    whole = isinstance(table, str | PathLike)
    frame = read_measurements(table) if whole else check_measurements(table, "the measurements given")  # type: ignore[arg-type]
    if len(frame) > _MOST_ROWS:
        raise SchemaError(
            f"the measurements have {len(frame):,} rows; a service takes {_MOST_ROWS:,} with a question. Leave out "
            "those of other GPUs and modes, or store all with `epochcast data push FILE URL` and ask "
            "`/v1/calibrations` with `stored`."
        )
    known = frame[[entry.name for entry in COLUMNS]].dropna(axis="columns", how="all").astype(object)
    return {str(name): known[name].where(known[name].notna(), None).tolist() for name in known}


def gpu_name(gpu: object) -> str:
    """What a service calls a GPU of the core."""
    return gpu if isinstance(gpu, str) else str(getattr(gpu, "name", gpu))


def cnn_as_asked(cnn: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """A name of the zoo as it is, everything else as its layers."""
    from predictor.cnns.zoo import zoo_names

    size = options.get("image_size")
    if size is not None:
        size = whole_number("image_size", size, high=MAX_IMAGE_SIZE)
    if isinstance(cnn, str) and (cnn in zoo_names() or not cnn.casefold().endswith((".csv", ".onnx"))):
        return {"cnn": cnn} | ({"image_size": size} if size is not None else {})
    from predictor.answers.question import data_image_size
    from predictor.cnns.resolve import resolve_cnn

    source = fspath(cnn) if isinstance(cnn, PathLike) else cnn
    return {
        "layer_table": _layers(resolve_cnn(source, size or data_image_size(options.get("data_set"), source)))
    }


def _layers(table: "LayerTable") -> dict[str, Any]:
    from predictor.cnns.layer_table import IMAGE

    position_of = {layer.index: position for position, layer in enumerate(table)} | {IMAGE: IMAGE}
    layers = []
    for position, layer in enumerate(table):
        row = {name: value for name, value in asdict(layer).items() if value is not None} | {
            "index": position
        }
        if layer.inputs is not None:
            row["inputs"] = [position_of[each] for each in layer.inputs]
        layers.append(row)
    found: dict[str, Any] = {"name": table.cnn, "image_size": table.image_size, "layers": layers}
    return found | ({"warnings": list(table.warnings)} if table.warnings else {})


def _row(kind: type[R], found: Mapping[str, Any]) -> R:
    """A row as the core gives it; a service of another version says so."""
    check_version(kind, found)
    return kind(**{**found, "extrapolates": tuple(found["extrapolates"])})


def check_version(kind: type[Any], found: Mapping[str, Any]) -> None:
    """Refuse what a service of another version answers: other fields than those of the core's class; ServiceError."""
    different = set(found) ^ {field.name for field in fields(kind)}
    if different:
        raise ServiceError(
            "the service is of another version than this epochcast: they differ in "
            f"{', '.join(sorted(different))}. Update one of them."
        )
