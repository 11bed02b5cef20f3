"""Importers of published measurements: other people's tables in our form.

Adding one is one file, one line. The tables are not part of epochcast: they are found through a path, or
`$EPOCHCAST_PUBLISHED_DATA`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.errors import DataError, nearest
from predictor.files import published_data_root
from predictor.measurements.published.common import Importer, ImportReport, Provenance, published_file
from predictor.measurements.published.profet_profiles import (
    KERNEL_TIME_PREFIX,
    import_operator_profiles,
    published_kernel_times,
)
from predictor.measurements.published.published_cnns import published_layer_tables

if TYPE_CHECKING:
    import pandas as pd

from predictor.measurements.published import deepbench, justus, lambda_tf, neusight, profet, pytorch, timm

__all__ = [
    "IMPORTERS",
    "KERNEL_TIME_PREFIX",
    "PROVENANCE",
    "ImportReport",
    "Importer",
    "Provenance",
    "import_measurements",
    "import_operator_profiles",
    "load_published",
    "published_kernel_times",
    "published_layer_tables",
]

IMPORTERS: dict[str, Importer] = {
    "profet": profet.IMPORTER,
    "justus": justus.IMPORTER,
    "neusight": neusight.IMPORTER,
    "deepbench": deepbench.IMPORTER,
    "lambda-tf": lambda_tf.IMPORTER,
    "timm": timm.IMPORTER,
    "pytorch": pytorch.IMPORTER,
}

PROVENANCE: dict[str, Provenance] = {name: importer.provenance for name, importer in IMPORTERS.items()}


def import_measurements(
    name: str, path: str | os.PathLike[str] | None = None
) -> tuple[pd.DataFrame, ImportReport]:
    """Import one published data set as a measurement table.

    Parameters
    ----------
    name : str
        A key of `IMPORTERS`.
    path : path, optional
        The published table, or the folder that holds it; without it, `$EPOCHCAST_PUBLISHED_DATA`.

    Returns
    -------
    DataFrame, ImportReport
        The measurement table (`predictor.measurements.table`), and what became of each row.

    Raises
    ------
    DataError
        If the importer or the file does not exist.
    SchemaError
        If the table has not the form that the importer reads.
    """
    if name not in IMPORTERS:
        raise DataError(
            f"there is no importer {name!r}. Nearest: {nearest(name, IMPORTERS)}; "
            f"all: {', '.join(IMPORTERS)}."
        )
    importer = IMPORTERS[name]
    place = Path(path) if path is not None else published_data_root()
    return importer.read(published_file(place, importer.table))


def load_published(
    folder: str | os.PathLike[str] | None = None, names: Iterable[str] | None = None
) -> pd.DataFrame:
    """Import the published data sets of these names (all unless given) into one measurement table."""
    import pandas as pd

    root = published_data_root(folder)
    frames = [import_measurements(name, root)[0] for name in (names if names is not None else IMPORTERS)]
    return pd.concat(frames, ignore_index=True)
