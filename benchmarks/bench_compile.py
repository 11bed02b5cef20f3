"""How well compiled iterations are predicted: each CNN, then each GPU, by a law that was fitted without it.

Run it as `python benchmarks/bench_compile.py [--published FOLDER]`. With the published tables
($EPOCHCAST_PUBLISHED_DATA), it also prints how far the ratio of compiled to eager time moves from one GPU to another.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from machine import machine
from scipy.optimize import nnls

from predictor.answers.bounds import operator_classes_of
from predictor.models.compiled import LAW, UNCHANGED, CompileLaw, is_mixed
from predictor.models.compiled_fit import Pair, held_out_laws, measured_pairs, own_tables
from predictor.models.served import Model

GROUPS = {
    "products": ("convolution", "linear"),
    "depthwise": ("depthwise",),
    "between": (),
    "pooling": ("pooling",),
}
"""Classes of operators; between products lie batch norms, activations, additions and the like."""

PUBLISHED = "timm_forward.csv.gz"
EAGER = CompileLaw(full=1.0, mixed=1.0, host=1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--published", type=Path, help="folder of published tables [$EPOCHCAST_PUBLISHED_DATA]"
    )
    folder = parser.parse_args().published or os.environ.get("EPOCHCAST_PUBLISHED_DATA")
    print(f"torch.compile | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    pairs = measured_pairs(own_tables(), Model.load())
    show_measured(pairs)
    show_held_out(pairs)
    show_cnns(pairs)
    show_alternatives(pairs)
    show_published(Path(folder) if folder else None)
    return 0


def show_measured(pairs: Sequence[Pair]) -> None:
    print("measured: compiled / eager, medians over batch sizes and GPUs, and time of compiling in s")
    print(f"{'':22}{'mode':24}{'n':>3}{'GPU':>7}{'host':>7}{'compiling':>12}")
    for cnn in dict.fromkeys(pair.cnn for pair in pairs):
        for mode in dict.fromkeys(pair.mode for pair in pairs if pair.cnn == cnn):
            own = [pair for pair in pairs if (pair.cnn, pair.mode) == (cnn, mode)]
            gpu, host = (
                np.nanmedian([getattr(p, f"{name}_ms") / getattr(p, f"eager_{name}_ms") for p in own])
                for name in ("gpu", "host")
            )
            seconds = np.median([p.compile_s for p in own])
            words = f"{mode.precision} {mode.memory_format}"
            print(f"{cnn:22}{words:24}{len(own):3}{gpu:7.2f}{host:7.2f}{seconds:12.0f}")
    print()


def show_held_out(pairs: Sequence[Pair]) -> None:
    print(f"errors of {len(pairs)} compiled iterations, and share inside the 90 % interval of the answer")
    print(f"{'':30}{'GPU time':>10}{'bias':>9}{'inside':>8}{'iteration':>11}{'inside':>8}")
    by_cnn = held_out_laws(pairs)
    laws: dict[str, Callable[[Pair], CompileLaw]] = {
        "as if eager, the layout known": lambda _: EAGER,
        "law without the CNN": lambda pair: by_cnn[pair.cnn],
        "shipped law": lambda _: LAW,
    }
    for name, law_of in laws.items():
        found = [pair.forecast(with_spreads(law_of(pair))) for pair in pairs]
        row = f"{name:30}"
        for of, low, high in (
            ("gpu_time_ms", "gpu_low_ms", "gpu_high_ms"),
            ("iteration_time_ms", "low_ms", "high_ms"),
        ):
            measured = np.array([p.gpu_ms if of.startswith("gpu") else p.iteration_ms for p in pairs])
            wrong = np.array([float(getattr(f, of)[0]) for f in found]) / measured - 1
            inside = [
                float(getattr(f, low)[0]) <= ms <= float(getattr(f, high)[0])
                for f, ms in zip(found, measured, strict=True)
            ]
            row += f"{mean(abs(wrong)):>10}" + f"{100 * wrong.mean():>+7.1f} %" * of.startswith("gpu")
            row += f"{mean(inside):>8}"
        print(row)
    print()


def with_spreads(law: CompileLaw) -> CompileLaw:
    """The law with the spreads that are shipped."""
    names = ("spread", "host_spread")
    return replace(law, **{name: getattr(LAW, name) for name in names})


def show_cnns(pairs: Sequence[Pair]) -> None:
    print("GPU time by a law without the CNN: error, bias")
    laws = held_out_laws(pairs)
    for cnn, law in laws.items():
        own = [pair for pair in pairs if pair.cnn == cnn]
        wrong = np.array([float(p.forecast(law).gpu_time_ms[0]) / p.gpu_ms - 1 for p in own])
        print(f"{cnn:22}{len(own):4}{mean(abs(wrong)):>10}{100 * wrong.mean():>+7.1f} %")
    print()


def show_alternatives(pairs: Sequence[Pair]) -> None:
    """What other laws reach: each ratio is fitted without the CNN that it predicts."""
    print("GPU time of CNNs held out, by what has a ratio of its own (non-negative least squares)")
    groups = np.array([[group_ms(pair, group) for group in GROUPS] for pair in pairs])
    mixed = np.array([is_mixed(pair.mode.precision) for pair in pairs])
    products, rest = groups[:, :2].sum(axis=1), groups[:, 2:].sum(axis=1)
    laws = {
        "everything": [products + rest],
        "full, mixed precision (shipped)": [each * (products + rest) for each in (~mixed, mixed)],
        "products; all between": [products, rest],
        "products full, mixed; all between": [products * ~mixed, products * mixed, rest],
        "products; all between full, mixed": [products, rest * ~mixed, rest * mixed],
        "both full, mixed": [part * each for part in (products, rest) for each in (~mixed, mixed)],
        f"{', '.join(GROUPS)}": [*groups.T],
    }
    for name, columns in laws.items():
        wrong = held_out_errors(pairs, np.stack(columns, axis=1))
        print(f"{name:45}{len(columns)} ratios{mean(abs(wrong)):>9}, most {100 * abs(wrong).max():.0f} %")
    wrong = chosen_errors(pairs, [np.stack(columns, axis=1) for columns in laws.values()])
    print(f"{'the best of these for the other CNNs':45}{'':8}{mean(abs(wrong)):>9}")
    print()


def group_ms(pair: Pair, group: str) -> float:
    """Predicted eager GPU time of a group of classes; what has no class counts as lying between products."""
    of = operator_classes_of(pair.eager.class_ms)
    if group != "between":
        return sum(float(of[name][0]) for name in GROUPS[group] if name in of)
    known = {name for names in GROUPS.values() for name in names} | set(UNCHANGED)
    return float(pair.eager.gpu_time_ms[0]) - sum(float(ms[0]) for name, ms in of.items() if name in known)


def held_out_errors(pairs: Sequence[Pair], columns: np.ndarray) -> np.ndarray:
    """Relative errors of the GPU time, each CNN by ratios fitted without it."""
    names, measured = np.array([pair.cnn for pair in pairs]), np.array([pair.gpu_ms for pair in pairs])
    stays = np.array([pair.parts_ms[1] for pair in pairs])
    found = np.empty(len(pairs))
    for name in set(names):
        fitted, own = names != name, names == name
        scale = 1.0 / measured[fitted]
        ratios, _ = nnls(columns[fitted] * scale[:, None], (measured - stays)[fitted] * scale)
        found[own] = (stays[own] + columns[own] @ ratios) / measured[own] - 1
    return found


def chosen_errors(pairs: Sequence[Pair], laws: Sequence[np.ndarray]) -> np.ndarray:
    """Errors of each CNN by the law that predicts the other CNNs, held out in turn, best."""
    names, found = np.array([pair.cnn for pair in pairs]), np.empty(len(pairs))
    for name in set(names):
        kept = np.flatnonzero(names != name)
        others = [pairs[i] for i in kept]
        best = min(laws, key=lambda law: float(np.mean(np.abs(held_out_errors(others, law[kept])))))
        found[names == name] = held_out_errors(pairs, best)[names == name]
    return found


def show_published(folder: Path | None) -> None:
    if folder is None or not (folder / PUBLISHED).exists():
        print("no published tables: set EPOCHCAST_PUBLISHED_DATA to compare GPUs")
        return
    print("timm, forward passes: ln of the ratio compiled / eager of one CNN on two GPUs, PyTorch 2.9.1")
    ratios = published_ratios(pd.read_csv(folder / PUBLISHED, low_memory=False))
    for one, other in combinations(ratios.columns, 2):
        apart = (ratios[one] - ratios[other]).dropna()
        print(
            f"{one} and {other}: mean {apart.mean():+.3f}, 90 % within {apart.abs().quantile(0.9):.3f}, n {len(apart)}"
        )


def published_ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Ln of compiled / eager time of an image: rows CNN x image size, columns GPUs."""
    words = table["framework"].str.split()
    chosen = table[
        (words.str[1] == "2.9.1") & (table["memory_format"] == "nchw") & (table["precision"] == "amp_fp16")
    ]
    per_image = chosen["iteration_time_ms"] / chosen["batch_size_per_gpu"]
    known = chosen.assign(log_ms=np.log(per_image), how=words.str[-1])
    wide = known.pivot_table(index=["cnn", "image_size"], columns=["how", "gpu"], values="log_ms")
    found: pd.DataFrame = wide["torch.compile"] - wide["eager"]
    return found


def mean(values: Iterable[float]) -> str:
    return f"{100 * float(np.mean(list(values))):.1f} %"


if __name__ == "__main__":
    sys.exit(main())
