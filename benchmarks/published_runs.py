"""Published trainings on several GPUs (NVIDIA's DeepLearningExamples), which loading is held against."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.links import usual_link
from predictor.catalogue.offers import load_offers
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.models.data_parallel import Exchange, Gradients, Team, team_iteration_ms

__all__ = ["efficiency_of_eight", "published_runs"]

PUBLISHED = "nvidia_dle_training.csv.gz"
ASSUMED_BATCH_SIZE = 128
"""Of rows that do not say it; efficiency hardly depends on it."""

LIKE = {"V100-SXM3-32GB": "V100-SXM2-32GB"}
"""GPUs that the catalogue lacks, and what stands for them."""


def published_runs(description: str) -> pd.DataFrame | None:
    """The table from ``--published FOLDER``, else $EPOCHCAST_PUBLISHED_DATA; None, and a line, if it is not there."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--published", help="folder of published tables [$EPOCHCAST_PUBLISHED_DATA]")
    path = Path(parser.parse_args().published or os.environ.get("EPOCHCAST_PUBLISHED_DATA") or ".", PUBLISHED)
    if not path.is_file():
        print(f"published rows: not run: {PUBLISHED} is not part of epochcast; pass --published FOLDER\n")
        return None
    return pd.read_csv(path)


def efficiency_of_eight(row: Mapping[str, Any], images_per_s: float) -> float:
    """Scaling efficiency of 8 GPUs by the law, from what one gives; of a CNN outside the zoo that of ResNet-50."""
    gpu = find_gpu(LIKE.get(row["gpu"], row["gpu"]))
    batch = row["batch_size_per_gpu"] if row["batch_size_per_gpu"] > 0 else ASSUMED_BATCH_SIZE
    cnn = row["cnn"] if row["cnn"] in zoo_names() else "resnet50"
    one_ms, team = np.array([1000 * batch / images_per_s]), Team(8, 1, usual_link(gpu, load_offers()))
    exchange = Exchange.of(Gradients.of(zoo_cnn(cnn)), gpu, team)
    return float((one_ms / team_iteration_ms(one_ms, np.zeros(1), exchange))[0])
