"""The presets of `epochcast profile`: lists of proxy CNNs, operators and target CNNs.

A preset is one line of `PRESETS`. Only a user's own CNN needs a framework here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import proxy_table
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import SchemaError, nearest
from predictor.operators.operators import Operator, is_view
from proxy_cnns.configuration import Configuration, Subject
from proxy_cnns.designs import COMMON_CNNS, LIBRARY_CNNS, common_operators, designed_operators
from proxy_cnns.estimates import estimated_memory_gib, estimated_ms
from proxy_cnns.samples import SAMPLED_MODES, Block, sampled_blocks
from proxy_cnns.spread import spread_order
from proxy_cnns.user_cnns import distinct_operators, named_table, target_subject

__all__ = [
    "FINE_TARGETS",
    "FOUNDING_PROXIES",
    "PARALLEL_TARGETS",
    "PRESETS",
    "TARGETS",
    "Preset",
    "configurations",
    "in_modes",
    "operator_subjects",
    "preset",
]


@dataclass(frozen=True, slots=True)
class Preset:
    """Subjects to measure, batch sizes and modes; the first batch sizes tell most.

    Batch sizes and modes are defaults. A configuration that is estimated above `limit_ms` for one iteration, or
    above `limit_gib` of memory, is left out; `configurations` says which. `blocks`, where there are some, are the parts
    of the whole grid that are measured unless options ask for others. `together`: the GPUs of a machine train each
    configuration together (`proxy_cnns.parallel_plan`).
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


_TF32 = Mode(precision="tf32")
_FOUR_MODES = (
    _TF32,
    Mode(precision="amp_bf16", memory_format="channels_last"),
    Mode(precision="amp_bf16"),
    Mode(precision="fp32"),
)
_SIX_MODES = (
    *_FOUR_MODES,
    Mode(precision="tf32", memory_format="channels_last"),
    Mode(precision="fp32", memory_format="channels_last"),
)

FOUNDING_PROXIES = (
    *("32_3_64", "32_64_64", "16_64_128", "16_128_128", "8_128_256", "8_256_256", "4_256_512", "4_512_512"),
    "2_512_512",  # these nine: the layer shapes of the CIFAR VGG
    *("2_256_256", "2_256_512", "2_512_256", "4_256_256", "4_512_256"),  # with three above: the slides' eight
)
"""The founding study's proxies: nine shapes of the CIFAR VGG and the slides' eight, three of them in both."""

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

FINE_TARGETS = (
    *("vgg_cifar@32", "alexnet@224", "resnet50@224", "mobilenet_v2@224", "densenet121@224", "googlenet@224"),
)
"""CNNs of the fine grid of batch sizes."""

_FINE_BATCH_SIZES = (
    *(64, 16, 256, 4, 1024, 32, 128, 8, 512, 2, 5, 10, 14, 18, 24, 48, 50, 80, 96, 110, 160, 180, 192, 224),
    *(320, 384, 448, 500, 640, 768, 896, 3, 6, 7, 12, 20, 28, 40, 56),
)


def preset(name: str) -> Preset:
    """Preset by its name.

    Parameters
    ----------
    name : str
        One of `PRESETS`; ``cnn:NAME[@IMAGE_SIZE]`` or ``cnn:FILE.py:make_model[@IMAGE_SIZE]`` for the operators
        of one CNN; ``targets:CNN[,CNN...]`` for whole CNNs, named in the same way.

    Raises
    ------
    SchemaError
        If there is no such preset.
    UnknownCnnError, OutOfRangeError
        If there is no such CNN, or not at this image size.
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
    sizes, and of the last one shapes from the whole list. An optimizer step, which no batch size changes, comes
    once. A view, which runs no kernel, does not come. The blocks of a preset come as they are, unless batch sizes or
    modes are asked for.
    """
    wanted = (
        _of_blocks(chosen)
        if chosen.blocks and not (batch_sizes or modes)
        else _of_grid(chosen, batch_sizes, modes)
    )
    kept: list[Configuration] = []
    left_out: list[Configuration] = []
    for configuration in wanted:
        (kept if _affordable(chosen, configuration) else left_out).append(configuration)
    return kept, left_out


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
    """The preset in these modes alone; blocks of TF32 are measured in fp32 where there is no TF32.

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


def _founding() -> Preset:
    subjects = tuple(
        Subject("proxy", name, proxy_table(name).image_size, proxy_table(name)) for name in FOUNDING_PROXIES
    )
    about = "proxy CNNs of the founding study: one convolution each, small images, many batch sizes"
    return Preset("founding", about, subjects, _FOUNDING_BATCH_SIZES, (Mode(precision="fp32"),))


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
    sizes = (64, 16, 256, 32, 128, 8, 512, 4)
    return Preset(
        "zoo",
        about,
        operator_subjects(distinct_operators(tables)),
        sizes,
        _FOUR_MODES,
        limit_ms=30,
        limit_gib=30,
    )


def _targets(
    names: Sequence[str] = TARGETS, name: str = "targets", about: str = "whole CNNs as trained"
) -> Preset:
    subjects = tuple(target_subject(each) for each in names)
    return Preset(name, about, subjects, (64, 16, 256, 32, 128, 8, 512, 4), _FOUR_MODES)


def _fine_targets() -> Preset:
    about = f"{len(FINE_TARGETS)} CNNs at {len(_FINE_BATCH_SIZES)} batch sizes"
    return replace(_targets(FINE_TARGETS, "fine-targets", about), batch_sizes=_FINE_BATCH_SIZES)


def _fine_operators() -> Preset:
    about = f"operators of the {len(FINE_TARGETS)} CNNs of fine-targets, at the same batch sizes"
    subjects = operator_subjects(distinct_operators([named_table(each) for each in FINE_TARGETS]))
    return Preset(
        "fine-operators", about, subjects, _FINE_BATCH_SIZES, _FOUR_MODES, limit_ms=60, limit_gib=60
    )


def _fine() -> Preset:
    whole, parts = _fine_targets(), _fine_operators()
    about = "fine-targets and fine-operators together"
    return replace(whole, name="fine", about=about, subjects=whole.subjects + parts.subjects)


def _data_parallel() -> Preset:
    subjects = tuple(target_subject(each) for each in PARALLEL_TARGETS)
    about = "all-reduces, and whole CNNs trained by several GPUs together, beside one GPU"
    modes = (_TF32, Mode(precision="amp_bf16", memory_format="channels_last"), Mode(precision="amp_bf16"))
    return Preset("ddp", about, subjects, (128, 32, 256), modes, limit_gib=75, together=True)


def _cnn(text: str) -> Preset:
    subjects = operator_subjects(distinct_operators([named_table(text)]))
    about = f"operators of {text}"
    sizes = (64, 16, 256, 32, 128, 8, 512, 4)
    return Preset(f"cnn:{text}", about, subjects, sizes, (_TF32,), limit_ms=60, limit_gib=60)


def _named_targets(text: str) -> Preset:
    return replace(_targets(text.split(","), f"targets:{text}"), modes=(_TF32,))


PRESETS: dict[str, Callable[[], Preset]] = {
    "quick": _quick,
    "library": _library,
    "founding": _founding,
    "zoo": _zoo,
    "targets": partial(_targets),
    "fine": _fine,
    "fine-targets": _fine_targets,
    "fine-operators": _fine_operators,
    "ddp": _data_parallel,
}
"""Presets without arguments; `preset` also takes ``cnn:`` and ``targets:``."""

_OF_CNNS: dict[str, Callable[[str], Preset]] = {"cnn": _cnn, "targets": _named_targets}
