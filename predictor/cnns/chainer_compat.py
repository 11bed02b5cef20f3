"""Lets Chainer 7.8.1 be imported beside a current numpy and setuptools; numpy is left as it was.

To be called before the first ``import chainer``. Two things are in the way: Chainer's environment check imports
packages that are gone (``pkg_resources``, ``numpy.distutils``), and two of its functions ask for names that numpy
dropped: ``as_strided`` for ``numpy.sctypes``, when imported and when run, one helper of ``resize_images`` for
``numpy.float``. Each gets a view of numpy of its own that has them.
"""

import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy

from predictor.errors import BackendUnavailableError

__all__ = ["install"]

_SCTYPES: dict[str, list[type]] = {
    "int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64],
    "uint": [numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64],
    "float": [numpy.float16, numpy.float32, numpy.float64, numpy.longdouble],
    "complex": [numpy.complex64, numpy.complex128, numpy.clongdouble],
    "others": [bool, object, bytes, str, numpy.void],
}


def install() -> ModuleType:
    """Import Chainer, if it is not yet imported, and return it.

    Raises
    ------
    BackendUnavailableError
        If Chainer is not installed.
    """
    if "chainer" in sys.modules:
        return sys.modules["chainer"]
    check = ModuleType("chainer._environment_check")
    check.check = lambda: None  # type: ignore[attr-defined]  # all that Chainer asks of it
    sys.modules[check.__name__] = check
    try:
        with _lent_sctypes(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no GPU, no iDeep, old syntax: not the user's to repair
            chainer = importlib.import_module("chainer")
    except ImportError as error:
        del sys.modules[check.__name__]
        raise BackendUnavailableError(
            f"Chainer is not installed ({error}): pip install 'epochcast[chainer]' (first "
            "pip install 'setuptools>=70.1,<82' wheel, then pip install --no-build-isolation chainer==7.8.1)"
        ) from error
    _give_dropped_names()
    return chainer


class _NumpyAnd(ModuleType):
    """numpy with some names added, for one module of Chainer; everything else is numpy's own."""

    def __init__(self, **names: Any) -> None:
        super().__init__("numpy")
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)


def _give_dropped_names() -> None:
    """Let the functions that ask for dropped names find them when they run.

    Of `resize_images` the helper alone, because the rest of that module compares modules with numpy itself.
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
