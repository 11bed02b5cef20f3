"""Settings of the service, read from the environment: `EPOCHCAST_` and the name of a field."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from api.caching import KEPT_ANSWER_BYTES
from api.words import Range
from predictor.checks import SMALLEST


class Settings(BaseSettings):
    """Settings of the service; docs/api.md lists them with their defaults."""

    model_config = SettingsConfigDict(env_prefix="EPOCHCAST_", extra="ignore", str_max_length=2000)

    store: str = "sqlite:///epochcast.db"
    """Database of measurements and keys; empty: a service without a store, which only answers."""

    model: str | None = None
    """A model file that `epochcast fit` wrote; the shipped one by default."""

    offers: str | None = None
    """A price file; the shipped one by default."""

    kept_answer_bytes: Annotated[int, Range(2**20, 2**40)] = KEPT_ANSWER_BYTES
    """Of answers that are kept for whoever asks the same again; the oldest go first."""

    max_rows: Annotated[int, Range(1, 1_000_000)] = 20_000
    """Rows of one answer."""

    queue_wait_s: Annotated[float, Range(SMALLEST, 3600)] = 60.0
    """How long a request may wait for its turn at the model, the store or the reader of files before it gets 503."""

    hosts: tuple[str, ...] = ()
    """Names by which the service may be asked, as a JSON list, beside any address and localhost; `*` is any."""

    cors_origins: tuple[str, ...] = ()
    """Web pages of other origins that may ask, as a JSON list; none by default."""

    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
