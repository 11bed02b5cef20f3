"""The measurement store as the commands see it: opened by URL, with a plain answer where its packages are missing.

Called by the commands `keys` and `fit --store`; calls `api.store`, which a bare `pip install epochcast` cannot load.
"""

from typing import TYPE_CHECKING

from predictor.errors import BackendUnavailableError

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Engine

__all__ = ["open_store", "uploaded_targets"]


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


def uploaded_targets(url: str) -> "pd.DataFrame":
    """Read the whole CNNs that were uploaded, on GPUs; single layers and CPUs are not what the model is fitted on.

    Raises
    ------
    DataError
        If there is none.
    """
    engine = open_store(url)
    try:
        from api.store.measurements import stored_frame

        frame = stored_frame(engine, {"kind": "target"})
    finally:
        engine.dispose()
    return frame[frame["device_kind"] != "cpu"].reset_index(drop=True)
