"""Operator libraries and their fitted weights in files, for predictions without the measurement table.

They lie beside a model file `NAME.json`, in the folder `NAME_operators`: arrays as of `numpy.load`, without pickles, in
one file per GPU and mode. All are read with the model file, which holds their digests, and unpacked when first needed:
a model never mixes with another.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, design_of, find_gpu, is_cpu
from predictor.catalogue.modes import Mode
from predictor.errors import ArtifactError, SchemaError
from predictor.files import content_of, is_written_through, replace_file
from predictor.models.base import Case, table_of
from predictor.models.layer_times.interpolation import FEATURES, NODE_ARRAYS, Forest
from predictor.models.layer_times.law import OperatorTotals, SummingLaw, layer_sums
from predictor.models.layer_times.library import (
    CarriedOver,
    OperatorLibrary,
    OperatorSource,
    cards_of_the_chip,
)
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


@dataclass(slots=True, eq=False)
class LayerModels:
    """Layer models by GPU and mode: those in `added` first, then those in `files`.

    `files` holds the content of the files of `folder` by name, all of one model; `unpacked` those that were needed,
    and `carried` what was carried over to other cards of their chips.
    """

    folder: Path | None = None
    added: dict[DeviceMode, LayerModel] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    unpacked: dict[str, LayerModel] = field(default_factory=dict)
    carried: dict[DeviceMode, LayerModel] = field(default_factory=dict, init=False)

    @classmethod
    def beside(cls, model_file: Path, digests: Mapping[str, str]) -> LayerModels:
        """The layer models in the folder beside a model file, by their SHA-256 as `save` gives them.

        ArtifactError if a file is missing, or of another model.
        """
        folder = _folder_of(model_file)
        files = {name: content_of(folder / name, model_file, digest) for name, digest in digests.items()}
        return cls(folder, files=files)

    def find(self, mode: DeviceMode) -> LayerModel | None:
        """The layer model of this GPU and mode: measured, or else carried over from another card of its chip."""
        return self.find_each([mode])[0]

    def find_each(self, modes: Iterable[DeviceMode]) -> list[LayerModel | None]:
        """`find` of each mode, in their order, with one look at the folder."""
        names = frozenset(self.files)
        return [self._carried(mode) if self.added or _chip_in(mode, names) else None for mode in modes]

    def _carried(self, mode: DeviceMode) -> LayerModel | None:
        own = self.measured(mode) or self.carried.get(mode)
        if own is not None:
            return own
        sources = [self.measured(card) for card in cards_of_the_chip(mode)]
        source = max(filter(None, sources), key=lambda model: _likeness(model.library, mode), default=None)
        if source is None:
            return None
        law = source.law.borrowed(str(source.library.mode))
        self.carried[mode] = LayerModel(CarriedOver(source.library, mode), law)
        return self.carried[mode]

    def measured(self, mode: DeviceMode) -> LayerModel | None:
        """The layer model of this GPU and mode; None if none of its operators was measured."""
        return self.added.get(mode) or self._in_file(_file_name(mode))

    def _in_file(self, name: str) -> LayerModel | None:
        if self.folder is None or name not in self.files:
            return None
        if name not in self.unpacked:
            beside = replace(self, added={})  # a base lies beside it
            self.unpacked[name] = LayerModel.unpacked(self.files[name], self.folder / name, beside.measured)
        return self.unpacked[name]

    def in_files(self) -> list[LayerModel]:
        """Layer models of all files."""
        return [model for model in map(self._in_file, sorted(self.files)) if model is not None]

    def measured_library(self, mode: DeviceMode) -> OperatorLibrary | None:
        """The operators measured on this GPU in this mode; None where there are none."""
        model = self.measured(mode)
        return model.library if model is not None and isinstance(model.library, OperatorLibrary) else None

    def nearest_law(self, mode: DeviceMode) -> SummingLaw | None:
        """The weights of this mode, else those of the most similar mode; None if there is none.

        Only modes of the same framework qualify, and CPUs and GPUs never share weights. The framework decides more
        than the GPU how an operator in a CNN differs from a single one: on an H200, weights of another precision and
        memory format predicted whole CNNs better than weights of 1.
        """
        own = self.measured(mode)
        if own is not None:
            return own.law
        models = [*self.added.values(), *self.in_files()]
        laws = {model.library.mode: model.law for model in models if model.law.is_fitted}
        lender = most_similar(mode, laws)
        return None if lender is None else laws[lender].borrowed(str(lender))

    def with_more(self, models: Iterable[LayerModel]) -> LayerModels:
        """These layer models with `models` added, which take precedence."""
        return replace(self, added=self.added | {model.library.mode: model for model in models})

    def save(self, model_file: Path) -> dict[str, str]:
        """Write all into the folder beside a model file; the SHA-256 of each file by its name."""
        folder = _folder_of(model_file)
        files = {**self.files, **{_file_name(mode): model.packed() for mode, model in self.added.items()}}
        if files:
            if is_written_through(model_file):
                raise SchemaError(
                    f"the model has operator libraries, which lie in a folder beside its file, and {model_file} is no "
                    "file. Write it to one such as model.json."
                )
            folder.mkdir(exist_ok=True)
        for name, content in files.items():
            if not (folder / name).is_file() or (folder / name).read_bytes() != content:
                replace_file(folder / name, content)
        return {name: sha256(content).hexdigest() for name, content in sorted(files.items())}

    def modes(self) -> list[str]:
        """Names of the measured modes, as in messages: file names without endings."""
        names = {_file_name(mode) for mode in self.added} | set(self.files)
        return sorted(name.removesuffix(".npz") for name in names)

    def n_gpus(self) -> int:
        """Number of GPUs with measured operators."""
        return len({name.split("-")[0] for name in self.modes()})  # as `_file_name` joins them


def library_mode(gpu: Gpu, mode: Mode) -> DeviceMode:
    """GPU and mode that name the operator library of a prediction."""
    return DeviceMode(gpu.name, mode.framework, mode.precision, mode.memory_format, mode.autotune)


def most_similar(mode: DeviceMode, candidates: Iterable[DeviceMode]) -> DeviceMode | None:
    """The mode of the same framework, on the same kind of device, that shares most fields, chip included; else None."""

    def shared(candidate: DeviceMode) -> int:
        chip = not is_cpu(mode.gpu) and find_gpu(candidate.gpu).chip == find_gpu(mode.gpu).chip
        return chip + sum(a == b for a, b in zip(candidate, mode, strict=True))

    kind = mode.framework, is_cpu(mode.gpu)
    alike = [lender for lender in candidates if (lender.framework, is_cpu(lender.gpu)) == kind]
    return max(alike, key=shared, default=None)


def _folder_of(model_file: Path) -> Path:
    return model_file.with_name(f"{model_file.stem}_operators")


@lru_cache(maxsize=4096)
def _file_name(mode: DeviceMode) -> str:
    words = [*mode[:4], *(["autotune"] if mode.autotune else [])]
    return "-".join(re.sub("[^a-z0-9]+", "_", word.casefold()).strip("_") for word in words) + ".npz"


@lru_cache(maxsize=4096)
def _chip_in(mode: DeviceMode, names: frozenset[str]) -> bool:
    """Whether a file of this mode, of this card or another of its chip, is among these."""
    return any(_file_name(card_mode) in names for card_mode in (mode, *cards_of_the_chip(mode)))


def _likeness(library: OperatorSource, mode: DeviceMode) -> tuple[bool, int]:
    """Whether the cards compute alike, then the number of measured times."""
    return design_of(find_gpu(library.mode.gpu)) == design_of(find_gpu(mode.gpu)), library.n_measured
