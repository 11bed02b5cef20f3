"""Settings of the service, read from the environment: `EPOCHCAST_` and the name of a field."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from api.caching import KEPT_ANSWER_BYTES

_Seconds = Annotated[float, Field(gt=0, le=3600)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Settings(BaseSettings):
    """Settings of the service; docs/api.md lists them with their defaults."""

    model_config = SettingsConfigDict(env_prefix="EPOCHCAST_", extra="ignore", str_max_length=2000)

    store: str = "sqlite:///epochcast.db"
    """Database of measurements and keys; empty: a service without a store, which only answers."""

    model: str | None = None
    """A model file that `epochcast fit` wrote; the shipped one by default."""

    offers: str | None = None
    """A price file; the shipped one by default."""

    max_body_bytes: Annotated[int, Field(ge=1024, le=2**30)] = 32 * 2**20
    """Of any request; routes set lower limits of their own."""

    max_bytes_in_work: Annotated[int, Field(ge=2**20, le=2**40)] = 256 * 2**20
    """Of the bodies of all requests in work together."""

    kept_answer_bytes: Annotated[int, Field(ge=2**20, le=2**40)] = KEPT_ANSWER_BYTES
    """Of answers that are kept for whoever asks the same again; the oldest go first."""

    max_rows: _Count = 20_000
    """Rows of one answer."""

    timeout_s: _Seconds = 90.0
    """What sending a body may take at most, and what its answer may take after that."""

    body_timeout_s: _Seconds = 5.0
    """What sending a body may take, and a second more for each 64 KiB that came."""

    take_timeout_s: _Seconds = 30.0
    """How long a piece of an answer, 64 KiB, may lie untaken."""

    rate_per_s: Annotated[float, Field(ge=0, le=1e6)] = 50.0
    """Requests per second of one address, and of one API key, that come while others of it are in work; 0: no limit."""

    rate_burst: _Count = 200
    """Requests at once before the rate counts."""

    max_concurrent: _Count = 256
    """Requests in work, their bodies in; further ones get 503."""

    head_timeout_s: _Seconds = 5.0
    """What sending a request's line and headers may take."""

    max_per_address: _Count = 64
    """Connections of one address, unless it is a proxy's; further ones are closed."""

    max_connections: _Count = 1000
    """Open connections; above it, those that have waited longest without a request are closed."""

    queue_wait_s: _Seconds = 60.0
    """How long a request may wait for its turn at the model, the store or the reader of files before it gets 503."""

    hosts: tuple[str, ...] = ()
    """Names by which the service may be asked, as a JSON list, beside any address and localhost; `*` is any."""

    cors_origins: tuple[str, ...] = ()
    """Web pages of other origins that may ask, as a JSON list; none by default."""

    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
