"""One operator library with its fitted weights, as arrays and as the content of a file without pickles."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from predictor.errors import ArtifactError, SchemaError
from predictor.models.base import Case, table_of
from predictor.models.layer_times.interpolation import FEATURES, NODE_ARRAYS, Forest
from predictor.models.layer_times.law import OperatorTotals, SummingLaw, layer_sums
from predictor.models.layer_times.library import CarriedOver, OperatorLibrary, OperatorSource
from predictor.models.layer_times.times import DeviceMode
from predictor.operators.columns import FIELDS, UNKNOWN, OperatorColumns
from predictor.operators.optimizers import update_of

FORMAT_VERSION = 4
_DIGITS = {"log_ms": 4, "host_ms": 4, "expected": 4, "value": 5}
"""Digits that files keep of ln ms and of ms, a hundredth of a percent, and of leaves, ln(time / base). Thresholds keep
theirs, since rows lie on them or next to them."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerModel:
    """Operator times of one GPU and mode, measured there or carried over to it, with their fitted weights."""

    library: OperatorSource
    law: SummingLaw

    @property
    def measured_library(self) -> OperatorLibrary | None:
        """The operators if they were measured on this GPU in this mode; None if they are carried over."""
        return self.library if isinstance(self.library, OperatorLibrary) else None

    def carried_to(self, mode: DeviceMode) -> LayerModel:
        """These operators and weights on another card of the chip."""
        return LayerModel(CarriedOver(self.library, mode), self.law.borrowed(str(self.library.mode)))

    def sums(self, case: Case) -> OperatorTotals:
        """Totals of the operators of a case's CNN at its batch sizes; errors as of `layer_sums`."""
        table, mode = table_of(case), case.mode
        return layer_sums(self.library, table, case.batch_sizes, mode.fp32_products, update_of(table, mode))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Operators, times and trees as numbers, and as JSON in `about` what is text; of a base only its mode.

        SchemaError if no operator was measured there: what is carried over is computed when it is asked for.
        """
        library = self.library
        if not isinstance(library, OperatorLibrary):
            raise SchemaError(f"no operator was measured on {library.mode}, so there is nothing to write.")
        if library.base is not None and library.base.source.mode == library.mode:
            raise SchemaError(
                f"operators of {library.mode} correct earlier ones, whose file has the same name. "
                "Fit the two tables together."
            )
        columns = OperatorColumns.of(library.operators)
        about = {
            "format_version": FORMAT_VERSION,
            "mode": library.mode._asdict(),
            "host": library.host,
            "base": None if library.base is None else library.base.source.mode._asdict(),
            "law": asdict(self.law),
            "columns": FIELDS,
            "words": columns.words,
            "features": FEATURES,
            "starts": {name: forest.start for name, forest in library.forests.items()},
        }
        text = json.dumps(about, separators=(",", ":"), allow_nan=False)
        arrays = {
            "about": np.array(text),
            "operators": columns.cells,
            "carried": np.sort(columns.places_of([*library.carried])),
            "batch_sizes": library.batch_sizes,
            "log_ms": library.log_ms,
            "host_ms": library.host_ms,
        }
        for name, forest in library.forests.items():
            arrays |= {f"{name}.{key}": getattr(forest, key) for key in NODE_ARRAYS}
        return arrays if library.expected is None else arrays | {"expected": library.expected}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], measured: Callable[[DeviceMode], LayerModel | None]
    ) -> LayerModel:
        """Read `to_arrays`; `measured` gives the layer model of the mode that its base was measured in.

        ArtifactError if it is of another version, or its trees have other features; LookupError, TypeError, ValueError
        or AttributeError if it is damaged, or its base is unknown.
        """
        about = json.loads(str(arrays["about"]))
        if about["format_version"] != FORMAT_VERSION:
            raise ArtifactError(
                f"it has format version {about['format_version']!r}; this epochcast reads {FORMAT_VERSION}. "
                "Refit it with `epochcast fit`."
            )
        operators = OperatorColumns.from_rows(about["columns"], arrays["operators"], about["words"])
        sizes, log_ms, host_ms = arrays["batch_sizes"], arrays["log_ms"], arrays["host_ms"]
        expected, shape = arrays.get("expected"), (len(operators), sizes.size)
        has_times = np.isfinite(log_ms).any(axis=1).all() and (sizes > 0).all()
        if not has_times or {log_ms.shape, (*host_ms.shape, sizes.size)} != {shape}:
            raise ValueError("an operator has no time")
        if expected is not None and expected.shape != shape:
            raise ValueError("an operator has no expected time")
        forests = {
            name: Forest.of(about["features"], start, {key: arrays[f"{name}.{key}"] for key in NODE_ARRAYS})
            for name, start in about["starts"].items()
        }
        mode = DeviceMode(**about["mode"])
        carried = frozenset(operators[i] for i in arrays["carried"].tolist())
        library = OperatorLibrary(
            mode, operators, sizes, log_ms, host_ms, about["host"], forests, expected, carried=carried
        )
        if about["base"] is not None:
            base = measured(DeviceMode(**about["base"]))
            if base is None:
                raise ValueError(f"the base {about['base']} is missing")
            library = library.on_base(CarriedOver(base.library, mode))
        return cls(library, SummingLaw.from_json(about["law"]))

    def packed(self) -> bytes:
        """`to_arrays` compressed, with times to a hundredth of a percent, as far as they repeat at best."""
        file, arrays = io.BytesIO(), dict[str, Any](self.to_arrays())
        for name in arrays:
            if digits := _DIGITS.get(name.rpartition(".")[2]):
                whole = np.rint(arrays[name] * 10.0**digits)
                arrays[name] = np.where(np.isnan(whole), UNKNOWN, whole).astype(np.int32)
        np.savez_compressed(file, **arrays)
        return file.getvalue()

    @classmethod
    def unpacked(
        cls, content: bytes, path: Path, measured: Callable[[DeviceMode], LayerModel | None]
    ) -> LayerModel:
        """Read `packed`, the content of the file at `path`; `measured` as of `from_arrays`.

        ArtifactError if it is damaged or of another version, or its trees have other features.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                arrays = dict(stored)
            for name, whole in arrays.items():
                if digits := _DIGITS.get(name.rpartition(".")[2]):
                    arrays[name] = np.where(whole == UNKNOWN, np.nan, whole / 10.0**digits)
            return cls.from_arrays(arrays, measured)
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error}") from error
        except (OSError, EOFError, LookupError, TypeError, ValueError, AttributeError, BadZipFile) as error:
            raise ArtifactError(
                f"{path} is a damaged operator library ({error!r}). Refit it with `epochcast fit`."
            ) from error
