"""PyTorch Image Models: forward passes of hundreds of CNNs and transformers on Ada and Blackwell cards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from predictor.measurements.published import timm
from predictor.measurements.published.data_set import DataSet, layer_tables_of

if TYPE_CHECKING:
    import pandas as pd

_EAGER = "eager"


def _eager(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that no compiler touched; their framework is written ``pytorch 2.4.0 cu124 eager``."""
    words = rows["framework"].str.split()
    chosen = rows[words.str[-1] == _EAGER]
    return chosen.assign(framework=words.str[0] + "-" + words.str[1])


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    return {"cnn": "timm/" + rows["cnn"], "notes": rows["url"]}


def _oddities(table: pd.DataFrame) -> list[str]:
    compiled = ~table["framework"].str.endswith(_EAGER)
    return [
        f"{int(compiled.sum())} rows were compiled by torch.compile, which fuses operators, and are left out",
        f"{table['cnn'].nunique()} architectures, many of them transformers, without layer table",
        "no gradient is computed: times of passes forward, in evaluation mode",
    ]


_TABLE = "timm_forward.csv.gz"
DATA_SET = DataSet(
    name="timm-forward",
    table=_TABLE,
    holds={"kind": "target", "pass": "forward", "copies_input": False, "autotune": True},
    times=("iteration_time_ms",),
    renamed={
        "batch_size": "batch_size_per_gpu",
        **{name: name for name in ("memory_format", "image_size", "iteration_time_ms")},
    },
    needed=("cnn", "url"),
    arranged=_eager,
    computed=_columns,
    oddities=_oddities,
    layer_tables=layer_tables_of(_TABLE, "timm", timm.timm_layers),
    provenance=replace(
        timm.DATA_SET.provenance,
        measured="forward throughput of about 1,000 CNNs and transformers on GeForce RTX 3090, 4090, 5090 and RTX PRO "
        "6000 Blackwell Max-Q, PyTorch 1.13 to 2.9, automatic mixed precision, NCHW and channels-last",
    ),
)
