"""The measurement store as the commands see it: opened by URL, with a plain answer where its packages are missing."""

from typing import TYPE_CHECKING

from predictor.errors import BackendUnavailableError

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Engine

__all__ = ["open_store", "uploaded_measurements"]


def open_store(url: str) -> "Engine":
    """Open a store.

    Raises
    ------
    BackendUnavailableError
        If SQLAlchemy, Alembic or the database's driver is not installed.
    SchemaError, StoreError
        As `api.store.engine.open_store`.
    """
    try:
        from api.store.engine import open_store as open_by_url

        return open_by_url(url)
    except ModuleNotFoundError as error:
        extra = "postgresql" if error.name == "psycopg" else "api"
        raise BackendUnavailableError(
            f"{error.name} is not installed, which the measurement store needs: pip install 'epochcast[{extra}]'."
        ) from None


def uploaded_measurements(url: str) -> "pd.DataFrame":
    """Read all that was uploaded, as a checked measurement table.

    Raises
    ------
    DataError
        If there is nothing.
    """
    engine = open_store(url)
    try:
        from api.store.measurements import stored_frame

        return stored_frame(engine)
    finally:
        engine.dispose()
