"""Measurements that come with a question, checked and fitted: nothing is stored."""

from typing import TYPE_CHECKING, Any

from api.store.intake import rows_of
from api.store.upload_tables import Table, table_of_columns, table_of_rows
from predictor.models.served import Model

if TYPE_CHECKING:
    from predictor.answers.question import OwnMeasurements

__all__ = ["measured", "table_sent"]


Rows = list[dict[str, Any]]
Columns = dict[str, list[Any]]


def table_sent(given: Rows | Columns) -> Table:
    """Take apart measurements as a question brings them, row by row or column by column; SchemaError."""
    return table_of_columns(given) if isinstance(given, dict) else table_of_rows(given)


def measured(given: Rows | Columns, model: Model) -> "OwnMeasurements | None":
    """Fit rows of a measurement table on top of the model; None if there are none.

    Raises
    ------
    DataError, SchemaError, UnknownGpuError
        If a row is wrong, which the message names, or they hold nothing to predict from.
    """
    if not given:
        return None
    from predictor.answers.question import OwnMeasurements

    frame, _ = rows_of(table_sent(given))
    return OwnMeasurements.of(frame, model)
