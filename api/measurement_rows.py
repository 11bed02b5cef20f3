"""The rows of a measurement table as the OpenAPI document describes them, from the columns' own declaration."""

from typing import Any

from pydantic import BaseModel, Field, create_model

from predictor.measurements.schema import COLUMNS, Column

__all__ = ["FoundMeasurements", "MeasurementRow", "MeasurementRows"]

_TYPES: dict[str, type] = {"count": int, "amount": float, "time": float, "flag": bool}


def _field(column: Column) -> tuple[Any, Any]:
    kind: Any = _TYPES.get(column.form, str)
    about = f"{column.about}, {column.unit}" if column.unit else column.about
    if column.required:
        return kind, Field(description=about)
    return kind | None, Field(None, description=about)


_COLUMNS: dict[str, Any] = {column.name: _field(column) for column in COLUMNS}

MeasurementRow = create_model(
    "MeasurementRow",
    __doc__="A measurement; what is unknown is left out.",
    **_COLUMNS,
)


class MeasurementRows(BaseModel):
    """Measurements to be stored."""

    rows: list[MeasurementRow]  # type: ignore[valid-type]


StoredMeasurement = create_model(
    "StoredMeasurement",
    __base__=MeasurementRow,
    __doc__="A measurement in the store, with who sent it first.",
    id=(int, ...),
    upload=(int, Field(description="Number of the upload that brought it.")),
    key=(str, Field(description="Name of the API key that sent it.")),
    received_at=(str, Field(description="ISO 8601 in UTC.")),
)


class FoundMeasurements(BaseModel):
    """A page of stored measurements."""

    rows: list[StoredMeasurement]  # type: ignore[valid-type]
    next: str | None = Field(description="The address of the next page; null on the last.")
