"""Published measurements: other people's tables in our form.

Adding one is a `DataSet` of `DATA_SETS`, a map of our columns to its own. The tables are not part of epochcast: they
are found through a path, or `$EPOCHCAST_PUBLISHED_DATA`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.errors import DataError, nearest
from predictor.files import published_data_root
from predictor.measurements.features import feature_table
from predictor.measurements.published.reader import ImportReport, LayerTables, published_file
from predictor.measurements.published.sources import DATA_SETS

if TYPE_CHECKING:
    import pandas as pd


OPERATORS_PER_GPU = 120
"""Single layers kept per source and GPU: enough to learn a GPU's rates from, few enough to fit in seconds."""


def import_measurements(
    name: str, path: str | os.PathLike[str] | None = None
) -> tuple[pd.DataFrame, ImportReport]:
    """Import one published data set as a measurement table.

    `name`: a key of `DATA_SETS`. `path`: the published table, or the folder that holds it; without it,
    `$EPOCHCAST_PUBLISHED_DATA`. Gives the measurement table (`predictor.measurements.table`), and what became of each
    row. DataError if the data set is unknown, or the file does not exist; SchemaError if the table has not the form
    that the data set's file describes.
    """
    if name not in DATA_SETS:
        raise DataError(
            f"there is no importer {name!r}. Nearest: {nearest(name, DATA_SETS)}; "
            f"all: {', '.join(DATA_SETS)}."
        )
    root = Path(path) if path is not None else published_data_root()
    return DATA_SETS[name].read(published_file(root, DATA_SETS[name].table))


def load_published(
    folder: str | os.PathLike[str] | None = None, names: Iterable[str] | None = None
) -> pd.DataFrame:
    """Measurement table of published data sets, all unless `names` are given; errors as of `import_measurements`."""
    import pandas as pd

    root = published_data_root(folder)
    frames = [import_measurements(name, root)[0] for name in (names if names is not None else DATA_SETS)]
    return pd.concat(frames, ignore_index=True)


def published_layer_tables(folder: str | os.PathLike[str] | None = None) -> LayerTables:
    """Layer tables of every published CNN whose structure is known.

    `folder`: the folder of published tables; without it, `$EPOCHCAST_PUBLISHED_DATA`. Tables that are not there are
    left out. Gives tables by CNN name, as in the measurement table, and image size. A CNN of unknown structure is not
    in it. DataError if there is no such folder, or it holds none of the tables.
    """
    root = published_data_root(folder)
    tables: LayerTables = {}
    for data_set in DATA_SETS.values():
        tables |= data_set.layer_tables(root)
    if not tables:
        expected = ", ".join(data_set.table for data_set in DATA_SETS.values() if data_set.has_layers)
        raise DataError(f"{root} holds no published table of whole CNNs. Expected: {expected}.")
    return tables


def published_features(
    folder: str | os.PathLike[str] | None = None, sources: Iterable[str] | None = None
) -> pd.DataFrame:
    """Build the feature table of published measurements.

    `folder`: where the published tables lie; `$EPOCHCAST_PUBLISHED_DATA` by default. `sources`: keys of `DATA_SETS`;
    all unless given. Gives features as of `feature_table`; of single layers `OPERATORS_PER_GPU` rows of each source and
    GPU. Rejected rows are left out, and so are CNNs whose layers are unpublished (four rows of PROFET's, most of
    timm's). DataError if a source is unknown, or the folder or a table is missing.
    """
    measurements = load_published(folder, sources)
    tables = published_layer_tables(folder)
    kept = _with_fewer_operators(measurements)
    features = feature_table(kept, lambda cnn, image_size: tables.get((cnn, image_size)))
    structured = (features["kind"] == "operator") | features["layer_table"].notna()
    return features[structured].reset_index(drop=True)


def _with_fewer_operators(measurements: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    operators = measurements[measurements["kind"] == "operator"]
    if operators.empty:
        return measurements
    shuffled = operators.sample(frac=1.0, random_state=0)
    chosen = shuffled.groupby(["source", "gpu"], sort=False).head(OPERATORS_PER_GPU)
    cnns = measurements[measurements["kind"] != "operator"]
    return pd.concat([cnns, chosen.sort_index()], ignore_index=True)
