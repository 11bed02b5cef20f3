"""How well the law of data parallelism predicts iterations of several GPUs, from one GPU as measured beside them.

Run it as `python benchmarks/bench_data_parallel.py [--published FOLDER]`. Every CNN is predicted by a law that was
fitted without it. With the published tables ($EPOCHCAST_PUBLISHED_DATA), efficiencies of 8 GPUs are compared, too.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import numpy as np
import pandas as pd
from machine import machine
from published_runs import efficiency_of_eight, published_runs

from predictor.answers.answer import PredictionRow, predict
from predictor.cnns.zoo import zoo_names
from predictor.models.data_parallel_fit import Pair, held_out_ms, measured_pairs, own_tables

EARLIER_TENSOR_MS, EARLIER_RING_SHARE = 0.012, 0.57
"""A law from runs before these tables: judged on them before the shipped one was fitted."""

_FULL = ("fp32", "tf32")


def main() -> int:
    published = published_runs(__doc__)
    print(f"data parallel | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    pairs = measured_pairs(own_tables())
    held_out, _ = held_out_ms(pairs)
    laws = {
        "ignored": [pair.one_ms for pair in pairs],
        "earlier law": [pair.one_ms + earlier_ms(pair) for pair in pairs],
        "shipped law, CNN held out": list(held_out),
    }
    for bound in (True, False):
        show_laws(pairs, laws, bound)
    show_cnns(pairs, list(held_out))
    show_answers(pairs)
    show_buckets(measured_pairs(own_tables(), None))
    if published is not None:
        show_published(published_rows(published))
    return 0


def earlier_ms(pair: Pair) -> float:
    """What the earlier law adds: 12 us for each parameter tensor, and 0.57 of the ring."""
    gradients, link = pair.gradients, pair.team.link
    ring = link.all_reduce_ms(gradients.n_bytes, pair.team.n_gpus, pair.team.joined, 0)
    return EARLIER_TENSOR_MS * gradients.n_tensors + EARLIER_RING_SHARE * ring


def show_laws(pairs: Sequence[Pair], laws: dict[str, list[float]], gpu_bound: bool) -> None:
    chosen = [i for i, pair in enumerate(pairs) if pair.gpu_bound is gpu_bound]
    bound = "the GPU is the bottleneck" if gpu_bound else "the host is the bottleneck, or nearly"
    print(f"{len(chosen)} iterations in which {bound}")
    print(f"{'':28}{'iteration':>11}{'bias':>9}{'added':>9}")
    for name, times in laws.items():
        of = np.array([times[i] / pairs[i].team_ms - 1 for i in chosen])
        added = [abs(times[i] - pairs[i].team_ms) / abs(pairs[i].added_ms) for i in chosen]
        print(f"{name:28}{mean(abs(of)):>11}{100 * of.mean():>+7.1f} %{mean(added):>9}")
    print()


def show_cnns(pairs: Sequence[Pair], times: Sequence[float]) -> None:
    print("CNNs held out, GPU the bottleneck: ms added, measured and predicted (means), and errors")
    print(f"{'':18}{'n':>4}{'measured':>10}{'predicted':>11}{'added':>8}{'iteration':>11}")
    for cnn in dict.fromkeys(pair.cnn for pair in pairs):
        own = [(p, t) for p, t in zip(pairs, times, strict=True) if p.cnn == cnn and p.gpu_bound]
        if own:
            measured, predicted = np.array([(p.added_ms, t - p.one_ms) for p, t in own]).T
            wrong = mean(abs(t / p.team_ms - 1) for p, t in own)
            row = f"{cnn:18}{len(own):4}{measured.mean():10.2f}{predicted.mean():11.2f}"
            print(f"{row}{predicted.mean() / measured.mean() - 1:>+8.0%}{wrong:>11}")
    print()


def show_answers(pairs: Sequence[Pair]) -> None:
    """Answers from the CNN's name alone: the time of one GPU is predicted, too, on the reference host."""
    print(
        "whole answers of `predict`, one GPU predicted, too: error, bias, share inside the 90 % interval, efficiency"
    )
    found = [(pair, *answered(pair)) for pair in pairs]
    for bound in (True, False):
        some = [(pair, row) for pair, row in found if pair.gpu_bound is bound]
        ratios = np.array([row.iteration_time_ms / pair.team_ms - 1 for pair, row in some])
        inside = [row.low_ms <= pair.team_ms <= row.high_ms for pair, row in some]
        points = [abs(row.scaling_efficiency - pair.one_ms / pair.team_ms) for pair, row in some]
        print(
            f"{'GPU' if bound else 'host'} the bottleneck: {mean(abs(ratios))}, {100 * ratios.mean():+.1f} %, "
            f"{mean(inside)}, within {100 * float(np.mean(points)):.1f} points, n {len(some)}"
        )
    print()


def answered(pair: Pair) -> list[PredictionRow]:
    n = pair.team.n_gpus
    mode = {"precision": pair.precision, "memory_format": pair.memory_format, "image_size": pair.image_size}
    return predict(pair.cnn, pair.gpu.name, n * pair.local_batch_size, n_gpus=n, **mode)


def show_buckets(pairs: Sequence[Pair]) -> None:
    """Other buckets are predicted as PyTorch's default: the table says what that costs."""
    print("ms that buckets add, local batch size 128 or 32, TF32, 4 GPUs")
    frame = own_tables()
    frame = frame[(frame["n_gpus"] == 4) & (frame["precision"] == "tf32") & frame["bucket_mib"].notna()]
    others = frame[(frame["bucket_mib"] != 25) | frame["bucket_view"].astype(bool)]
    at = {(row.gpu, row.cnn, row.batch_size) for row in others.itertuples()}
    known = {(p.gpu.name, p.cnn, 4 * p.local_batch_size): p.one_ms for p in pairs if p.precision == "tf32"}
    frame = frame[[(row.gpu, row.cnn, row.batch_size) in at for row in frame.itertuples()]]
    added = frame["iteration_time_ms"] - [
        known[row.gpu, row.cnn, row.batch_size] for row in frame.itertuples()
    ]
    how = frame["bucket_mib"].map("{:g} MiB".format) + frame["bucket_view"].map({True: ", views", False: ""})
    table = frame.assign(added=added, buckets=how).pivot_table(
        index=["gpu", "cnn"], columns="buckets", values="added"
    )
    print(table.round(2).to_string(), "\n")


def show_published(rows: pd.DataFrame) -> None:
    print("published scaling efficiencies of 8 GPUs (NVIDIA DeepLearningExamples, real images)")
    print(rows.to_string(index=False))
    for name, some in (
        ("fp32 and TF32", rows["precision"].isin(_FULL)),
        ("AMP", ~rows["precision"].isin(_FULL)),
    ):
        wrong = (rows["predicted"] - rows["published"])[some]
        print(
            f"{name}: mean error {100 * abs(wrong).mean():.1f} points, bias {100 * wrong.mean():+.1f}, n {len(wrong)}"
        )


def published_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of 8 GPUs of CNNs of the zoo, in PyTorch, MXNet and PaddlePaddle."""
    key = ["framework", "cnn", "gpu", "precision"]
    frame = frame[frame["cnn"].isin(zoo_names()) & ~frame["framework"].str.startswith("tensorflow")]
    one = frame[frame["n_gpus"] == 1].drop_duplicates(key).set_index(key)["images_per_s"]
    found = []
    for row in frame[(frame["n_gpus"] == 8) & frame["scaling_efficiency"].notna()].to_dict("records"):
        alone = one[tuple(row[name] for name in key)]
        predicted = {
            "predicted": round(efficiency_of_eight(row, alone), 3),
            "published": row["scaling_efficiency"],
        }
        found.append({name: row[name] for name in key} | predicted)
    return pd.DataFrame(found)


def mean(values: Iterable[float]) -> str:
    return f"{100 * float(np.mean(list(values))):.1f} %"


if __name__ == "__main__":
    sys.exit(main())
