"""Operator libraries and their fitted weights in files, for predictions without the measurement table.

They lie beside a model file `NAME.json`, in the folder `NAME_operators`: one compressed JSON per GPU and mode, read
when first needed.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from predictor.catalogue.devices import Gpu, is_cpu
from predictor.catalogue.modes import Mode
from predictor.errors import ArtifactError, SchemaError
from predictor.files import is_written_through, replace_file
from predictor.models.layer_times.interpolation import Forest
from predictor.models.layer_times.law import ClassWeights
from predictor.models.layer_times.library import DeviceMode, OperatorLibrary
from predictor.operators.operators import Operator

__all__ = ["LayerModel", "LayerModels", "library_mode"]

FORMAT_VERSION = 1
_FLAGS = ("input_gradient", "in_place", "wide_input")
_WORDS = ("type", "kind", "passes")
_STORED = tuple(
    entry for entry in fields(Operator) if entry.name != "repeats"
)  # an operator measured alone runs once
_DIGITS = 4  # of ln ms and of ms: a hundredth of a percent


@dataclass(frozen=True, slots=True, eq=False)
class LayerModel:
    """One operator library with its fitted weights."""

    library: OperatorLibrary
    law: ClassWeights

    def save(self, folder: Path) -> Path:
        """Write the file of this GPU and mode atomically: a concurrent reader gets the old file or the new one."""
        expected = self.library.expected
        written = {
            "format_version": FORMAT_VERSION,
            "mode": self.library.mode._asdict(),
            "host": self.library.host,
            "law": self.law.as_json(),
            "batch_sizes": self.library.batch_sizes.tolist(),
            "operators": _columns(self.library.operators),
            "log_ms": [[_rounded(value) for value in row] for row in self.library.log_ms.tolist()],
            "host_ms": [_rounded(value) for value in self.library.host_ms.tolist()],
            "forests": {name: forest.as_json() for name, forest in self.library.forests.items()},
            "expected": None
            if expected is None
            else [[_rounded(v) for v in row] for row in expected.tolist()],
        }
        path = folder / _file_name(self.library.mode)
        text = json.dumps(written, separators=(",", ":"), allow_nan=False)
        replace_file(path, gzip.compress(text.encode(), mtime=0))
        return path

    @classmethod
    def load(cls, path: Path) -> LayerModel:
        """Read the file of one GPU and mode.

        Raises
        ------
        ArtifactError
            If it is damaged or of another version.
        """
        try:
            found = json.loads(gzip.decompress(path.read_bytes()))
            if found["format_version"] != FORMAT_VERSION:
                raise ArtifactError(
                    f"{path} has format version {found['format_version']!r}; this epochcast reads {FORMAT_VERSION}. "
                    "Refit it with `epochcast fit`."
                )
            return _from_json(found)
        except (OSError, EOFError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(
                f"{path} is a damaged operator library ({error!r}). Refit it with `epochcast fit`."
            ) from error


@dataclass(slots=True, eq=False)
class LayerModels:
    """Layer models by GPU and mode: those in `given` first, then those in `folder`."""

    folder: Path | None = None
    given: dict[DeviceMode, LayerModel] = field(default_factory=dict)

    @classmethod
    def beside(cls, model_file: Path) -> LayerModels:
        """The layer models in the folder beside a model file."""
        return cls(_folder_of(model_file))

    def find(self, mode: DeviceMode) -> LayerModel | None:
        """The layer model of this GPU and mode; None if its operators were not measured."""
        if mode in self.given:
            return self.given[mode]
        path = self.folder / _file_name(mode) if self.folder is not None else None
        if path is None or not path.is_file():
            return None
        return _load(str(path), path.stat().st_mtime_ns)

    def nearest_law(self, mode: DeviceMode) -> ClassWeights | None:
        """The weights of this mode, else those of the most similar mode; None if there is none.

        Only modes of the same framework qualify, and CPUs and GPUs never share weights. The framework decides more
        than the GPU how an operator in a CNN differs from one alone: on an H200, weights of another precision and
        memory format predicted whole CNNs better than weights of 1.
        """
        found = self.find(mode)
        if found is not None:
            return found.law
        filed = (_load(str(path), path.stat().st_mtime_ns) for path in self._files())
        models = [*self.given.values(), *filed]
        alike = [model for model in models if _alike(model.library.mode, mode) and model.law.weights]
        if not alike:
            return None
        model = max(alike, key=lambda each: sum(a == b for a, b in zip(each.library.mode, mode, strict=True)))
        return model.law.borrowed(" ".join(model.library.mode[:4]))

    def with_more(self, models: Iterable[LayerModel]) -> LayerModels:
        """These layer models with `models` added, which take precedence."""
        return LayerModels(self.folder, self.given | {model.library.mode: model for model in models})

    def save(self, model_file: Path) -> list[Path]:
        """Write all into the folder beside a model file; files already there are left as they are, but for `given`."""
        folder = _folder_of(model_file)
        given = {_file_name(mode) for mode in self.given}
        others = [path for path in self._files() if path.name not in given and path.parent != folder]
        if self.given or others:
            if is_written_through(model_file):
                raise SchemaError(
                    f"the model has operator libraries, which lie in a folder beside its file, and {model_file} is no "
                    "file. Write it to one such as model.json."
                )
            folder.mkdir(exist_ok=True)
        for path in others:
            replace_file(folder / path.name, path.read_bytes())
        return [folder / path.name for path in others] + [model.save(folder) for model in self.given.values()]

    def modes(self) -> list[str]:
        """File names without endings, for messages."""
        names = {_file_name(mode) for mode in self.given} | {path.name for path in self._files()}
        return sorted(name.removesuffix(".json.gz") for name in names)

    def _files(self) -> list[Path]:
        return (
            sorted(self.folder.glob("*.json.gz")) if self.folder is not None and self.folder.is_dir() else []
        )


def library_mode(gpu: Gpu, mode: Mode) -> DeviceMode:
    """GPU and mode of the library that a prediction needs."""
    return DeviceMode(gpu.name, mode.framework, mode.precision, mode.memory_format, mode.autotune)


def _alike(one: DeviceMode, other: DeviceMode) -> bool:
    return one.framework == other.framework and is_cpu(one.gpu) == is_cpu(other.gpu)


def _folder_of(model_file: Path) -> Path:
    return model_file.with_name(f"{model_file.stem}_operators")


def _file_name(mode: DeviceMode) -> str:
    words = [*mode[:4], *(["autotune"] if mode.autotune else [])]
    return "-".join(re.sub("[^a-z0-9]+", "_", word.casefold()).strip("_") for word in words) + ".json.gz"


@lru_cache(maxsize=32)
def _load(path: str, _modified_ns: int) -> LayerModel:
    return LayerModel.load(Path(path))


def _columns(operators: Iterable[Operator]) -> dict[str, list[Any]]:
    rows = [asdict(operator) for operator in operators]
    return {entry.name: [row[entry.name] for row in rows] for entry in _STORED}


def _from_json(found: Mapping[str, Any]) -> LayerModel:
    columns = [found["operators"][entry.name] for entry in _STORED]
    _check_columns(columns)
    operators = tuple(Operator(*row) for row in zip(*columns, strict=True))
    sizes = np.array(found["batch_sizes"], dtype=float)
    log_ms = np.array(found["log_ms"], dtype=float).reshape(len(operators), sizes.size)
    host_ms = np.array(found["host_ms"], dtype=float)
    if (
        not np.isfinite(log_ms).any(axis=1).all()
        or host_ms.shape != (len(operators),)
        or not (sizes > 0).all()
    ):
        raise ValueError("an operator has no time")
    forests = {str(name): Forest.from_json(forest) for name, forest in found["forests"].items()}
    expected = found["expected"]
    if expected is not None:
        expected = np.array(expected, dtype=float).reshape(log_ms.shape)
    mode = DeviceMode(**found["mode"])
    library = OperatorLibrary(mode, operators, sizes, log_ms, host_ms, found["host"], forests, expected)
    return LayerModel(library, ClassWeights.from_json(found["law"]))


def _check_columns(columns: list[list[Any]]) -> None:
    for entry, column in zip(_STORED, columns, strict=True):
        allowed = bool if entry.name in _FLAGS else str if entry.name in _WORDS else int
        if not all(value is None or type(value) is allowed for value in column):
            raise ValueError(f"the column {entry.name} holds something else than {allowed.__name__}")


def _rounded(value: float) -> float | None:
    return round(value, _DIGITS) if math.isfinite(value) else None
