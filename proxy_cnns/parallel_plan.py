"""Which configurations the preset ddp measures on which numbers of GPUs, those that teach most first.

What data parallelism adds hardly depends on the batch size: so the first batch size comes on all numbers of GPUs, then
other buckets, then the other batch sizes on one GPU and on all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from predictor.catalogue.modes import Mode
from proxy_cnns.configuration import Configuration, Replicas, Subject

__all__ = ["BUCKETS", "MESSAGE_BYTES", "SYNC", "parallel_configurations"]

MESSAGE_BYTES = tuple(
    1000 * kilobytes
    for kilobytes in (1, 4, 16, 64, 256, 1000, 4000, 10_000, 25_000, 50_000, 100_000, 200_000, 400_000)
)
"""Bytes on each GPU of an all-reduce that is measured alone."""

BUCKETS = (Replicas(bucket_view=True), Replicas(bucket_mib=1.0), Replicas(bucket_mib=100.0))
"""Ways to add up gradients other than PyTorch's default, measured for the first CNNs."""

SYNC = Replicas(sync_batch_norm=True)
"""Batch norms of all GPUs' images, measured for the CNNs that have some."""

_CNNS_WITH_BUCKETS = 3


def parallel_configurations(
    configurations: Sequence[Configuration], gpu_counts: Sequence[int]
) -> list[Configuration]:
    """Configurations for one GPU, each for every number of GPUs, with all-reduces and other buckets.

    Parameters
    ----------
    configurations : sequence of Configuration
        Of a preset, mode by mode; `batch_size` is that of one GPU.
    gpu_counts : sequence of int
        In the order to measure them in, 1 first.
    """
    sizes = list(dict.fromkeys(each.batch_size for each in configurations))
    modes = list(dict.fromkeys(each.mode for each in configurations))
    ends = (1, max(gpu_counts))

    def part(
        some_sizes: Sequence[int], some_modes: Sequence[Mode], counts: Sequence[int]
    ) -> list[Configuration]:
        chosen = [each for size in some_sizes for each in configurations if each.batch_size == size]
        return [_on(each, n) for each in chosen if each.mode in some_modes for n in counts]

    ordered = [
        *_all_reduces(modes[0], [n for n in gpu_counts if n > 1]),
        *part(sizes[:1], modes[:2], gpu_counts),
        *_other_buckets(configurations, max(gpu_counts)),
        *_synchronised(part(sizes[:1], modes[:2], gpu_counts[1:])),
        *part(sizes[1:], modes[:2], ends),
        *part(sizes, modes[2:], ends),
        *part(sizes, modes, gpu_counts),
    ]
    return list(dict.fromkeys(ordered))


def _on(configuration: Configuration, n_gpus: int) -> Configuration:
    return replace(configuration, replicas=replace(configuration.replicas, n_gpus=n_gpus))


def _other_buckets(configurations: Sequence[Configuration], n_gpus: int) -> list[Configuration]:
    first = configurations[:_CNNS_WITH_BUCKETS]
    return [_on(replace(each, replicas=buckets), n_gpus) for each in first for buckets in BUCKETS]


def _synchronised(configurations: Sequence[Configuration]) -> list[Configuration]:
    tables = [each.subject.table for each in configurations]
    normed = [table is not None and any(layer.type == "batch_norm" for layer in table) for table in tables]
    return [
        replace(each, replicas=replace(SYNC, n_gpus=each.replicas.n_gpus))
        for each, has in zip(configurations, normed, strict=True)
        if has
    ]


def _all_reduces(mode: Mode, gpu_counts: Sequence[int]) -> Iterator[Configuration]:
    for n_gpus in gpu_counts:
        for n_bytes in MESSAGE_BYTES:
            subject = Subject("all_reduce", f"all_reduce_{n_bytes}", 1, message_bytes=n_bytes)
            yield Configuration(subject, replace(mode, precision="fp32"), 1, Replicas(n_gpus))
