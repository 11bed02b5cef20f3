"""How well Chainer's iterations are predicted from PyTorch's: groups held out, then whole epochs that no fit saw.

Run it as `python benchmarks/chainer_law.py`. Groups are the two CNNs measured with Chainer, and all proxies.
The epochs are those of `benchmarks/real_epochs.py` on images that lie on the GPU, by the law fitted without their CNN,
with the interval of the shipped one.
"""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from machine import machine

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.models.chainer import LAW, ChainerLaw, chainer_iteration, pytorch_mode
from predictor.models.chainer_fit import ChainerPair, held_out_chainer_laws, measured_chainer_pairs
from predictor.models.forecast import IterationForecast
from predictor.models.served import Model

CNN, IMAGE_SIZE = "vgg_cifar", 32
EPOCHS = ("real_epochs_h100.csv", "real_epochs_h200.csv")
PRECISIONS = {"tf32": "tf32", "amp": "amp_fp16"}


def main() -> int:
    print(f"Chainer from PyTorch | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n\nshipped: {LAW}\n")
    model = Model.load()
    pairs = measured_chainer_pairs(model)
    laws = held_out_chainer_laws(pairs)
    show_held_out(pairs, laws)
    show_epochs(model, replace(laws[CNN], spread=LAW.spread, host_spread=LAW.host_spread))
    return 0


def show_held_out(pairs: list[ChainerPair], laws: dict[str, ChainerLaw]) -> None:
    print("GPU time, NVIDIA H200, fp32 and TF32, each group by a law fitted without it")
    print(f"{'':12}{'n':>5}{'windowed':>10}{'error':>8}{'predicted / measured':>22}{'as PyTorch':>12}")
    same = ChainerLaw(windowed=1.0, rest=1.0, half=1.0, host=1.0)
    for group, law in laws.items():
        own = [pair for pair in pairs if pair.group == group]
        ratio, plain = (np.exp([pair.log_error(each) for pair in own]) for each in (law, same))
        low, high = np.quantile(ratio, [0.1, 0.9])
        error, before = (100 * np.mean(np.abs(each - 1)) for each in (ratio, plain))
        print(
            f"{group:12}{len(own):5}{law.windowed:10.2f}{error:6.1f} %{low:14.2f} - {high:.2f}{before:10.1f} %"
        )
    print("as PyTorch: all ratios 1, from PyTorch's fp32\n")


def show_epochs(model: Model, law: ChainerLaw) -> None:
    print(f"{CNN}, iterations on images that lie on the GPU, without {CNN} in the fit | all in the fit, ms")
    print(
        f"{'GPU':24}{'batch':>6}{'':7}{'measured':>9}{'forecast':>10}{'(90 %)':>16}{'error':>8}{'all':>9}"
        f"{'enqueued':>10}{'host':>7}"
    )
    errors, inside = [], 0
    for row in _measured():
        found, shipped = (_forecast(model, row, each) for each in (law, LAW))
        ms, low, high = (float(each[0]) for each in (found.iteration_time_ms, found.low_ms, found.high_ms))
        errors.append((ms / row["alone_ms"] - 1, float(shipped.iteration_time_ms[0]) / row["alone_ms"] - 1))
        inside += low <= row["alone_ms"] <= high
        print(
            f"{row['gpu']:24}{row['batch']:6}{row['mode']:>7}{row['alone_ms']:9.1f}{ms:10.1f}"
            f"{f'{low:.1f}-{high:.1f}':>16}{100 * errors[-1][0]:6.0f} %{100 * errors[-1][1]:7.0f} %"
            f"{row['enqueue_ms']:10.1f}{float(found.host_time_ms[0]):7.1f}"
        )
    mean, of_all = 100 * np.mean(np.abs(errors), axis=0)
    print(f"mean error {mean:.0f} %, {of_all:.0f} % with {CNN} in the fit; {inside} of {len(errors)} inside")


def _measured() -> list[dict[str, object]]:
    rows = []
    for name in EPOCHS:
        frame = pd.read_csv(Path(__file__).parent / name)
        for row in frame[frame["alone_ms"].notna()].to_dict("records"):
            cnn, _, words = str(row["case"]).partition("_chainer_1x")
            if cnn == CNN:
                batch, mode = words.split("_")
                rows.append(row | {"batch": int(batch), "mode": mode})
    return rows


def _forecast(model: Model, row: dict[str, object], law: ChainerLaw) -> IterationForecast:
    table, gpu = zoo_cnn(CNN, IMAGE_SIZE), find_gpu(str(row["gpu"]))
    mode = Mode("chainer", PRECISIONS[str(row["mode"])])
    known = model.forecast(table, gpu, pytorch_mode(gpu, mode), [row["batch"]])
    own = model.forecast(table, gpu, Mode("pytorch", mode.precision), [1])
    share = float(own.host_time_ms[0] / known.host_time_ms[0])
    return chainer_iteration(known, table, gpu, mode, share, law)


if __name__ == "__main__":
    sys.exit(main())
