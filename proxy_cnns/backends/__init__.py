"""The frameworks that run CNNs for the instrument: one file and one line of `BACKENDS` each."""

from importlib import import_module
from typing import cast

from predictor.errors import SchemaError, nearest
from proxy_cnns.configuration import Backend

BACKENDS = {
    "pytorch": "proxy_cnns.backends.torch.backend:TorchBackend",
    "chainer": "proxy_cnns.backends.chainer.backend:ChainerBackend",
}
"""Module and class of each framework's backend."""


def check_framework(framework: str) -> None:
    """Refuse a framework that has no backend; SchemaError with those that have."""
    if framework not in BACKENDS:
        raise SchemaError(
            f"no backend is called {framework!r}. Nearest: {nearest(framework, BACKENDS)}; "
            f"known: {', '.join(BACKENDS)}."
        )


def load_backend(framework: str, device: str, path: str | None = None) -> Backend:
    """Open a framework on a device, ``cpu`` or ``cuda:N``.

    `path`: module and class of a backend that is not in `BACKENDS`. SchemaError if no backend is called so;
    BackendUnavailableError if the framework is not installed, or there is no such device.
    """
    if path is None:
        check_framework(framework)
        path = BACKENDS[framework]
    module, _, name = path.partition(":")
    return cast("Backend", getattr(import_module(module), name)(device))
