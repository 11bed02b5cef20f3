"""The presets of `epochcast profile`: what is measured, and in which order, those that teach most first.

A preset is one entry of datasets/profiles/presets.json: proxy CNNs, operators or target CNNs, with their batch sizes
and modes. Only a user's own CNN needs a framework here.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import FOUNDING_PROXIES, proxy_table
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import SchemaError, nearest
from predictor.files import data_file
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.operators import Operator, as_run, is_view
from proxy_cnns.configuration import Configuration, Replicas, Subject, mode_of
from proxy_cnns.designs import common_operators, designed_operators, spread_order, training_operators
from proxy_cnns.estimates import estimated_memory_gib, estimated_ms
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


PRESETS: dict[str, dict[str, Any]] = json.loads(data_file("profiles/presets.json").read_text("utf-8"))
"""Presets without arguments: fields of `Preset`, and what `_shipped` reads."""

CNN_PREFIXES = ("cnn", "targets")
"""Presets of named CNNs: ``cnn:NAME`` and ``targets:NAME,...``."""


def preset(name: str) -> Preset:
    """Preset by its name.

    `name`: one of `PRESETS`; ``cnn:NAME[@IMAGE_SIZE]`` or ``cnn:FILE.py:make_model[@IMAGE_SIZE]`` for the operators of
    one CNN; ``targets:CNN[,CNN...]`` for whole CNNs, named in the same way. SchemaError if there is no such preset;
    UnknownCnnError or OutOfRangeError if there is no such CNN, or not at this image size.
    """
    family, colon, cnns = name.partition(":")
    if colon and cnns.strip() and family in CNN_PREFIXES:
        batch_sizes, modes = tuple(PRESETS["targets"]["batch_sizes"]), (Mode(precision="tf32"),)
        if family == "targets":
            subjects = tuple(map(target_subject, cnns.split(",")))
            return Preset(name, PRESETS["targets"]["about"], subjects, batch_sizes, modes)
        subjects = operator_subjects(distinct_operators([named_table(cnns)]))
        return Preset(name, f"operators of {cnns}", subjects, batch_sizes, modes, limit_ms=60, limit_gib=60)
    if family in CNN_PREFIXES and name not in PRESETS:
        raise SchemaError(
            f"preset {name!r} names no CNN behind the colon. Try: {family}:resnet50, {family}:resnet50@64 or "
            f"{family}:FILE.py:make_model."
        )
    if name not in PRESETS:
        names = [*PRESETS, *(f"{prefix}:" for prefix in CNN_PREFIXES)]
        raise SchemaError(
            f"no preset is called {name!r}. Nearest: {nearest(name, names)}; known: {', '.join(PRESETS)}, "
            "cnn:NAME[@IMAGE_SIZE], cnn:FILE.py:make_model[@IMAGE_SIZE], targets:NAME[@IMAGE_SIZE],..."
        )
    return _shipped(name)


def configurations(
    chosen: Preset, batch_sizes: Sequence[int] | None = None, modes: Sequence[Mode] | None = None
) -> tuple[list[Configuration], list[Configuration]]:
    """Configurations in the order to measure them in, and those left out as too long or too large.

    They come mode by mode, and in each mode batch size by batch size: a budget that ends early leaves whole batch
    sizes, and of the last one shapes from the whole list. An optimizer step, which no batch size changes, comes once. A
    view, which runs no kernel, does not come. `batch_sizes`: in place of the preset's. `modes`: in place of the
    preset's. The blocks of a preset come only if neither is given.
    """
    blocks = chosen.blocks
    if not blocks or batch_sizes or modes:
        sizes = tuple(batch_sizes or chosen.batch_sizes)
        blocks = tuple(Block(mode, size, chosen.subjects) for mode in modes or chosen.modes for size in sizes)
    kept: list[Configuration] = []
    left_out: list[Configuration] = []
    for configuration in dict.fromkeys(_of_blocks(blocks)):
        work = (configuration.subject, configuration.batch_size, configuration.mode)
        fits = estimated_ms(*work) <= chosen.limit_ms and estimated_memory_gib(*work) <= chosen.limit_gib
        (kept if fits else left_out).append(configuration)
    return kept, left_out


def _of_blocks(blocks: Sequence[Block]) -> Iterator[Configuration]:
    """Configurations of the operators that each mode runs: behind a group norm they depend on the mode."""
    first_sizes: dict[tuple[Mode, Subject], int] = {}
    for block in blocks:
        for subject in block.subjects:
            operator, mode = subject.operator, block.mode
            if operator and is_view(operator, mode.framework):
                continue
            if operator and operator.type == "optimizer":
                first_size = first_sizes.setdefault((mode, subject), block.batch_size)
                if first_size != block.batch_size:
                    continue
            runs = operator and as_run(operator, mode.framework, mode.memory_format, mode.precision)
            changed = runs and runs != operator and replace(subject, name=runs.name, operator=runs)
            yield Configuration(changed or subject, mode, block.batch_size)


def in_modes(chosen: Preset, modes: Sequence[Mode]) -> Preset:
    """The preset in only these modes; without TF32 its TF32 blocks run in fp32, in place of its own fp32 blocks.

    Blocks of a mode without its like, the same precision and memory format, among `modes` are left out.
    """
    like = {(mode.precision, mode.memory_format): mode for mode in modes}
    without_tf32 = not any(precision == "tf32" for precision, _ in like)
    blocks = []
    for block in chosen.blocks:
        words = (block.mode.precision, block.mode.memory_format)
        if without_tf32 and words[0] == "fp32":
            continue
        if without_tf32 and words[0] == "tf32":
            words = ("fp32", words[1])
        if words in like:
            blocks.append(replace(block, mode=like[words]))
    return replace(chosen, modes=tuple(modes), blocks=tuple(blocks))


def operator_subjects(operators: Sequence[Operator]) -> tuple[Subject, ...]:
    """Operators as subjects, in an order in which every first part holds shapes from the whole list."""
    return tuple(
        Subject("operator", operator.name, operator.in_height or 1, operator=operator)
        for operator in spread_order(operators)
    )


def sampled_blocks(
    subjects: Sequence[Subject], shares: Sequence[Mapping[str, Any]], batch_sizes: Sequence[int]
) -> tuple[Block, ...]:
    """A sample of operators in every mode, in the order to measure it in.

    The time of an operator in another mode is that in TF32 times a ratio, which follows its type, its size and how its
    channels are aligned. So TF32 gets most of the time, and each other mode a sample, nested in what TF32 measures: its
    shapes are the first ones of a list whose every first part is spread over all of it. Each shape is measured at two
    of the batch sizes, half of the list apart: with the same number of rows, trees fitted on two batch sizes of every
    shape missed the zoo's CNNs by 7 % at batch size 8; fitted on all shapes at 64 and half of them at 16, by 10 %.

    `subjects`: operators, in an order in which every first part is spread over the list. `shares`: what each `mode`
    gets, in the order to measure them in: an early end leaves every mode coarse rather than a mode missing. `products`
    of convolutions and dense layers, `light` of all else, as shares of those in the list, each shape at its first or,
    with `second`, its second batch size; `slow` is the number of grouped convolutions where each costs 0.1 to 1.9 s at
    its first call: in channels-last and in fp16.
    """
    kinds: tuple[list[Subject], ...] = ([], [], [])
    slow, products, light = kinds
    for subject in subjects:
        operator = subject.operator
        entry = None if operator is None else OPERATOR_TYPES[operator.type]
        is_grouped = operator is not None and (operator.groups or 1) > 1
        if entry is not None and entry.is_convolution and is_grouped:
            slow.append(subject)
        else:
            (light if entry is None or entry.product is None else products).append(subject)
    rank = {subject: position for kind in kinds for position, subject in enumerate(kind)}
    measured: set[tuple[Mode, int, Subject]] = set()
    blocks = []
    for share in shares:
        mode = mode_of(share["mode"])
        sampled = products[: round(share["products"] * len(products))]
        sampled += light[: round(share["light"] * len(light))]
        sampled += slow[: round(share.get("slow", share["products"] * len(slow)))]
        for position, batch_size in enumerate(batch_sizes):
            first = (position - len(batch_sizes) // 2 * share.get("second", False)) % len(batch_sizes)
            new = tuple(
                subject
                for subject in sampled
                if rank[subject] % len(batch_sizes) == first and (mode, batch_size, subject) not in measured
            )
            measured.update((mode, batch_size, subject) for subject in new)
            blocks.append(Block(mode, batch_size, new))
    return tuple(blocks)


def _shipped(name: str) -> Preset:
    """A preset of `PRESETS`, whose `subjects` names what makes them."""
    entry = PRESETS[name]
    blocks: tuple[Block, ...] = ()
    match entry["subjects"]:
        case "designed":
            operators = designed_operators(quick=name == "quick") + common_operators(entry["cnns"])
            subjects = operator_subjects(operators)
        case "zoo":
            subjects = operator_subjects(distinct_operators([zoo_cnn(cnn) for cnn in zoo_names()]))
        case "proxies":
            tables = {proxy: proxy_table(proxy) for proxy in FOUNDING_PROXIES}
            subjects = tuple(
                Subject("proxy", proxy, table.image_size, table) for proxy, table in tables.items()
            )
        case "trainings":
            blocks = tuple(
                Block(mode, size, operator_subjects(operators))
                for modes, sizes, operators in training_operators()
                for mode in modes
                for size in sizes
            )
            subjects = tuple(dict.fromkeys(subject for block in blocks for subject in block.subjects))
        case _:
            subjects = tuple(map(target_subject, entry["cnns"]))
    if "sample" in entry:
        blocks = sampled_blocks(subjects, entry["sample"], entry["sampled_batch_sizes"])
    return Preset(
        name,
        entry["about"].format(n_cnns=len(zoo_names())),
        subjects,
        tuple(entry["batch_sizes"]),
        tuple(map(mode_of, entry["modes"])),
        blocks=blocks,
        **{field: entry[field] for field in ("limit_ms", "limit_gib", "together") if field in entry},
    )


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
    sizes = list(dict.fromkeys(configuration.batch_size for configuration in configurations))
    modes = list(dict.fromkeys(configuration.mode for configuration in configurations))
    ends = (1, max(gpu_counts))

    def part(
        batch_sizes: Sequence[int], in_modes: Sequence[Mode], counts: Sequence[int]
    ) -> list[Configuration]:
        grid = product(batch_sizes, configurations)
        chosen = [config for size, config in grid if config.batch_size == size and config.mode in in_modes]
        grids = product(chosen, counts)
        return [replace(config, replicas=replace(config.replicas, n_gpus=n)) for config, n in grids]

    exact = replace(modes[0], precision="fp32")
    message_bytes = PRESETS["ddp"]["all_reduce_bytes"]
    messages = [Subject("all_reduce", f"all_reduce_{n}", 1, message_bytes=n) for n in message_bytes]
    first_cnns = product(configurations[:_CNNS_WITH_BUCKETS], BUCKETS)
    ordered = [
        *(Configuration(message, exact, 1, Replicas(n)) for n in gpu_counts if n > 1 for message in messages),
        *part(sizes[:1], modes[:2], gpu_counts),
        *(replace(config, replicas=replace(buckets, n_gpus=ends[1])) for config, buckets in first_cnns),
        *(
            replace(config, replicas=replace(SYNC, n_gpus=config.replicas.n_gpus))
            for config in part(sizes[:1], modes[:2], gpu_counts[1:])
            if any(layer.type == "batch_norm" for layer in config.subject.table or ())
        ),
        *part(sizes[1:], modes[:2], ends),
        *part(sizes, modes[2:], ends),
        *part(sizes, modes, gpu_counts),
    ]
    return list(dict.fromkeys(ordered))
