"""`epochcast serve`: the service, by default only for this machine."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from epochcast.commands import options as o

_BACKLOG = 64  # connections taken at once between two turns of the event loop; 1,000 kept it busy for seconds
_STOP_S = 8  # for answers in work after SIGTERM: containers are killed after 10 s
_START_S = (
    60  # for a worker to show that it lives: on a busy machine its imports take longer than uvicorn's 5 s
)
_KEEP_ALIVE_S = 75  # longer than proxies keep connections (60 s), so that none is closed as a request arrives


def serve_command(
    host: str = o.option("Address to listen on; 0.0.0.0 is all of this machine's.", default="127.0.0.1"),
    port: int = o.option("Port to listen on.", default=8000, min=1, max=65535),
    store: str | None = o.option(
        "Where measurements and keys are kept; '' for a service without uploads.",
        "$EPOCHCAST_STORE, else sqlite:///epochcast.db",
        metavar="URL",
    ),
    model: Path | None = o.option(
        "A model that `fit` wrote; if it is replaced, the service reads it again.",
        "$EPOCHCAST_MODEL, else the shipped model",
    ),
    workers: int = o.option("Processes that answer.", default=1, min=1, max=64),
) -> None:
    """Serve predictions, comparisons and measurements over HTTP (docs/api.md)."""
    from predictor.errors import BackendUnavailableError

    try:
        import uvicorn

        from api.connections import serve
        from api.hosts import warn_without_proxy
        from api.main import create_app  # noqa: F401 - names a missing package before a server starts
        from api.observability import logging_json
        from api.settings import Settings
    except ModuleNotFoundError as error:
        message = f"{error.name} is not installed, which the service needs: pip install 'epochcast[api]'."
        raise BackendUnavailableError(message) from None
    settings = {"EPOCHCAST_STORE": store, "EPOCHCAST_MODEL": None if model is None else str(model.resolve())}
    os.environ |= {name: value for name, value in settings.items() if value is not None}  # for workers
    _check()
    _check_port(host, port)
    if workers > 1 and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:  # where they tell their metrics together
        folder = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="epochcast-metrics-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with logging_json(Settings().log_level):  # once for all workers
        warn_without_proxy(host)
    serve(uvicorn.Config("api.main:create_app", host=host, port=port, workers=workers, **server_options()))


def server_options() -> dict[str, Any]:
    """How the service runs, wherever it listens."""
    from api.observability import LOGGING

    return {
        "factory": True,
        "http": "api.connections:Connection",
        "log_config": LOGGING,
        "access_log": False,
        "server_header": False,
        "backlog": _BACKLOG,
        "timeout_keep_alive": _KEEP_ALIVE_S,
        "timeout_graceful_shutdown": _STOP_S,
        "timeout_worker_healthcheck": _START_S,
    }


def _check_port(host: str, port: int) -> None:
    """Listen for a moment, so that a port in use is one line here and not a server's traceback."""
    import socket

    from predictor.errors import SchemaError, ServiceError

    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            if os.name == "posix":  # as servers do: connections that end do not block a port
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        raise SchemaError(
            f"--host {host!r} is not an address ({error.strerror}). Pass one of this machine's, such as 127.0.0.1."
        ) from None
    except PermissionError:
        message = f"port {port} needs more rights than you have. Pass another --port, such as 8000."
        raise ServiceError(message) from None
    except OSError as error:
        raise ServiceError(
            f"cannot listen on {host}, port {port}: {error.strerror}. Is a service running there already? Pass another "
            f"--port, such as {port + 1 if port < 65535 else 8000}."
        ) from None


def _check() -> None:
    """Make the application once, so that a wrong setting is one line here and not a server's traceback."""
    from pydantic import ValidationError

    from api.main import create_app
    from predictor.errors import SchemaError

    try:
        app = create_app()
    except ValidationError as error:
        first = error.errors()[0]
        name = "EPOCHCAST_" + "_".join(str(name_) for name_ in first["loc"]).upper()
        message = f"{name} is {first['input']!r}: {first['msg']}. Set it right, or leave it out."
        raise SchemaError(message) from None
    if app.state.store is not None:
        app.state.store.dispose()
