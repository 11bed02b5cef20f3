"""Is loading the bottleneck? The default rates of loading beside published figures.

Run it as `python benchmarks/loading.py [--published FOLDER]`. With the published tables
($EPOCHCAST_PUBLISHED_DATA), iterations of 8 GPUs on known machines are held against the bound.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from machine import machine

from predictor.catalogue.data_sets import find_training_set
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.links import usual_link
from predictor.catalogue.loading_rates import find_loader
from predictor.catalogue.offers import load_offers
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.models.data_parallel import Exchange, Gradients, Team, team_iteration_ms

PUBLISHED = "nvidia_dle_training.csv.gz"
ASSUMED_BATCH_SIZE = 128
"""Of rows that do not say it; efficiency hardly depends on it."""

LIKE = {"V100-SXM3-32GB": "V100-SXM2-32GB"}
"""GPUs that the catalogue lacks, and what stands for them."""

THREADS = {"DGX-1": 80, "DGX-2": 96, "DGX A100": 256}
"""Hardware threads of NVIDIA's machines: 2 Xeon E5-2698 v4, 2 Xeon Platinum 8168, 2 EPYC 7742."""

LOADED = (
    (
        "p3.2xlarge, PyTorch, 2018: an epoch in 32 minutes",
        8,
        1_281_167 / (32 * 60),
        "pytorch/accimage issue 12",
    ),
)
"""Published throughputs that the writer found to be bound by loading: what, vCPUs, images/s, source."""


def main() -> int:
    published = published_runs()
    print(f"loading | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    show_rates()
    if published is not None:
        show_published(published_rows(published))
    return 0


def published_runs() -> pd.DataFrame | None:
    """The table from ``--published FOLDER``, else $EPOCHCAST_PUBLISHED_DATA; None, and a line, if it is not there."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
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


def rate_per_vcpu(loader: str = "torchvision") -> tuple[float, float]:
    """Images per second of ImageNet at 224 pixels on a busy vCPU, and the factor within which it holds."""
    known = find_loader(loader, "jpeg")
    return 1e6 * known.vcpu_share / known.sample_us(
        find_training_set("imagenet").megapixels, 224
    ), known.spread


def show_rates() -> None:
    for loader in ("torchvision", "pillow_simd", "dali"):
        rate, spread = rate_per_vcpu(loader)
        print(f"{loader:12} {rate:5.0f} images/s on a busy vCPU, {rate / spread:.0f} to {rate * spread:.0f}")
    rate, spread = rate_per_vcpu()
    for what, vcpus, images, source in LOADED:
        low, high = rate * vcpus / spread, rate * vcpus * spread
        print(
            f"{what}: {images:,.0f} images/s; by the rates {rate * vcpus:,.0f} ({low:,.0f}-{high:,.0f}); {source}"
        )
    print()


def show_published(rows: pd.DataFrame) -> None:
    """Rows of 8 GPUs beside what the GPUs alone and what the machine's threads would give."""
    print(
        "published rows of 8 GPUs (NVIDIA DeepLearningExamples), images/s: measured, by the GPUs alone, by loading"
    )
    print(rows.round(3).to_string(index=False))
    above = rows[rows["images_per_s"] > rows["loading_high"]]
    print(
        f"\nabove the upper end of loading: {len(above)} of {len(rows)}; above the estimate: "
        f"{(rows['images_per_s'] > rows['loading']).sum()}"
    )
    mixed = rows[(rows["framework"] == "pytorch") & rows["precision"].str.startswith("amp")]
    measured = mixed["images_per_s"]
    of_gpus, of_loading = measured / mixed["by_gpus"], measured / mixed["loading"]
    print(
        f"PyTorch in AMP: {100 * of_gpus.mean():.0f} % of what the GPUs alone would give, at {measured.min():,.0f} to "
        f"{measured.max():,.0f} images/s; correlation of that share with the share of the loading that is used: "
        f"{np.corrcoef(of_gpus, of_loading)[0, 1]:+.2f}\n"
    )


def published_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of 8 GPUs on machines whose threads are known."""
    key = ["framework", "cnn", "gpu", "precision", "batch_size_per_gpu"]
    frame = frame[frame["image_size"] == 224]
    one = {
        tuple(row[name] if row[name] == row[name] else None for name in key): row["images_per_s"]
        for row in frame[frame["n_gpus"] == 1].to_dict("records")
    }
    rate, spread = rate_per_vcpu()
    found = []
    for row in frame[(frame["n_gpus"] == 8) & frame["scaling_efficiency"].notna()].to_dict("records"):
        of = next((name for name in THREADS if f"NVIDIA {name} " in row["notes"]), None)
        alone = one.get(tuple(row[name] if row[name] == row[name] else None for name in key))
        if of is None or alone is None:
            continue
        found.append(
            {name: row[name] for name in key[:4]}
            | {
                "images_per_s": row["images_per_s"],
                "by_gpus": 8 * alone * efficiency_of_eight(row, alone),
                "loading": rate * THREADS[of],
                "loading_high": rate * spread * THREADS[of],
            }
        )
    return pd.DataFrame(found)


if __name__ == "__main__":
    sys.exit(main())
