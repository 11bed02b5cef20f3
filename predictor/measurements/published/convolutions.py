"""Single convolutions of published tables in the layer table's columns: names, output sizes, paddings, algorithms."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_GIVEN = (
    "in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width", "kernel_height",
    "kernel_width", "stride_height", "stride_width", "padding_height", "padding_width", "parameters",
)  # fmt: skip
_NAMED_BY = (
    "in_height", "in_width", "in_channels", "out_channels", "kernel_height", "kernel_width", "stride_height",
    "stride_width",
)  # fmt: skip


def operator_columns(prefix: str, shapes: pd.DataFrame) -> dict[str, Any]:
    """Columns of bare convolutions: cnn, image_size, type, and the layer table's columns.

    `prefix`: the source, which begins every name. `shapes`: sizes of input, output, kernel and stride; paddings that it
    lacks are worked out (`smallest_padding`), and missing where no symmetric padding fits.
    """
    columns: dict[str, Any] = {name: shapes[name] for name in _GIVEN if name in shapes}
    for side in ("height", "width"):
        if f"padding_{side}" not in shapes:
            sizes = [shapes[f"{of}_{side}"].tolist() for of in ("in", "out", "kernel", "stride")]
            columns[f"padding_{side}"] = list(map(smallest_padding, *sizes))
    rows = zip(*(shapes[name].tolist() for name in _NAMED_BY), strict=True)
    columns["cnn"] = [f"{prefix}/{_name(*row)}" for row in rows]
    return columns | {"image_size": shapes["in_height"], "type": "conv2d", "dilation": 1, "groups": 1}


def forward_algorithms(names: pd.Series) -> pd.Series:
    """Algorithm of each row's forward pass, as the JSON of `conv_algorithms`."""
    return names.map({name: json.dumps({"conv": {"forward": name}}) for name in names.unique()})


def square_shapes(rows: pd.DataFrame, out_size: pd.Series) -> pd.DataFrame:
    """Channels, and height and width of input, output, kernel and stride, from rows that name each side once."""
    sizes = {"in": rows["in_size"], "out": out_size, "kernel": rows["kernel_size"], "stride": rows["stride"]}
    both = {f"{name}_{side}": size for name, size in sizes.items() for side in ("height", "width")}
    return rows[["in_channels", "out_channels"]].assign(**both)


def smallest_padding(size_in: int, size_out: int, kernel: int, stride: int) -> int | None:
    """Return the smallest symmetric padding that turns `size_in` into `size_out`, or None if there is none.

    Solves size_out = floor((size_in + 2 padding - kernel) / stride) + 1. TensorFlow's "same" padding is sometimes one
    larger at the end than at the start, which no symmetric padding reproduces.
    """
    padding = max(0, -(-((size_out - 1) * stride + kernel - size_in) // 2))
    return padding if (size_in + 2 * padding - kernel) // stride + 1 == size_out else None


def _name(height: int, width: int, c_in: int, c_out: int, kh: int, kw: int, sh: int, sw: int) -> str:
    """H_CIN_COUT, with kernel and stride where they are not 3 and 1, as proxies are named."""
    kernel = "" if (kh, kw) == (3, 3) else f"_k{_pair(kh, kw)}"
    stride = "" if (sh, sw) == (1, 1) else f"_s{_pair(sh, sw)}"
    return f"{_pair(height, width)}_{c_in}_{c_out}{kernel}{stride}"


def _pair(height: int, width: int) -> str:
    return str(height) if height == width else f"{height}x{width}"
