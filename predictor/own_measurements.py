"""A user's own measurement table, used at once: its operators become a library, its targets anchors.

Called by `predictor.predict`; calls measurements and fitting_layers. Nothing is stored, and nobody has to fit by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from predictor.errors import DataError
from predictor.forecasts import Anchor
from predictor.layers import LayerTable
from predictor.modes import Mode

if TYPE_CHECKING:
    import pandas as pd

    from predictor.model import Model

__all__ = ["OwnMeasurements"]


@dataclass(frozen=True, slots=True, eq=False)
class OwnMeasurements:
    """A model that knows the table's operators, and the table's whole CNNs as records."""

    model: Model
    targets: tuple[Mapping[Any, Any], ...]

    @classmethod
    def of(cls, table: pd.DataFrame | str | PathLike[str], model: Model) -> OwnMeasurements:
        """Read a measurement table, and fit what its operators allow on top of `model`.

        Raises
        ------
        DataError, SchemaError
            If the table cannot be read, or holds neither operators nor CNNs as trained.
        """
        from predictor.fitting_layers import fit_layer_models
        from predictor.measurements import check_measurements, read_measurements

        frame = (
            read_measurements(table)
            if isinstance(table, str | PathLike)
            else check_measurements(table, "the measurements given")
        )
        trained = frame["pass"].fillna("training") == "training"
        targets = frame[(frame["kind"].fillna("target") == "target") & trained].to_dict("records")
        models = fit_layer_models(frame, model.layers)
        if not (models or targets):
            raise DataError(
                "the measurements hold neither operators nor CNNs as trained, so that they tell a prediction nothing. "
                "Measure some with `epochcast profile --preset quick`."
            )
        return cls(replace(model, layers=model.layers.with_more(models)), tuple(targets))

    def anchors(self, table: LayerTable, mode: Mode) -> tuple[Anchor, ...]:
        """The table's measurements of this very CNN, at its image size, in this mode."""
        return tuple(
            Anchor(str(row["gpu"]), int(row["batch_size"]), time_ms, int(row["image_size"]))
            for row in self.targets
            if (row["cnn"], row["image_size"]) == (table.cnn, table.image_size)
            and _same(row, mode)
            and (time_ms := _time_ms(row, mode)) is not None
        )


def _same(row: Mapping[Any, Any], mode: Mode) -> bool:
    """Whether a row was measured in this mode; what it does not say is taken as the default."""
    usual = Mode()
    words = ("framework", "precision", "memory_format", "autotune", "optimizer", "xla")
    return all(str(_known(row.get(word), getattr(usual, word))) == str(getattr(mode, word)) for word in words)


def _time_ms(row: Mapping[Any, Any], mode: Mode) -> float | None:
    """The iteration's time as captured or not; a captured one takes the GPU's time."""
    if _known(row.get("capture"), "eager") == mode.capture:
        return float(row["iteration_time_ms"])
    busy = _known(row.get("gpu_time_ms"), None)
    return float(busy) if busy is not None and mode.capture != "eager" else None


def _known(value: Any, default: Any) -> Any:
    missing = value is None or str(value) in ("", "<NA>", "nan")
    return default if missing else value
