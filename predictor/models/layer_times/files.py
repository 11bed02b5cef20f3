"""Operator libraries and their fitted weights in files, for predictions without the measurement table.

They lie beside a model file `NAME.json`, in the folder `NAME_operators`: arrays as of `numpy.load`, without pickles, in
one file per GPU and mode. All are read with the model file, which holds their digests, and unpacked when first needed:
a model never mixes with another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.catalogue.devices import Gpu, design_of, find_gpu, is_cpu
from predictor.catalogue.modes import Mode
from predictor.errors import SchemaError
from predictor.files import content_of, is_written_through, replace_file
from predictor.models.layer_times.times import DeviceMode, cards_of_the_chip

if TYPE_CHECKING:
    from predictor.models.layer_times.law import SummingLaw
    from predictor.models.layer_times.library import OperatorLibrary, OperatorSource
    from predictor.models.layer_times.model import LayerModel


@dataclass(slots=True, eq=False)
class LayerModels:
    """Layer models by GPU and mode: those in `added` first, then those in `files`.

    `files` holds the content of the files of `folder` by name (`names`), all of one model; `unpacked` those that were
    needed, and `carried` what was carried over to other cards of their chips.
    """

    folder: Path | None = None
    added: dict[DeviceMode, LayerModel] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    unpacked: dict[str, LayerModel] = field(default_factory=dict)
    carried: dict[DeviceMode, LayerModel] = field(default_factory=dict, init=False)
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = frozenset(self.files)

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
        return [self._carried(mode) if self.added or _chip_in(mode, self.names) else None for mode in modes]

    def _carried(self, mode: DeviceMode) -> LayerModel | None:
        own = self.measured(mode) or self.carried.get(mode)
        if own is not None:
            return own
        sources = [self.measured(card) for card in cards_of_the_chip(mode)]
        source = max(filter(None, sources), key=lambda model: _likeness(model.library, mode), default=None)
        if source is None:
            return None
        self.carried[mode] = source.carried_to(mode)
        return self.carried[mode]

    def measured(self, mode: DeviceMode) -> LayerModel | None:
        """The layer model of this GPU and mode; None if none of its operators was measured."""
        return self.added.get(mode) or self._in_file(_file_name(mode))

    def _in_file(self, name: str) -> LayerModel | None:
        if self.folder is None or name not in self.files:
            return None
        if name not in self.unpacked:
            from predictor.models.layer_times.model import LayerModel  # for answers that need one alone

            beside = replace(self, added={})  # a base lies beside it
            self.unpacked[name] = LayerModel.unpacked(self.files[name], self.folder / name, beside.measured)
        return self.unpacked[name]

    def in_files(self) -> list[LayerModel]:
        """Layer models of all files."""
        return [model for model in map(self._in_file, sorted(self.files)) if model is not None]

    def measured_library(self, mode: DeviceMode) -> OperatorLibrary | None:
        """The operators measured on this GPU in this mode; None where there are none."""
        model = self.measured(mode)
        return None if model is None else model.measured_library

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
