"""Asks a question of `cases` through one of the public faces; every face gives the same records."""

import csv
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cases import BULK_ROWS, EVALUATIONS, MEASURED, Question

import epochcast

__all__ = [
    "answers_of_bulk", "answers_of_cli", "answers_of_evaluation", "answers_of_fit", "answers_of_python",
    "answers_of_rest", "service",
]  # fmt: skip

Record = dict[str, Any]
_MODE = ("precision", "memory_format")


def answers_of_python(question: Question) -> list[Record]:
    """Records of `epochcast.predict` or `compare`; explanations as dicts."""
    cnn = question.cnn() if callable(question.cnn) else question.cnn
    frame = getattr(epochcast, question.verb)(
        cnn, question.gpu, question.batch_size, precision=question.precision, **question.options
    )
    if question.verb == "explain":
        return [_plain(explanation) for explanation in frame.attrs["explanations"]]
    return _records(frame)


def answers_of_cli(question: Question) -> list[Record]:
    """Records of `epochcast VERB ... --format json`."""
    several = question.cnn if isinstance(question.cnn, list) else [question.cnn]
    arguments = [question.verb, *several, "--precision", question.precision, "--format", "json"]
    gpus = question.gpu if isinstance(question.gpu, list) else [question.gpu]
    arguments += [word for gpu in gpus if gpu is not None for word in ("--gpu", gpu)]
    arguments += ["--batch-size", ",".join(map(str, question.batch_size))]
    for name, value in question.options.items():
        arguments += _anchor_words(value) if name == "anchors" else _words(name, value)
    return list(json.loads(_command(arguments))["rows"])


def answers_of_rest(client: Any, question: Question) -> list[Record]:
    """Records of `POST /v1/predictions`, `/v1/comparisons` or `/v1/explanations`, asked CNN by CNN."""
    several = question.cnn if isinstance(question.cnn, list) else [question.cnn]
    return [record for cnn in several for record in _posted(client, question, cnn)]


@contextmanager
def service() -> Iterator[Any]:
    """A test client of the service, without a store."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which HTTP library the test client will prefer one day
        from fastapi.testclient import TestClient
    from api.main import create_app

    quiet = {"EPOCHCAST_STORE": "", "EPOCHCAST_LOG_LEVEL": "warning"}
    with patch.dict(os.environ, quiet), TestClient(create_app()) as client:
        yield client


def answers_of_bulk(folder: Path) -> list[Record]:
    """Rows that `epochcast predict --rows` writes."""
    questions, answered = folder / "asked.csv", folder / "answered.csv"
    _write_csv(questions, BULK_ROWS)
    arguments = ["predict", "--rows", str(questions), "--out", str(answered)]
    _command(arguments, code=1)  # a K80's rows of amp_fp16 fail
    with answered.open(newline="") as file:
        return [
            row
            | {name: float(row[name]) if row[name] else None for name in row if name.endswith(("_ms", "_s"))}
            | {"failed": bool(row["error"])}
            for row in csv.DictReader(file)
        ]


def answers_of_fit(folder: Path) -> list[Record]:
    """What a model predicts that was fitted on `MEASURED`."""
    model = epochcast.fit(_measured_file(folder))
    cnns, gpus = ["resnet50", "densenet121"], ["Tesla T4", "NVIDIA A100-SXM4-40GB"]
    frame = epochcast.predict(cnns, gpus, [8, 256], precision="fp32", samples=50_000, model=model)
    return _records(frame)


def answers_of_evaluation(folder: Path) -> list[Record]:
    """Errors of predictors on `MEASURED`."""
    measured = _measured_file(folder)
    frames = [epochcast.evaluate(measured, seed=0, n_jobs=1, **options) for options in EVALUATIONS.values()]
    return [record for frame in frames for record in _records(frame)]


def _records(frame: Any) -> list[Record]:
    return list(frame.astype(object).where(frame.notna(), None).to_dict("records"))


def _plain(explanation: Any) -> Record:
    return asdict(explanation) if is_dataclass(explanation) else dict(explanation)  # type: ignore[arg-type]


def _words(name: str, value: Any) -> list[str]:
    option = {"data_set": "dataset", "budget_usd": "budget", "deadline_h": "deadline"}.get(name, name)
    flag = "--" + option.replace("_", "-")
    return [flag] if value is True else [flag, str(value)]


def _anchor_words(anchors: list[Record]) -> list[str]:
    [anchor] = anchors
    return [word for name, value in anchor.items() for word in _words(f"anchor_{name}", value)]


def _command(arguments: list[str], code: int = 0) -> str:
    from typer.testing import CliRunner

    from epochcast.command import build_app

    result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments])
    assert result.exit_code == code, (arguments, result.output, result.exception)
    return result.stdout


def _posted(client: Any, question: Question, cnn: str) -> list[Record]:
    gpus = question.gpu if isinstance(question.gpu, list) else question.gpu and [question.gpu]
    body: Record = {"batch_sizes": question.batch_size, "precision": question.precision} | question.options
    if gpus is not None:
        body["gpus"] = gpus
    if question.verb == "predict":
        body |= {f"{name}s": [body.pop(name)] for name in _MODE if name in body}
    if "measurements" in body:
        body["measurements"] = _measurement_columns(Path(body["measurements"]))
    if cnn.endswith(".onnx"):
        read = client.post("/v1/cnns", files={"onnx": (cnn, Path(cnn).read_bytes())})
        assert read.status_code == 200, (question.name, read.text)
        body["layer_table"] = read.json()["layer_table"]
    else:
        body["cnn"] = cnn
    path = {"predict": "predictions", "compare": "comparisons", "explain": "explanations"}[question.verb]
    response = client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, (question.name, response.text)
    records: list[Record] = response.json()["explanations" if question.verb == "explain" else "rows"]
    return records


def _measurement_columns(path: Path) -> dict[str, list[Any]]:
    import pandas as pd

    frame = pd.read_csv(path).astype(object)
    return {str(name): [None if pd.isna(cell) else cell for cell in cells] for name, cells in frame.items()}


def _measured_file(folder: Path) -> Path:
    _write_csv(folder / "measured.csv", MEASURED)
    return folder / "measured.csv"


def _write_csv(path: Path, rows: list[Record]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
