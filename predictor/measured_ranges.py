"""What training rows cover, as the served model records it: ranges, modes, and whose steps copy their images.

Called by `predictor.fitting`; calls the roofline's rows and extrapolation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from predictor.extrapolation import MODE_FIELDS, Ranges, mode_of_words, shape_ranges
from predictor.roofline.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fed_frameworks_of", "ranges_of"]


def fed_frameworks_of(rows: Rows) -> tuple[str, ...]:
    """Frameworks of the rows that the feed was fitted on; to no other may an answer add it."""
    fed = zip(rows.situations, rows.fed, strict=True)
    return tuple(sorted({situation.framework for situation, is_fed in fed if is_fed}))


def ranges_of(whole: pd.DataFrame, rows: Rows) -> Ranges:
    """Ranges of rows of whole CNNs; `rows` are the same as the model sees them."""
    distinct = {id(kernels): kernels for kernels in rows.kernels}.values()
    tables = {id(table): table for table in whole["layer_table"]}.values()
    modes = whole[[name for name in MODE_FIELDS if name in whole]].drop_duplicates()
    return Ranges(
        gpus=tuple(sorted({s.gpu.name for s in rows.situations})),
        generations=tuple(sorted({s.gpu.generation for s in rows.situations})),
        gpu_modes=tuple(sorted({f"{s.gpu.name}|{s.framework}|{s.precision}" for s in rows.situations})),
        modes=tuple(
            sorted({mode_of_words({str(k): v for k, v in row.items()}) for row in modes.to_dict("records")})
        ),
        layer_types=tuple(sorted({layer.type for table in tables for layer in table})),
        shapes=shape_ranges(distinct),
        batch_size=(min(rows.batch_sizes), max(rows.batch_sizes)),
    )
