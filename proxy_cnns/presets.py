"""The presets of `epochcast profile`: what is measured, and in which order, those that teach most first.

A preset is one line of `PRESETS`: proxy CNNs, operators or target CNNs, with their batch sizes and modes. Only a user's
own CNN needs a framework here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import FOUNDING_PROXIES, proxy_table
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import SchemaError, nearest
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.operators import Operator, as_run, is_view
from proxy_cnns.configuration import Configuration, Replicas, Subject
from proxy_cnns.designs import COMMON_CNNS, LIBRARY_CNNS, common_operators, designed_operators
from proxy_cnns.estimates import estimated_memory_gib, estimated_ms
from proxy_cnns.spread import spread_order
from proxy_cnns.trainings import training_operators
from proxy_cnns.user_cnns import distinct_operators, named_table, target_subject


@dataclass(frozen=True, slots=True)
class Block:
    """Subjects that are measured in one mode at one batch size."""

    mode: Mode
    batch_size: int
    subjects: tuple[Subject, ...]


@dataclass(frozen=True, slots=True)
class Preset:
    """Subjects to measure, batch sizes and modes; the first batch sizes tell most.

    Batch sizes and modes are defaults. A configuration that is estimated above `limit_ms` for one iteration, or
    above `limit_gib` of memory, is left out; `configurations` says which. `blocks`, where there are some, are the parts
    of the whole grid that are measured unless options ask for others. `together`: the GPUs of a machine train each
    configuration together (`parallel_configurations`).
    """

    name: str
    about: str
    subjects: tuple[Subject, ...]
    batch_sizes: tuple[int, ...]
    modes: tuple[Mode, ...]
    limit_ms: float = 1000.0
    limit_gib: float = 130.0
    blocks: tuple[Block, ...] = ()
    together: bool = False


_FP32, _TF32, _FP16, _BF16 = (Mode(precision=each) for each in ("fp32", "tf32", "amp_fp16", "amp_bf16"))
_FP32_LAST, _TF32_LAST, _FP16_LAST, _BF16_LAST = (
    replace(mode, memory_format="channels_last") for mode in (_FP32, _TF32, _FP16, _BF16)
)
_FOUR_MODES = (_TF32, _BF16_LAST, _BF16, _FP32)
_SIX_MODES = (*_FOUR_MODES, _TF32_LAST, _FP32_LAST)
_USUAL_BATCH_SIZES = (64, 16, 256, 32, 128, 8, 512, 4)

_FOUNDING_BATCH_SIZES = (
    *(64, 512, 5, 128, 16, 256, 32, 8, 500, 50, 180, 110, 10, 14, 18, 7, 12, 4, 2, 6, 24, 90, 360, 1024, 1),
)

TARGETS = (
    *("vgg_cifar@32", "lenet5@28", "resnet18@32", "mobilenet_v2@32", "densenet121@32", "vgg16@32"),
    *("resnet50@224", "vgg16@224", "mobilenet_v2@224", "densenet121@224", "convnext_tiny@224"),
    *("alexnet@224", "resnet18@224", "googlenet@224", "inception_v3@299", "efficientnet_b0@224"),
    *("regnet_y_1_6gf@224", "regnet_x_3_2gf@224", "resnext50_32x4d@224", "squeezenet1_1@224"),
    *("shufflenet_v2_x1_0@224", "resnet50@32", "efficientnet_b0@32", "shufflenet_v2_x1_0@32"),
)
"""Target CNNs and their image size."""

PARALLEL_TARGETS = (
    *("resnet50@224", "vgg16@224", "densenet121@224", "mobilenet_v2@224", "resnet18@224"),
    *("efficientnet_b0@224", "wide_resnet50_2@224", "vgg_cifar@32", "alexnet@224"),
)
"""CNNs of the preset ddp: few and many parameters, in few and many tensors."""


def preset(name: str) -> Preset:
    """Preset by its name.

    `name`: one of `PRESETS`; ``cnn:NAME[@IMAGE_SIZE]`` or ``cnn:FILE.py:make_model[@IMAGE_SIZE]`` for the operators of
    one CNN; ``targets:CNN[,CNN...]`` for whole CNNs, named in the same way. SchemaError if there is no such preset;
    UnknownCnnError or OutOfRangeError if there is no such CNN, or not at this image size.
    """
    family, colon, rest = name.partition(":")
    if colon and rest.strip() and family in _OF_CNNS:
        return _OF_CNNS[family](rest)
    if family in _OF_CNNS and name not in PRESETS:
        raise SchemaError(
            f"preset {name!r} names no CNN behind the colon. Try: {family}:resnet50, {family}:resnet50@64 or "
            f"{family}:FILE.py:make_model."
        )
    if name not in PRESETS:
        known = [*PRESETS, *(f"{each}:" for each in _OF_CNNS)]
        raise SchemaError(
            f"no preset is called {name!r}. Nearest: {nearest(name, known)}; known: {', '.join(PRESETS)}, "
            "cnn:NAME[@IMAGE_SIZE], cnn:FILE.py:make_model[@IMAGE_SIZE], targets:NAME[@IMAGE_SIZE],..."
        )
    return PRESETS[name]()


def configurations(
    chosen: Preset, batch_sizes: Sequence[int] | None = None, modes: Sequence[Mode] | None = None
) -> tuple[list[Configuration], list[Configuration]]:
    """Configurations in the order to measure them in, and those left out as too long or too large.

    They come mode by mode, and in each mode batch size by batch size: a budget that ends early leaves whole batch
    sizes, and of the last one shapes from the whole list. An optimizer step, which no batch size changes, comes once. A
    view, which runs no kernel, does not come. `batch_sizes`: in place of the preset's. `modes`: in place of the
    preset's. The blocks of a preset come only if neither is given.
    """
    wanted = (
        _of_blocks(chosen)
        if chosen.blocks and not (batch_sizes or modes)
        else _of_grid(chosen, batch_sizes, modes)
    )
    kept: list[Configuration] = []
    left_out: list[Configuration] = []
    for configuration in dict.fromkeys(map(_as_run, wanted)):
        (kept if _affordable(chosen, configuration) else left_out).append(configuration)
    return kept, left_out


def _as_run(configuration: Configuration) -> Configuration:
    """An operator behind a group norm is another one in each mode."""
    operator, mode = configuration.subject.operator, configuration.mode
    if operator is None:
        return configuration
    running = as_run(operator, mode.framework, mode.memory_format, mode.precision)
    if running == operator:
        return configuration
    subject = replace(configuration.subject, name=running.name, operator=running)
    return replace(configuration, subject=subject)


def _of_grid(
    chosen: Preset, batch_sizes: Sequence[int] | None, modes: Sequence[Mode] | None
) -> list[Configuration]:
    sizes = tuple(batch_sizes or chosen.batch_sizes)
    return [
        Configuration(subject, mode, batch_size)
        for mode in modes or chosen.modes
        for batch_size in sizes
        for subject in chosen.subjects
        if not (subject.operator and is_view(subject.operator, mode.framework))
        if batch_size == sizes[0] or not _same_at_any_batch_size(subject)
    ]


def _of_blocks(chosen: Preset) -> list[Configuration]:
    first: dict[tuple[Mode, Subject], int] = {}
    return [
        Configuration(subject, block.mode, block.batch_size)
        for block in chosen.blocks
        for subject in block.subjects
        if not (subject.operator and is_view(subject.operator, block.mode.framework))
        if first.setdefault((block.mode, subject), block.batch_size) == block.batch_size
        or not _same_at_any_batch_size(subject)
    ]


def in_modes(chosen: Preset, modes: Sequence[Mode]) -> Preset:
    """The preset in only these modes; blocks of TF32 are measured in fp32 where there is no TF32.

    Blocks of a mode without its like, the same precision and memory format, among `modes` are left out.
    """
    like = {(mode.precision, mode.memory_format): mode for mode in modes}
    without_tf32 = not any(precision == "tf32" for precision, _ in like)
    found = []
    for block in chosen.blocks:
        words = (block.mode.precision, block.mode.memory_format)
        if without_tf32 and words[0] == "fp32":
            continue
        if without_tf32 and words[0] == "tf32":
            words = ("fp32", words[1])
        if words in like:
            found.append(replace(block, mode=like[words]))
    return replace(chosen, modes=tuple(modes), blocks=tuple(found))


def operator_subjects(operators: Sequence[Operator]) -> tuple[Subject, ...]:
    """Operators as subjects, in an order in which every first part holds shapes from the whole list."""
    return tuple(
        Subject("operator", operator.name, operator.in_height or 1, operator=operator)
        for operator in spread_order(operators)
    )


def _same_at_any_batch_size(subject: Subject) -> bool:
    return subject.operator is not None and subject.operator.type == "optimizer"


def _affordable(chosen: Preset, configuration: Configuration) -> bool:
    question = (configuration.subject, configuration.batch_size, configuration.mode)
    return estimated_ms(*question) <= chosen.limit_ms and estimated_memory_gib(*question) <= chosen.limit_gib


@dataclass(frozen=True, slots=True)
class _Share:
    """Part of the list that a mode gets, of each shape at its first or second batch size.

    `products` of convolutions and dense layers, `others` of all else, as shares of those in the list; `slow` is the
    number of grouped convolutions where each costs 0.1 to 1.9 s at its first call: in channels-last and in fp16.
    """

    mode: Mode
    products: float
    others: float
    slow: int | None = None
    second: bool = False


SAMPLED_MODES = (_TF32, _BF16_LAST, _BF16, _FP16, _FP32, _TF32_LAST, _FP16_LAST)
"""Modes of the sample, the one that others are carried over from first."""

_BATCH_SIZES = (64, 16, 128, 4, 512, 32)
"""Each shape is measured at two of them, three places apart. With the same number of rows, trees fitted on two batch
sizes of every shape missed the zoo's CNNs by 7 % at batch size 8; fitted on all shapes at 64 and half of them at 16,
by 10 %."""

_SHARES = (
    _Share(_TF32, 1.0, 0.7),
    _Share(_BF16_LAST, 0.4, 0.25, 16),
    _Share(_BF16, 0.3, 0.2),
    _Share(_FP32, 0.16, 0.02),
    _Share(_FP16, 0.12, 0.06, 8),
    _Share(_TF32_LAST, 0.22, 0.12, 8),
    _Share(_TF32, 0.6, 0.4, second=True),
    _Share(_BF16_LAST, 0.28, 0.16, 10, second=True),
    _Share(_BF16, 0.24, 0.14, second=True),
    _Share(_TF32_LAST, 0.12, 0.08, 4, second=True),
    _Share(_FP16, 0.06, 0.04, 4, second=True),
    _Share(_FP32, 0.1, 0.0, second=True),
    _Share(_FP16_LAST, 0.06, 0.03, 2),
    _Share(_TF32, 1.0, 0.7, second=True),
    _Share(_BF16_LAST, 0.4, 0.25, 16, second=True),
    _Share(_BF16, 0.3, 0.2, second=True),
)
"""What is measured, in this order: an early end leaves every mode coarse rather than a mode missing."""


def sampled_blocks(subjects: Sequence[Subject]) -> tuple[Block, ...]:
    """A sample of operators in every mode, in the order to measure it in.

    The time of an operator in another mode is that in TF32 times a ratio, which follows its type, its size and how its
    channels are aligned. So TF32 gets most of the time, and each other mode a sample, nested in what TF32 measures: its
    shapes are the first ones of a list whose every first part is spread over all of it. `subjects`: operators, in an
    order in which every first part is spread over the whole.
    """
    slow = [each for each in subjects if _is_grouped(each)]
    products = [each for each in subjects if _is_product(each) and not _is_grouped(each)]
    others = [each for each in subjects if not _is_product(each)]
    order = {subject: place for kind in (products, others, slow) for place, subject in enumerate(kind)}
    measured: set[tuple[Mode, int, Subject]] = set()
    blocks = []
    for share in _SHARES:
        part = _part(share, products, others, slow)
        for place, batch_size in enumerate(_BATCH_SIZES):
            first = (place - len(_BATCH_SIZES) // 2 * share.second) % len(_BATCH_SIZES)
            asked = (each for each in part if order[each] % len(_BATCH_SIZES) == first)
            new = tuple(each for each in asked if (share.mode, batch_size, each) not in measured)
            measured.update((share.mode, batch_size, each) for each in new)
            blocks.append(Block(share.mode, batch_size, new))
    return tuple(blocks)


def _part(
    share: _Share, products: Sequence[Subject], others: Sequence[Subject], slow: Sequence[Subject]
) -> list[Subject]:
    n_slow = round(share.products * len(slow)) if share.slow is None else share.slow
    parts = ((products, share.products * len(products)), (others, share.others * len(others)), (slow, n_slow))
    return [subject for some, n in parts for subject in some[: round(n)]]


def _is_product(subject: Subject) -> bool:
    return subject.operator is not None and OPERATOR_TYPES[subject.operator.type].product is not None


def _is_grouped(subject: Subject) -> bool:
    operator = subject.operator
    return (
        operator is not None and OPERATOR_TYPES[operator.type].is_convolution and (operator.groups or 1) > 1
    )


def _founding() -> Preset:
    subjects = tuple(
        Subject("proxy", name, proxy_table(name).image_size, proxy_table(name)) for name in FOUNDING_PROXIES
    )
    about = "proxy CNNs of the founding study: one convolution each, small images, many batch sizes"
    return Preset("founding", about, subjects, _FOUNDING_BATCH_SIZES, (_FP32,))


def _quick() -> Preset:
    about = "operators of all kinds and sizes, a sample in every mode, at most three minutes on an H200"
    subjects = operator_subjects(designed_operators(0.85) + common_operators(COMMON_CNNS))
    sizes = (64, 16, 128, 512, 4, 32)
    return Preset("quick", about, subjects, sizes, SAMPLED_MODES, 3, 12, sampled_blocks(subjects))


def _library() -> Preset:
    about = "the same, finer: more shapes, more batch sizes, six modes"
    subjects = operator_subjects(designed_operators(3.0) + common_operators(LIBRARY_CNNS))
    sizes = (64, 16, 256, 4, 128, 32, 512, 8, 1024)
    return Preset("library", about, subjects, sizes, _SIX_MODES, limit_ms=15, limit_gib=30)


def _zoo() -> Preset:
    tables = [zoo_cnn(name) for name in zoo_names()]
    about = f"every distinct operator of the zoo's {len(tables)} CNNs, each at its usual image size"
    subjects = operator_subjects(distinct_operators(tables))
    return Preset("zoo", about, subjects, _USUAL_BATCH_SIZES, _FOUR_MODES, limit_ms=30, limit_gib=30)


def _targets(names: Sequence[str] = TARGETS, name: str = "targets") -> Preset:
    subjects = tuple(target_subject(each) for each in names)
    return Preset(name, "whole CNNs as trained", subjects, _USUAL_BATCH_SIZES, _FOUR_MODES)


def _trainings() -> Preset:
    about = "operators of generators, detectors, segmenters, volumes, frames, adapters, attention and recurrent heads"
    blocks = tuple(
        Block(mode, size, operator_subjects(operators))
        for modes, sizes, operators in training_operators()
        for mode in modes
        for size in sizes
    )
    subjects = tuple(dict.fromkeys(subject for block in blocks for subject in block.subjects))
    modes = tuple(dict.fromkeys(block.mode for block in blocks))
    return Preset(
        "trainings", about, subjects, (16, 64, 4, 2), modes, limit_ms=200, limit_gib=30, blocks=blocks
    )


def _data_parallel() -> Preset:
    subjects = tuple(target_subject(each) for each in PARALLEL_TARGETS)
    about = "all-reduces, and whole CNNs trained by several GPUs together, beside one GPU"
    return Preset("ddp", about, subjects, (128, 32, 256), _FOUR_MODES[:3], limit_gib=75, together=True)


def _cnn(text: str) -> Preset:
    subjects = operator_subjects(distinct_operators([named_table(text)]))
    about = f"operators of {text}"
    return Preset(f"cnn:{text}", about, subjects, _USUAL_BATCH_SIZES, (_TF32,), limit_ms=60, limit_gib=60)


def _named_targets(text: str) -> Preset:
    return replace(_targets(text.split(","), f"targets:{text}"), modes=(_TF32,))


PRESETS: dict[str, Callable[[], Preset]] = {
    "quick": _quick,
    "library": _library,
    "founding": _founding,
    "zoo": _zoo,
    "targets": _targets,
    "trainings": _trainings,
    "ddp": _data_parallel,
}
"""Presets without arguments; `preset` also takes ``cnn:`` and ``targets:``."""

_OF_CNNS: dict[str, Callable[[str], Preset]] = {"cnn": _cnn, "targets": _named_targets}

MESSAGE_BYTES = tuple(
    1000 * kilobytes
    for kilobytes in (1, 4, 16, 64, 256, 1000, 4000, 10_000, 25_000, 50_000, 100_000, 200_000, 400_000)
)
"""Bytes on each GPU of a single measured all-reduce."""

BUCKETS = (Replicas(bucket_view=True), Replicas(bucket_mib=1.0), Replicas(bucket_mib=100.0))
"""Ways to add up gradients other than PyTorch's default, measured for the first CNNs."""

SYNC = Replicas(sync_batch_norm=True)
"""Batch norms of all GPUs' images, measured for the CNNs that have some."""

_CNNS_WITH_BUCKETS = 3


def parallel_configurations(
    configurations: Sequence[Configuration], gpu_counts: Sequence[int]
) -> list[Configuration]:
    """Configurations for one GPU, each for every number of GPUs, with all-reduces and other buckets.

    What data parallelism adds hardly depends on the batch size: so the first batch size comes on all numbers of GPUs,
    then other buckets, then the other batch sizes on one GPU and on all. `configurations`: of a preset, mode by mode;
    `batch_size` is that of one GPU. `gpu_counts`: in the order to measure them in, 1 first.
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
