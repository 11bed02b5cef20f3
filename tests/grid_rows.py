"""Feature tables without times, for tests of what predictors do over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product

import pandas as pd

from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.measurements.features import feature_table


def grid_rows(
    tables: Sequence[LayerTable], devices: Sequence[tuple[Gpu, Mode]], batch_sizes: Sequence[int]
) -> pd.DataFrame:
    """Feature table of training iterations of every CNN on every GPU at every batch size, in this order."""
    by_name = {(table.cnn, table.image_size): table for table in tables}
    rows = [
        {
            "gpu": gpu.name,
            "cnn": cnn,
            "image_size": image_size,
            "batch_size": int(size),
            **asdict(mode),
            "kind": "target",
            "pass": "training",
            "n_gpus": 1,
        }
        for (cnn, image_size), (gpu, mode), size in product(by_name, devices, batch_sizes)
    ]
    return feature_table(pd.DataFrame(rows), lambda cnn, image_size: by_name[cnn, image_size])
