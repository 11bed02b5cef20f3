"""What the named methods learned, as JSON beside a model file: coefficients, range and error; no rows and no code.

A model `NAME.json` has them in `NAME_methods.json.gz`, read when a question first names such a method.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from predictor.catalogue.modes import Mode
from predictor.errors import ArtifactError, SchemaError
from predictor.files import content_of, is_written_through, replace_file
from predictor.models.methods.laws import FlopsLaw, ProxyLaw, SpecsLaw

__all__ = ["MEASURED", "MODE_KEYS", "UNSEEN", "FittedMethod", "MethodError", "Methods", "ProxyRun"]

FORMAT_VERSION = 1

MODE_KEYS = ("framework", "precision", "memory_format", "autotune")
"""Fields of a mode that a fitted method is of."""

_LAWS: dict[str, Any] = {
    "gpu-specs": SpecsLaw,
    "gpu-specs-relative": SpecsLaw,
    "proxy-times": ProxyLaw,
    "proxy-times-relative": ProxyLaw,
    "flops-ratio": FlopsLaw,
}

MEASURED, UNSEEN = "measured", "unseen"
"""Keys of `FittedMethod.half_widths`: GPUs that the method was fitted on, and others."""


@dataclass(frozen=True, slots=True)
class MethodError:
    """Mean absolute percentage error (a fraction) of a method and of the default in a scenario of an evaluation."""

    scenario: str
    n: int
    mape: float
    p90: float
    default_mape: float


@dataclass(frozen=True, slots=True)
class ProxyRun:
    """Epoch times in seconds of proxies on one GPU at one batch size, at the founding study's number of samples."""

    gpu: str
    framework: str
    precision: str
    memory_format: str
    batch_size: int
    epoch_time_s: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class FittedMethod:
    """What an estimator of iteration times learned, with its range.

    `learned` is the JSON of the fitted estimator, `law` what predicts by it. `mode` holds those of `MODE_KEYS` that it
    is of, none where it answers any mode; `gpus` are those that it was fitted on. `half_widths` are those of 90 %
    intervals of ln time, by `MEASURED` and `UNSEEN`; without one such GPUs are refused.
    """

    name: str
    learned: Mapping[str, Any]
    mode: Mapping[str, str]
    gpus: tuple[str, ...]
    batch_sizes: tuple[int, int]
    trained_on: str
    half_widths: Mapping[str, float]

    @cached_property
    def law(self) -> Any:
        """The law of `predictor.models.methods.laws`; a KeyError, TypeError or ValueError if `learned` is damaged."""
        return _LAWS[self.name].from_json(self.learned)

    def is_of(self, mode: Mode) -> bool:
        """Whether it answers in this mode."""
        return all(value == str(getattr(mode, name)) for name, value in self.mode.items())

    def to_json(self) -> dict[str, Any]:
        """The fields as plain lists and dicts."""
        return {
            "mode": dict(self.mode),
            "gpus": list(self.gpus),
            "batch_sizes": list(self.batch_sizes),
            "trained_on": self.trained_on,
            "half_widths": dict(self.half_widths),
            "estimator": dict(self.learned),
        }

    @classmethod
    def from_json(cls, name: str, found: Mapping[str, Any]) -> FittedMethod:
        """Read `to_json` of the method of this name."""
        low, high = found["batch_sizes"]
        made = cls(
            name,
            found["estimator"],
            {key: str(value) for key, value in found["mode"].items()},
            tuple(found["gpus"]),
            (int(low), int(high)),
            str(found["trained_on"]),
            _positive(found["half_widths"]),
        )
        _ = made.law  # read now, so that a damaged file is refused
        return made


@dataclass(frozen=True, slots=True, eq=False)
class Methods:
    """Fitted methods by name, proxies' times on each GPU, and the methods' errors by name."""

    fitted: Mapping[str, tuple[FittedMethod, ...]] = field(default_factory=dict)
    proxy_runs: tuple[ProxyRun, ...] = ()
    errors: Mapping[str, tuple[MethodError, ...]] = field(default_factory=dict)

    @classmethod
    def beside(cls, model_file: Path, digest: str | None) -> Callable[[], Methods]:
        """Those of a model file, by the SHA-256 that `save` gave: its content, unpacked when called; none without one.

        Raises
        ------
        ArtifactError
            If their file is missing or of another model; when called, if it is damaged or of another version.
        """
        path = _path_of(model_file)
        return cls if digest is None else partial(_unpacked, content_of(path, model_file, digest), str(path))

    def save(self, model_file: Path) -> str:
        """Write the file beside a model file; its SHA-256. SchemaError if the model file is no file."""
        if is_written_through(model_file):
            raise SchemaError(
                f"the model has fitted methods, which lie beside its file, and {model_file} is no file. "
                "Write it to one such as model.json."
            )
        written = {
            "format_version": FORMAT_VERSION,
            "errors": {name: [asdict(each) for each in found] for name, found in self.errors.items()},
            "proxy_runs": [asdict(run) for run in self.proxy_runs],
            "fitted": {name: [each.to_json() for each in found] for name, found in self.fitted.items()},
        }
        text = json.dumps(written, separators=(",", ":"), allow_nan=False)
        content = gzip.compress(text.encode(), mtime=0)
        replace_file(_path_of(model_file), content)
        return sha256(content).hexdigest()

    def with_more(self, fitted: Mapping[str, Iterable[FittedMethod]], runs: Iterable[ProxyRun]) -> Methods:
        """These methods with more, which take precedence."""
        joined = {
            name: (*fitted.get(name, ()), *self.fitted.get(name, ()))
            for name in dict.fromkeys((*self.fitted, *fitted))
        }
        return replace(self, fitted=joined, proxy_runs=(*runs, *self.proxy_runs))

    def proxy_times(self, proxies: tuple[str, ...], mode: Mode, gpu: str) -> dict[int, dict[str, float]]:
        """Epoch times in seconds of these proxies on a GPU by batch size, where all of them were measured."""
        found: dict[int, dict[str, float]] = {}
        for run in self.proxy_runs:
            here = (run.gpu, run.framework, run.precision, run.memory_format)
            if here == (gpu, mode.framework, mode.precision, mode.memory_format):
                found.setdefault(
                    run.batch_size, {name: run.epoch_time_s.get(name, np.nan) for name in proxies}
                )
        return {
            size: times for size, times in sorted(found.items()) if np.isfinite(list(times.values())).all()
        }


def _path_of(model_file: Path) -> Path:
    return model_file.with_name(f"{model_file.stem}_methods.json.gz")


@lru_cache(maxsize=8)
def _unpacked(content: bytes, path: str) -> Methods:
    try:
        found = json.loads(gzip.decompress(content))
        if found["format_version"] != FORMAT_VERSION:
            raise ArtifactError(
                f"{path} has format version {found['format_version']!r}; this epochcast reads {FORMAT_VERSION}. "
                "Refit it with `epochcast fit`."
            )
        return Methods(
            {
                name: tuple(FittedMethod.from_json(name, each) for each in methods)
                for name, methods in found["fitted"].items()
            },
            tuple(
                ProxyRun(**{**run, "epoch_time_s": _positive(run["epoch_time_s"])})
                for run in found["proxy_runs"]
            ),
            {name: tuple(MethodError(**each) for each in errors) for name, errors in found["errors"].items()},
        )
    except (OSError, EOFError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{path} holds damaged methods ({error!r}). Refit it with `epochcast fit`."
        ) from error


def _positive(table: Mapping[str, Any]) -> dict[str, float]:
    read = {str(name): float(value) for name, value in table.items()}
    if not all(np.isfinite(value) and value > 0 for value in read.values()):
        raise ValueError(f"{table!r} holds a number that is not above 0")
    return read
