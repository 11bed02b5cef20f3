"""Lets Chainer 7.8.1 be imported beside a current numpy and setuptools; numpy is left as it was.

Called before the first ``import chainer`` by whoever runs Chainer (`chainer_chain`, the Chainer backend, a
user's own script); calls nothing of ours but the error tree. Two things are in the way: Chainer's environment
check imports packages that are gone (``pkg_resources``, ``numpy.distutils``), and its ``as_strided`` asks for
``numpy.sctypes``, gone from numpy 2.
"""

import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

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
            warnings.simplefilter("ignore")  # no GPU here, no iDeep, old syntax: nothing for the user to mend
            return importlib.import_module("chainer")
    except ImportError as error:
        del sys.modules[check.__name__]
        raise BackendUnavailableError(
            "Chainer is not installed: pip install 'epochcast[chainer]' (first "
            "pip install 'setuptools>=70.1,<82' wheel, then pip install --no-build-isolation chainer==7.8.1)"
        ) from error


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
