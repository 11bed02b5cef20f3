"""PyTorch Image Models: forward passes of hundreds of CNNs and transformers on Ada and Blackwell cards."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from predictor.errors import SchemaError
from predictor.measurements.published import timm
from predictor.measurements.published.data_set import DataSet, Rows, layer_tables_of

if TYPE_CHECKING:
    import pandas as pd

_EAGER = "eager"
_FILE = re.compile(
    r"benchmark-infer-(?P<precision>\w+)-(?P<format>\w+)-pt(?P<torch>\d+)-(?P<cuda>cu\d+)-(?:rtx)?(?P<gpu>\w+)"
    r"(?P<compiled>-dynamo)?\.csv$"
)
_GPUS = {
    "3090": "RTX 3090",
    "4090": "RTX 4090",
    "5090": "RTX 5090",
    "pro6000maxq": "RTX PRO 6000 Blackwell Max-Q",
}
_PRECISIONS = {"amp": "amp_fp16"}
_FORMATS = {"nchw": "nchw", "nhwc": "channels_last"}
_VERSIONS = {"113": "1.13", "210": "2.1.0", "240": "2.4.0", "291": "2.9.1"}
_REPOSITORY = "github.com/huggingface/pytorch-image-models/blob/aa4b585"


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


def _from_upstream(files: Mapping[str, str]) -> Rows:
    """Rows of upstream's results, whose file names say what ran; CNNs that did not fit have no time there."""
    for path, text in files.items():
        about = _of_file(path)
        for row in csv.DictReader(text.splitlines()):
            if row["infer_step_time"]:
                yield {
                    "source": "timm",
                    "url": f"{_REPOSITORY}/{path}",
                    "gpu": about["gpu"],
                    "n_gpus": "1",
                    "framework": about["framework"],
                    "cnn": row["model"],
                    "image_size": row["infer_img_size"],
                    "batch_size_per_gpu": str(float(row["infer_batch_size"])),
                    "precision": about["precision"],
                    "memory_format": about["memory_format"],
                    "phase": "forward",
                    "images_per_s": row["infer_samples_per_sec"],
                    "iteration_time_ms": row["infer_step_time"],
                    "gmacs": row["infer_gmacs"],
                    "macts": row["infer_macts"],
                    "params_m": row["param_count"],
                    "notes": "",
                }


def _of_file(path: str) -> dict[str, str]:
    """GPU, framework and mode from a file's name, such as benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv."""
    named = _FILE.search(path)
    if named is None:
        raise SchemaError(f"{path} is not named as timm names its results: {_FILE.pattern}")
    how = "torch.compile" if named["compiled"] else _EAGER
    return {
        "gpu": _GPUS[named["gpu"]],
        "framework": f"pytorch {_VERSIONS[named['torch']]} {named['cuda']} {how}",
        "precision": _PRECISIONS.get(named["precision"], named["precision"]),
        "memory_format": _FORMATS[named["format"]],
    }


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
    from_upstream=_from_upstream,
    fitted=True,
    provenance=replace(
        timm.DATA_SET.provenance,
        measured="forward throughput of about 1,000 CNNs and transformers on GeForce RTX 3090, 4090, 5090 and RTX PRO "
        "6000 Blackwell Max-Q, PyTorch 1.13 to 2.9, automatic mixed precision, NCHW and channels-last",
    ),
)
