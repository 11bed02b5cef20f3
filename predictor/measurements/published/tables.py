"""From a folder of published measurements to the feature table that scenarios run on."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OPERATORS_PER_GPU", "SCENARIO_SOURCES", "published_features"]

SCENARIO_SOURCES = ("profet", "lambda-tf", "justus", "deepbench")
"""Published data sets that the scenarios read: two of whole CNNs, two of single convolutions."""

OPERATORS_PER_GPU = 600
"""Single layers kept per source and GPU: enough to learn a GPU's rates from, few enough to fit in seconds."""


def published_features(
    folder: str | PathLike[str] | None = None,
    sources: Sequence[str] = SCENARIO_SOURCES,
    operators_per_gpu: int = OPERATORS_PER_GPU,
    seed: int = 0,
) -> pd.DataFrame:
    """Build the feature table of published measurements.

    Parameters
    ----------
    folder : path, optional
        Where the published tables lie; `$EPOCHCAST_PUBLISHED_DATA` by default.
    sources : sequence of str
        Importers to read (`predictor.measurements.published.IMPORTERS`).
    operators_per_gpu : int
        At most so many rows of single layers, drawn with `seed`, are kept of each source and GPU.
    seed : int

    Returns
    -------
    DataFrame
        As of `feature_table`; bad rows are left out, as the importers report, and so are
        CNNs whose layers are unpublished (four rows of PROFET's, most of timm's). PROFET's rows carry what its profiler
        gave, as `kernel_time_ms_<class>`.

    Raises
    ------
    DataError
        If the folder or a table is missing.
    """
    from predictor.measurements.features import feature_table
    from predictor.measurements.published import (
        load_published,
        published_kernel_times,
        published_layer_tables,
    )

    measurements = load_published(folder, sources)
    tables = published_layer_tables(folder)
    kept = _with_fewer_operators(measurements, operators_per_gpu, seed)
    features = feature_table(kept, lambda cnn, image_size: tables.get((cnn, image_size)))
    known = features[(features["kind"] == "operator") | features["layer_table"].notna()].reset_index(
        drop=True
    )
    if "profet" not in sources:
        return known
    return known.merge(
        published_kernel_times(folder), how="left", on=["gpu", "cnn", "image_size", "batch_size"]
    )


def _with_fewer_operators(measurements: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    import pandas as pd

    operators = measurements[measurements["kind"] == "operator"]
    if operators.empty:
        return measurements
    shuffled = operators.sample(frac=1.0, random_state=seed)
    chosen = shuffled.groupby(["source", "gpu"], sort=False).head(n)
    whole = measurements[measurements["kind"] != "operator"]
    return pd.concat([whole, chosen.sort_index()], ignore_index=True)
