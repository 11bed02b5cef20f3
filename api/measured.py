"""Measurements that come with a question, checked and fitted: nothing is stored.

Called by the routes in a thread; calls the intake's checks and the core's own_measurements.
"""

from typing import TYPE_CHECKING, Any

from api.store.intake import rows_of
from api.store.upload_tables import table_of_rows
from predictor.model import Model

if TYPE_CHECKING:
    from predictor.own_measurements import OwnMeasurements

__all__ = ["measured"]


def measured(rows: list[dict[str, Any]], model: Model) -> "OwnMeasurements | None":
    """Fit rows of a measurement table on top of the model; None if there are none.

    Raises
    ------
    DataError, SchemaError, UnknownGpuError
        If a row is wrong, which the message names, or they hold nothing to predict from.
    """
    if not rows:
        return None
    from predictor.own_measurements import OwnMeasurements

    frame, _ = rows_of(table_of_rows(rows))
    return OwnMeasurements.of(frame, model)
