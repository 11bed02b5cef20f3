"""Questions to a service instead of the local core, with the same options and the same answers."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import predictor.errors
from epochcast.transport import Answer as HttpAnswer
from epochcast.transport import Service
from predictor.answers.compare import Comparison, ComparisonRow
from predictor.answers.predict import COLUMNS, Answer
from predictor.answers.question import Plan, Question, options_of
from predictor.checks import as_list
from predictor.errors import EpochcastError, SchemaError, ServiceError

if TYPE_CHECKING:
    import pandas as pd

    from predictor.cnns.layer_table import LayerTable

__all__ = [
    "answer_of",
    "check_version",
    "cnn_to_send",
    "compare_remotely",
    "gpu_name",
    "options_to_send",
    "predict_remotely",
]

_MOST_ROWS = 20_000  # as services take

_LOCAL_ONLY = {
    "model": "The service answers with its own model.",
    "offers": "The service has its own prices.",
}


def predict_remotely(service: Service, question: Question) -> Answer:
    """A service's answer to a question.

    Raises
    ------
    SchemaError
        If an option cannot be asked of a service.
    ServiceError
        If it does not answer.
    EpochcastError
        What it refuses, with the class that the core would raise.
    """
    sent = _with_lists(options_to_send(question)) | {
        "gpus": [gpu_name(gpu) for gpu in as_list(question.gpus)]
    }
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    scopes: dict[str, None] = {}
    for cnn in as_list(question.cnn):
        found = answer_of(service, "/v1/predictions", sent | cnn_to_send(cnn, question))
        for row in found["rows"]:
            check_version(set(COLUMNS), row)
            for name in COLUMNS:
                columns[name].append(tuple(row[name]) if name == "extrapolates" else row[name])
        scopes |= dict.fromkeys(found["covers"])
    return Answer(columns, "\n".join(scopes))


def compare_remotely(service: Service, question: Question, plan: Plan) -> Comparison:
    """A service's comparison; errors as of `predict_remotely`."""
    if len(as_list(question.cnn)) != 1:
        raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
    sent = options_to_send(question) | _different(plan)
    if question.gpus is not None:
        sent["gpus"] = [gpu_name(gpu) for gpu in as_list(question.gpus)]
    found = answer_of(service, "/v1/comparisons", sent | cnn_to_send(as_list(question.cnn)[0], question))
    names = {each.name for each in fields(ComparisonRow)}
    for row in found["rows"]:
        check_version(names, row)
    rows = [ComparisonRow(**row | {"extrapolates": tuple(row["extrapolates"])}) for row in found["rows"]]
    return Comparison(rows, found["covers"])


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


def _refused(service: Service, answer: HttpAnswer) -> EpochcastError:
    """The error that the service names, with its message; ServiceError where it names none."""
    problem = answer.found if isinstance(answer.found, dict) else {}
    kind = getattr(predictor.errors, str(problem.get("error", "")), None)
    message = str(problem.get("detail") or f"{service.url} answers with HTTP status {answer.status}.")
    if isinstance(kind, type) and issubclass(kind, EpochcastError):
        return kind(message)
    if answer.status in (404, 405):
        message = f"{service.url} has no such address: is it an epochcast service, and of this version?"
    return ServiceError(message)


def options_to_send(question: Question) -> dict[str, Any]:
    """The question's options that differ from the defaults, which a service shares; SchemaError for local ones."""
    given = _different(question)
    for name, why in _LOCAL_ONLY.items():
        if name in given:
            raise SchemaError(f"{name} cannot be sent to a service. {why} Leave it out, or ask locally.")
    given.pop("image_size", None)  # goes with the CNN
    if "anchors" in given:
        given["anchors"] = [_anchor(each) for each in given["anchors"]]
    if "measurements" in given:
        given["measurements"] = _measurement_columns(given["measurements"])
    return {"batch_sizes": question.batch_sizes, **given}


def _different(asked: Question | Plan) -> dict[str, Any]:
    """Options that are not the default."""
    found = {name: getattr(asked, name) for name in options_of(type(asked))}
    usual = options_of(type(asked))
    return {name: value for name, value in found.items() if value is not usual[name].default and value != ()}


def _with_lists(options: dict[str, Any]) -> dict[str, Any]:
    """Precision and memory format as the lists that predictions take."""
    lists = {"precision": "precisions", "memory_format": "memory_formats"}
    return {lists.get(name, name): [value] if name in lists else value for name, value in options.items()}


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


def cnn_to_send(cnn: object, question: Question) -> dict[str, Any]:
    """A name of the zoo as it is, everything else as its layers."""
    from predictor.cnns.zoo import zoo_names

    if isinstance(cnn, str) and (cnn in zoo_names() or not cnn.casefold().endswith((".csv", ".onnx"))):
        return {"cnn": cnn} | ({"image_size": question.image_size} if question.image_size is not None else {})
    from predictor.cnns.resolve import resolve_cnn

    source = fspath(cnn) if isinstance(cnn, PathLike) else cnn
    return {"layer_table": _layers(resolve_cnn(source, question.image_size_of(source)))}


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


def check_version(names: set[str], found: Mapping[str, Any]) -> None:
    """Refuse what a service of another version answers, with other fields than the core's; ServiceError."""
    different = set(found) ^ names
    if different:
        raise ServiceError(
            "the service is of another version than this epochcast: they differ in "
            f"{', '.join(sorted(different))}. Update one of them."
        )
