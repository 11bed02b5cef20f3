"""Proxy layers: what the founding study calls a convolution, how often each occurs, how long each took.

A proxy is a CNN with a single convolution. Its name, `H_CIN_COUT`, is also the name of that convolution's
shape, so that counting shapes in a target CNN says which proxies stand for it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from predictor.catalogue.modes import MODE_COLUMNS, mode_words
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PROXY_TIME_PREFIX", "proxy_counts", "proxy_name", "proxy_time_columns"]

PROXY_TIME_PREFIX = "proxy_epoch_time_s_"
"""Prefix and name of a proxy make the column of its epoch time on the row's GPU at the row's batch size."""

_CONVOLUTIONS = ("conv2d", "conv_transpose2d")
_NEEDED = ("in_height", "in_width", "in_channels", "out_channels", "kernel_height", "kernel_width")


def proxy_name(layer: Layer) -> str:
    """Name of the proxy that has this convolution.

    Parameters
    ----------
    layer : Layer
        A convolution or transposed convolution.

    Returns
    -------
    str
        ``H_CIN_COUT`` (``16_128_128`` is a 16x16 input of 128 channels and 128 filters), followed by
        ``_kK_sS_gG`` where kernel, stride or groups differ from 3, 1, 1; then ``_dD`` where it is dilated and
        ``_t`` where it is transposed. What is not square is written height x width: ``_k1x7_s1_g1``.

    Raises
    ------
    SchemaError
        If the layer is no convolution, or if a part of its shape is unknown.

    Notes
    -----
    The name is the founding slides' own. It leaves padding out: a padded and an unpadded convolution of one
    name differ by the rim of the output image.
    """
    _check_convolution(layer)
    kernel = _pair(layer.kernel_height, layer.kernel_width)
    stride = _pair(layer.stride_height or 1, layer.stride_width or 1)
    groups, dilation = layer.groups or 1, layer.dilation or 1
    name = f"{_pair(layer.in_height, layer.in_width)}_{layer.in_channels}_{layer.out_channels}"
    if (kernel, stride, groups) != ("3", "1", 1):
        name += f"_k{kernel}_s{stride}_g{groups}"
    name += f"_d{dilation}" if dilation != 1 else ""
    return name + ("_t" if layer.type == "conv_transpose2d" else "")


def proxy_counts(table: LayerTable) -> dict[str, int]:
    """Count each convolution shape of a CNN: proxy name -> count, in the order of first occurrence."""
    return dict(Counter(proxy_name(layer) for layer in table if layer.type in _CONVOLUTIONS))


def proxy_time_columns(measurements: pd.DataFrame) -> pd.DataFrame:
    """For every row, the epoch times of the proxies measured on its GPU, at its batch size, in its mode.

    Parameters
    ----------
    measurements : DataFrame of n rows
        A measurement table; proxies are its rows of kind `proxy`, named in `cnn`, with `epoch_time_s`.

    Returns
    -------
    DataFrame of shape (n, number of proxies), of the same index
        Columns `proxy_epoch_time_s_<proxy>`; the median where a proxy was repeated, NaN where it was not
        measured in just that case. No column where the table has no proxies.
    """
    import pandas as pd

    if not {"kind", "epoch_time_s", "cnn"} <= set(measurements.columns):
        return pd.DataFrame(index=measurements.index)
    keys = mode_words(measurements, ("gpu", "batch_size", "samples_per_epoch", *MODE_COLUMNS))
    rows = (measurements["kind"] == "proxy") & measurements["epoch_time_s"].notna()
    proxies = keys[rows].assign(
        proxy=PROXY_TIME_PREFIX + measurements.loc[rows, "cnn"].astype(str),
        epoch_time_s=measurements.loc[rows, "epoch_time_s"],
    )
    wide = proxies.groupby([*keys.columns, "proxy"])["epoch_time_s"].median().unstack("proxy")  # noqa: PD010
    columns = keys.join(wide, on=list(keys.columns)).drop(columns=list(keys.columns))
    return columns.set_axis(measurements.index, axis=0)


def _check_convolution(layer: Layer) -> None:
    if layer.type not in _CONVOLUTIONS:
        raise SchemaError(
            f"layer {layer.index} {layer.name!r} is a {layer.type}; only convolutions have proxies. "
            f"Pass a layer of type {' or '.join(_CONVOLUTIONS)}."
        )
    unknown = [column for column in _NEEDED if getattr(layer, column) is None]
    if unknown:
        raise SchemaError(
            f"convolution {layer.index} {layer.name!r} has no {', '.join(unknown)}: it cannot be named. "
            "Complete the layer table."
        )


def _pair(height: int | None, width: int | None) -> str:
    return f"{height}" if height == width else f"{height}x{width}"
