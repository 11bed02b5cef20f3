"""Types of what the public functions take besides their options, for type checkers and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from predictor.catalogue.devices import Gpu
    from predictor.cnns.layer_table import LayerTable


class TorchModule(Protocol):
    """A `torch.nn.Module`, by what no other object has."""

    @property
    def named_parameters(self) -> Callable[..., Any]:
        """Weights by name."""


class ChainerChain(Protocol):
    """A `chainer.Chain`."""

    @property
    def namedparams(self) -> Callable[..., Any]:
        """Weights by name."""


class KerasModel(Protocol):
    """A `keras.Model`."""

    @property
    def trainable_variables(self) -> Any:
        """Weights that are trained."""


Cnn: TypeAlias = "str | PathLike[str] | LayerTable | TorchModule | ChainerChain | KerasModel"
"""A zoo name, a file, a layer table (also of `epochcast.record`), or the object itself."""

Cnns: TypeAlias = "Cnn | Sequence[Cnn]"
Gpus: TypeAlias = "str | Gpu | Sequence[str | Gpu]"
BatchSizes: TypeAlias = "SupportsIndex | str | Iterable[SupportsIndex | str]"
