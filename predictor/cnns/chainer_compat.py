"""Imports Chainer 7.8.1 with a current numpy and setuptools, without changing numpy.

Chainer's own import fails for two reasons: its environment check imports removed packages (``pkg_resources``,
``numpy.distutils``), and two of its functions use names that numpy removed: ``as_strided`` uses ``numpy.sctypes`` at
import and at run time, a helper of ``resize_images`` uses ``numpy.float``. Both get a proxy of numpy that has these
names. `ChainerFinder` does so wherever ``import chainer`` is written; importing epochcast adds it.
"""

import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any

import numpy

from predictor.errors import BackendUnavailableError

HOW_TO_INSTALL = (
    "pip install 'epochcast[chainer]' (first "
    "pip install 'setuptools>=70.1,<82' wheel, then pip install --no-build-isolation chainer==7.8.1)"
)

_SCTYPES: dict[str, list[type]] = {
    "int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64],
    "uint": [numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64],
    "float": [numpy.float16, numpy.float32, numpy.float64, numpy.longdouble],
    "complex": [numpy.complex64, numpy.complex128, numpy.clongdouble],
    "others": [bool, object, bytes, str, numpy.void],
}


class ChainerFinder:
    """Finder for `sys.meta_path` that imports Chainer beside a current numpy; it finds nothing else."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> ModuleSpec | None:
        """Place where Chainer is installed; None for every other module."""
        spec = PathFinder.find_spec(name) if name == "chainer" else None
        if spec is not None and spec.origin is not None:
            spec.loader = _ChainerLoader(name, spec.origin)
        return spec


class _ChainerLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        for name in [name for name in sys.modules if name.startswith("chainer.")]:
            del sys.modules[name]  # parts of an import that failed
        check = ModuleType("chainer._environment_check")
        check.check = lambda: None  # type: ignore[attr-defined]  # the only attribute that Chainer uses
        sys.modules[check.__name__] = check
        with _lent_sctypes(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no GPU, no iDeep, old syntax: the user cannot fix these
            super().exec_module(module)
        _give_dropped_names()


def install() -> ModuleType:
    """Import Chainer, if it is not yet imported, and return it.

    BackendUnavailableError if Chainer is not installed.
    """
    if ChainerFinder not in sys.meta_path:
        sys.meta_path.insert(0, ChainerFinder)
    try:
        return importlib.import_module("chainer")
    except ImportError as error:
        raise BackendUnavailableError(f"Chainer is not installed ({error}): {HOW_TO_INSTALL}") from error


class _NumpyAnd(ModuleType):
    """numpy with some names added, for one module of Chainer; everything else is numpy's own."""

    def __init__(self, **names: Any) -> None:
        super().__init__("numpy")
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)


def _give_dropped_names() -> None:
    """Give the functions that use removed names a numpy that has them.

    Only the helper of `resize_images`, because the rest of that module compares modules with numpy itself.
    """
    if "sctypes" not in vars(numpy):
        strided = importlib.import_module("chainer.functions.array.as_strided")
        vars(strided)["np"] = _NumpyAnd(sctypes=_SCTYPES)
    if "float" not in vars(numpy):
        resize = importlib.import_module("chainer.functions.array.resize_images")
        helper: Any = vars(resize)["compute_indices_and_weights"]
        names = vars(resize) | {"numpy": _NumpyAnd(float=float)}
        vars(resize)[helper.__name__] = FunctionType(
            helper.__code__, names, helper.__name__, helper.__defaults__
        )


@contextmanager
def _lent_sctypes() -> Iterator[None]:
    """Give numpy its old `sctypes` for a while, where it has none."""
    lend = "sctypes" not in vars(numpy)
    if lend:
        vars(numpy)["sctypes"] = _SCTYPES
    try:
        yield
    finally:
        if lend:
            del vars(numpy)["sctypes"]
