"""`gpu-specs`: approach 1 of the founding study, epoch time from GPU specifications and convolution counts.

Called through `predictor.predictors.PREDICTORS`; calls proxies, base and least_squares.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from predictor.errors import OutOfRangeError, SchemaError
from predictor.layers import LayerTable
from predictor.predictors.base import FeatureTablePredictor, Floats, numbers_of, times_of
from predictor.predictors.least_squares import LinearLaw, fit_linear_law, warn_of_negative_times
from predictor.proxies import proxy_counts

__all__ = ["GpuSpecs", "GpuSpecsRelative"]

_SPECS = (
    "gpu_compute_capability",
    "gpu_boost_clock_ghz",
    "gpu_cuda_cores",
    "gpu_peak_fp32_tflop_per_s",
    "gpu_l2_mib",
)
_COLUMNS = ("gpu", "cnn", "batch_size", "layer_table", *_SPECS)
_COUNT_PREFIX = "proxy_"


class GpuSpecs(FeatureTablePredictor):
    """Epoch time, linear in GPU specifications, counts of each proxy layer, and batch size.

    Parameters
    ----------
    relative : bool, default=False
        False: plain least squares, as in the founding slides. True: least squares of the relative error.

    Attributes
    ----------
    law_ : LinearLaw
    shapes_ : tuple of str
        Convolution shapes with a coefficient, as proxy names.
    mode_ : dict
        Precision, framework, ... and samples_per_epoch of the training rows: one value each.

    Notes
    -----
    X is a feature table with `samples_per_epoch`; y is `epoch_time_s`:
    a + b batch_size + sum_j c_j spec_j + sum_k d_k count_k(CNN). Nothing keeps a prediction above zero, and
    nothing multiplies GPU with CNN: this is the study's model, for comparison with it (docs/decisions/001).
    """

    answer: ClassVar[str] = "epoch_time_s"

    def __init__(self, relative: bool = False) -> None:
        self.relative = relative

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> GpuSpecs:
        """Learn from a feature table of n rows and their epoch times in seconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing or empty, if the rows mix modes or sample counts, or if a time is not above
            0.
        """
        table = self._checked(X, (*_COLUMNS, "samples_per_epoch"))
        times = times_of(y, len(table), "epoch_time_s")
        self._learn_mode(table, extra=("samples_per_epoch",))
        counts = _counts_by_cnn(table, SchemaError)
        self.shapes_ = tuple(sorted({shape for of_cnn in counts for shape in of_cnn}))
        columns = ("batch_size", *_SPECS, *(_COUNT_PREFIX + shape for shape in self.shapes_))
        design = _design(table, counts, self.shapes_, SchemaError)
        self.law_: LinearLaw = fit_linear_law(columns, design, times, relative=self.relative)
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Predict epoch times in seconds, of shape (n,), for a feature table of n rows.

        Raises
        ------
        OutOfRangeError
            If a CNN has convolution shapes that no training CNN had (all are listed), if a specification is
            missing (GPU and column are named), or if mode or sample count are not those of the training rows.
        """
        design = self._questions(X)
        times = self.law_.predict(design)
        warn_of_negative_times(times, type(self).__name__)
        return times

    def estimable(self, X: pd.DataFrame) -> NDArray[np.bool_]:
        """Whether the training rows determine each row's answer, of shape (n,); a new GPU mostly is not."""
        design = self._questions(X)
        return self.law_.estimable(design)

    def coefficients(self) -> dict[str, float]:
        """Column -> seconds per unit of it; `intercept` in seconds."""
        self._check_fitted("law_")
        return self.law_.coefficients()

    def _questions(self, X: pd.DataFrame) -> Floats:
        self._check_fitted("law_")
        table = self._checked(X, (*_COLUMNS, "samples_per_epoch"))
        self._check_mode(table)
        counts = _counts_by_cnn(table, OutOfRangeError)
        self._refuse_new_shapes(table, counts)
        return _design(table, counts, self.shapes_, OutOfRangeError)

    def _refuse_new_shapes(self, table: pd.DataFrame, counts: list[dict[str, int]]) -> None:
        new = {
            (cnn, shape)
            for cnn, of_cnn in zip(table["cnn"], counts, strict=True)
            for shape in of_cnn
            if shape not in self.shapes_
        }
        if new:
            cnns, shapes = (sorted({pair[i] for pair in new}) for i in (0, 1))
            raise OutOfRangeError(
                f"{', '.join(cnns)}: convolution shapes without a column: {', '.join(shapes)}. "
                f"{type(self).__name__} knows the {len(self.shapes_)} shapes of its training CNNs. "
                "Train it with a CNN that has these, or use a predictor that computes with shapes (roofline)."
            )


class GpuSpecsRelative(GpuSpecs):
    """`gpu-specs-relative`: GpuSpecs fitted so that relative errors are smallest."""

    def __init__(self, relative: bool = True) -> None:
        super().__init__(relative=relative)


def _counts_by_cnn(table: pd.DataFrame, error: type[SchemaError | OutOfRangeError]) -> list[dict[str, int]]:
    """Proxy counts of each row's CNN; each layer table is counted once."""
    unknown = sorted({str(cnn) for cnn in table.loc[~table["layer_table"].map(_is_layer_table), "cnn"]})
    if unknown:
        raise error(
            f"column 'layer_table' has no value for {', '.join(unknown[:5])}. "
            "Give feature_table a layer_table_of that knows these CNNs."
        )
    counted = {id(layers): layers for layers in table["layer_table"]}
    counts = {key: proxy_counts(layers) for key, layers in counted.items()}
    return [counts[id(layers)] for layers in table["layer_table"]]


def _is_layer_table(value: Any) -> bool:
    return isinstance(value, LayerTable)


def _design(
    table: pd.DataFrame,
    counts: list[dict[str, int]],
    shapes: tuple[str, ...],
    error: type[SchemaError | OutOfRangeError],
) -> Floats:
    specs = [numbers_of(table, column, error) for column in ("batch_size", *_SPECS)]
    matrix = np.zeros((len(table), len(shapes)))
    place = {shape: i for i, shape in enumerate(shapes)}
    for row, of_cnn in enumerate(counts):
        for shape, count in of_cnn.items():
            matrix[row, place[shape]] = count  # a shape that this CNN does not have occurs 0 times in it
    return np.column_stack([*specs, matrix])
