"""Is loading the bottleneck? The default rates of loading beside published figures.

Run it as `python benchmarks/loading.py [--published FOLDER]`. With the published tables
($EPOCHCAST_PUBLISHED_DATA), iterations of 8 GPUs on known machines are held against the bound.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from machine import heading

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

_KEY = ["framework", "cnn", "gpu", "precision", "batch_size_per_gpu"]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--published", help="folder of published tables [$EPOCHCAST_PUBLISHED_DATA]")
    path = Path(parser.parse_args().published or os.environ.get("EPOCHCAST_PUBLISHED_DATA") or ".", PUBLISHED)
    print(heading("loading"))
    for loader in ("torchvision", "pillow_simd", "dali"):
        rate, spread = rate_per_vcpu(loader)
        print(f"{loader:12} {rate:5.0f} images/s on a busy vCPU, {rate / spread:.0f} to {rate * spread:.0f}")
    rate, spread = rate_per_vcpu()
    rate *= 8  # vCPUs
    print(
        f"p3.2xlarge, PyTorch, 2018: an epoch in 32 minutes (pytorch/accimage issue 12): {1_281_167 / (32 * 60):,.0f} "
        f"images/s; by the rates {rate:,.0f} ({rate / spread:,.0f}-{rate * spread:,.0f})\n"
    )
    if path.is_file():
        show_published(published_rows(pd.read_csv(path)))
    else:
        print(f"published rows: not run: {PUBLISHED} is not part of epochcast; pass --published FOLDER\n")
    return 0


def rate_per_vcpu(loader: str = "torchvision") -> tuple[float, float]:
    """Images per second of ImageNet at 224 pixels on a busy vCPU, and the factor within which it holds."""
    rates, megapixels = find_loader(loader, "jpeg"), find_training_set("imagenet").megapixels
    return 1e6 * rates.vcpu_share / rates.sample_us(megapixels, 224), rates.spread


def show_published(rows: pd.DataFrame) -> None:
    """Print published rates of 8 GPUs beside the rates of the GPUs without loading and of loading by the machine."""
    print(
        "published rows of 8 GPUs (NVIDIA DeepLearningExamples), images/s: measured, by the GPUs alone, by loading"
    )
    print(rows.round(3).to_string(index=False))
    above = (rows["images_per_s"] > rows["loading_high"]).sum()
    above_estimate = (rows["images_per_s"] > rows["loading"]).sum()
    print(f"\nabove the upper end of loading: {above} of {len(rows)}; above the estimate: {above_estimate}")
    mixed = rows[(rows["framework"] == "pytorch") & rows["precision"].str.startswith("amp")]
    measured = mixed["images_per_s"]
    of_gpus, of_loading = measured / mixed["by_gpus"], measured / mixed["loading"]
    print(
        f"PyTorch in AMP: {100 * of_gpus.mean():.0f} % of what the GPUs alone would give, at {measured.min():,.0f} to "
        f"{measured.max():,.0f} images/s; correlation of that share with the share of the loading that is used: "
        f"{np.corrcoef(of_gpus, of_loading)[0, 1]:+.2f}\n"
    )


def published_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of 8 GPUs on machines whose threads are known, images per second, beside those of one GPU."""
    frame = frame[frame["image_size"] == 224]
    of_one = frame[frame["n_gpus"] == 1].drop_duplicates(_KEY, keep="last")[[*_KEY, "images_per_s"]]
    teams = frame[(frame["n_gpus"] == 8) & frame["scaling_efficiency"].notna()]
    machines = teams["notes"].str.extract(f"NVIDIA ({'|'.join(THREADS)}) ", expand=False)
    rows = teams.assign(threads=machines.map(THREADS)).merge(of_one, on=_KEY, suffixes=("", "_alone"))
    rows = rows[rows["threads"].notna()]
    rate, spread = rate_per_vcpu()
    eight = [8 * row["images_per_s_alone"] * efficiency_of_eight(row) for row in rows.to_dict("records")]
    return rows[[*_KEY[:4], "images_per_s"]].assign(
        by_gpus=eight, loading=rate * rows["threads"], loading_high=rate * spread * rows["threads"]
    )


def efficiency_of_eight(row: Mapping[str, Any]) -> float:
    """Scaling efficiency of 8 GPUs by the law, from what one gives; of a CNN outside the zoo that of ResNet-50."""
    gpu = find_gpu(LIKE.get(row["gpu"], row["gpu"]))
    batch = row["batch_size_per_gpu"] if row["batch_size_per_gpu"] > 0 else ASSUMED_BATCH_SIZE
    table = zoo_cnn(row["cnn"] if row["cnn"] in zoo_names() else "resnet50")
    one_ms = np.array([1000 * batch / row["images_per_s_alone"]])
    exchange = Exchange.of(Gradients.of(table), gpu, Team(8, 1, usual_link(gpu, load_offers())))
    return float((one_ms / team_iteration_ms(one_ms, np.zeros(1), exchange))[0])


if __name__ == "__main__":
    sys.exit(main())
