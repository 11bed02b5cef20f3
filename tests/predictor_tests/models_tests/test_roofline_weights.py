"""What one measured iteration counts in the roofline's fit."""

import numpy as np
import pandas as pd
import pytest

from predictor.measurements.features import feature_table
from predictor.measurements.table import check_measurements
from predictor.models.roofline.model import Roofline


@pytest.fixture
def features() -> pd.DataFrame:
    rows = [
        {
            "gpu": "T4",
            "cnn": "resnet18",
            "image_size": 224,
            "batch_size": batch,
            "precision": "fp32",
            "iteration_time_ms": 4.0 * batch,
            "gpu_time_ms": 3.9 * batch if batch > 16 else None,
        }
        for batch in (8, 16, 32, 64)
    ]
    return feature_table(check_measurements(pd.DataFrame(rows), "made up"))


def test_a_row_counts_as_much_as_its_source_says(features):
    burdened = features.assign(fit_weight=[0.1, np.nan, 0.1, 1.0], gpu_time_ms=np.nan)
    assert Roofline()._problem(burdened, burdened.iloc[:0]).weight.tolist() == [0.1, 1.0, 0.1, 1.0]


def test_an_iteration_counts_once_however_many_of_its_times_were_measured(features):
    problem = Roofline()._problem(features, features.iloc[:0])
    (device,) = problem.kernel_times
    total = problem.weight + np.bincount(device.row, device.weight, len(features))
    assert total.tolist() == [1.0, 1.0, 1.0, 1.0]
