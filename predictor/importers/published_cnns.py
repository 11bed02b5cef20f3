"""Layer tables of the CNNs in published measurements: PROFET's own, the zoo's where the architecture is the same.

Called by predictor.importers; calls profet_layers and the zoo.
"""

from __future__ import annotations

import os
from pathlib import Path

from predictor.data_files import published_data_root
from predictor.importers.profet_layers import profet_layer_tables
from predictor.layers import LayerTable

__all__ = ["published_layer_tables"]


def published_layer_tables(folder: str | os.PathLike[str] | None = None) -> dict[tuple[str, int], LayerTable]:
    """Layer tables by (CNN name as in the measurement table, image size); CNNs without a table are not in it."""
    return profet_layer_tables(Path(published_data_root(folder)))
