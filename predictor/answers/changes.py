"""Changes of a question, each asked again: another mode, batch size, loader or link.

Explanations compare modes with the one asked, checkups suspect what a user did unawares, memory plans choose among
modes, and comparisons hint at the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from predictor.answers.answer import PredictionRow, answer_to
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion, Training
from predictor.catalogue.devices import Gpu, default_precision, fast_mode_of, is_cpu, precisions_of
from predictor.catalogue.links import all_links, find_link
from predictor.catalogue.modes import FLOAT32_MATMUL_PRECISIONS, MEMORY_FORMATS, Habits, Mode, chainer_lacks
from predictor.checks import as_list
from predictor.cnns.layer_table import ONE_BY_ONE, LayerTable
from predictor.operator_types import RESIZING_TYPES
from predictor.operators.operators import trained_tensors
from predictor.operators.optimizers import UPDATES

_WORKERS = (0, 1, 2, 4, 8)
_SLOWER_LINK = 0.7  # of the bandwidth, at most


@dataclass(frozen=True, slots=True)
class Change:
    """A question with something changed: `name` is its kind, `what` its words, `remedy` what undoes it."""

    name: str
    what: str
    remedy: str
    question: Question

    def row(self) -> PredictionRow:
        """Answer of the changed question, which is about one training, whether it fits in memory or not."""
        return answer_to(ResolvedQuestion.of(self.question, "predict"), must_fit=False).rows()[0]


def _with_step(question: Question, **changes: Any) -> list[object]:
    """The question's CNNs with columns of their recorded steps changed."""
    return [
        replace(cnn, step=replace(cnn.step, **changes))
        if isinstance(cnn, LayerTable) and cnn.step is not None
        else cnn
        for cnn in as_list(question.cnn)
    ]


def in_mode(question: Question, gpus: Sequence[Gpu], precision: str, memory_format: str) -> Question:
    """The question in another mode, as if its step had been recorded in it."""
    cnns = _with_step(question, precision=precision, memory_format=memory_format)
    products = question.float32_matmul_precision if precision == "tf32" else None
    return replace(
        question,
        cnn=cnns,
        gpus=gpus,
        precision=precision,
        memory_format=memory_format,
        float32_matmul_precision=products,
    )


def fast_training(question: Question, training: Training, gpu: Gpu) -> Training | None:
    """The training in the fastest mode in common use on a GPU (`fast_mode_of`); None where there is none."""
    mode = fast_mode_of(gpu, question.framework, question.memory_format or "nchw")
    return None if mode is None else replace(training, precision=mode[0], memory_format=mode[1])


def other_modes(gpu: Gpu, mode: Mode) -> list[Mode]:
    """Modes that a GPU and the framework have, in other precisions, memory formats and products in TF32; of no CPU."""
    if is_cpu(gpu.name):
        return []
    settings = () if mode.matmul_setting is None else FLOAT32_MATMUL_PRECISIONS
    modes = [
        *(replace(mode, float32_matmul_precision=setting) for setting in settings),
        *(
            replace(mode, precision=precision, memory_format=memory_format)
            for precision, memory_format in product(precisions_of(gpu), MEMORY_FORMATS)
        ),
    ]
    return [changed for changed in modes if changed != mode and _is_offered(changed)]


def _is_offered(mode: Mode) -> bool:
    """Whether the framework has the mode."""
    return mode.framework != "chainer" or chainer_lacks(mode) is None


def mode_changes(question: Question) -> Iterator[Change]:
    """Precisions and memory formats in which the training may run instead of those asked."""
    [(gpu, mode)] = ResolvedQuestion.of(question).devices
    precision, memory_format = mode.precision, mode.memory_format
    amp, plain = precision.startswith("amp"), default_precision(gpu, mode.framework)
    changes: list[tuple[str, str, str, str, str]] = []
    if memory_format == "channels_last":
        remedy = "Convert model and images by .to(memory_format=torch.channels_last)."
        changes.append(("memory_format", "NCHW instead of channels_last", remedy, precision, "nchw"))
    elif amp:
        changes.append(("memory_format", "channels_last, not NCHW", "", precision, "channels_last"))
    if amp:
        remedy = "Run forward pass and loss under torch.autocast."
        changes.append(("precision", f"{plain} instead of {precision}", remedy, plain, memory_format))
    elif "amp_bf16" in precisions_of(gpu) and precision in ("fp32", "tf32"):
        changes.append(("precision", "mixed precision, not asked", "", "amp_bf16", memory_format))
    if precision == "tf32":
        remedy = "Leave torch.backends.cudnn.allow_tf32 on."
        changes.append(("precision", "fp32 products instead of TF32", remedy, "fp32", memory_format))
    for name, what, remedy, changed_precision, changed_format in changes:
        if _is_offered(replace(mode, precision=changed_precision, memory_format=changed_format)):
            yield Change(name, what, remedy, in_mode(question, [gpu], changed_precision, changed_format))


def batch_changes(question: Question, batch_size: int) -> Iterator[Change]:
    """Half and twice the batch size, and as many images on each of several GPUs; a recorded step knows its batch."""
    if question.step is not None:
        return
    sizes = {batch_size * 2, batch_size * question.n_gpus}
    if batch_size % (2 * question.n_gpus) == 0:
        sizes.add(batch_size // 2)
    for size in sorted(sizes - {batch_size}):
        changed, what = replace(question, batch_sizes=[size]), f"batch {size:,} instead of {batch_size:,}"
        yield Change("batch", what, "Compare images/s, not iterations.", changed)


def worker_changes(question: Question, remedy: str) -> list[Change]:
    """Fewer workers that load images than asked."""
    numbers = [n for n in _WORKERS if not isinstance(question.workers, int) or n < question.workers]
    words = "loading by {} workers keeps the GPU waiting"
    questions = [replace(question, workers=n) for n in numbers]
    return [Change("loading", words.format(fewer.workers), remedy, fewer) for fewer in questions]


def parallel_changes(question: Question) -> Iterator[Change]:
    """The other of PyTorch's ways to spread a mini-batch over GPUs of one machine; none where the other cannot."""
    plain = question.framework == "pytorch" and question.capture == "eager" and not question.sync_batch_norm
    if question.n_gpus == 1 or question.nodes > 1 or not plain:
        return
    if question.parallel == "ddp":
        remedy = "Use DistributedDataParallel, a process per GPU (torchrun)"
        changed = replace(question, parallel="dp")
        yield Change("parallel", "nn.DataParallel, not DistributedDataParallel", remedy, changed)
        return
    changed = replace(question, cnn=_with_step(question, parallel=None), parallel="ddp")
    yield Change("parallel", "DistributedDataParallel, not asked", "", changed)


_HABITS = {
    "deterministic": (
        "deterministic algorithms fill each new tensor",
        "Set torch.utils.deterministic.fill_uninitialized_memory = False, which keeps them deterministic",
    ),
    "detect_anomaly": (
        "anomaly detection looks for NaN in each gradient",
        "Leave torch.autograd.set_detect_anomaly off but to find a NaN",
    ),
}
"""What PyTorch's switches do, and what to do instead."""

_OF_RESIZING = ", and resize bilinearly by indices", ", and resize by mode='nearest'"


def _switch_in_words(name: str, table: LayerTable) -> tuple[str, str]:
    """What a switch does to this CNN, and what to do instead."""
    effect, remedy = _HABITS[name]
    resizes = name == "deterministic" and any(layer.type == "upsample" for layer in table)
    return effect + _OF_RESIZING[0] * resizes, remedy + _OF_RESIZING[1] * resizes


def habits_of(question: Question, table: LayerTable) -> Iterator[Change]:
    """What this CNN's training pays for, each left out: switches, of a recorded step waits and loops over tensors."""
    step = question.step
    for name in Habits._fields:
        if getattr(question, name):
            off: dict[str, Any] = {name: False}
            changed = replace(question, cnn=_with_step(question, **{name: None}), **off)
            yield Change(name, *_switch_in_words(name, table), changed)
    of_scaler = question.precision == "amp_fp16"
    waits = 0 if step is None else (step.update_waits or 0) - of_scaler
    if waits > 0:
        effect = (
            f"the host waits {waits} times for the GPU after the forward pass (.item(), printing the loss)"
        )
        cnns = _with_step(question, update_waits=None)
        yield Change("waits", effect, "Read losses every hundred iterations", replace(question, cnn=cnns))
    if step is not None and step.optimizer_form == "loop" and UPDATES[question.optimizer].form != "loop":
        tensors = trained_tensors(table)
        beside = max(0, round((step.beside or 0) - ONE_BY_ONE * tensors)) or None
        cnns = _with_step(question, optimizer_form="foreach", beside=beside)
        effect, remedy = (
            "the optimizer updates tensor by tensor",
            "Leave out foreach=False, or pass fused=True",
        )
        yield Change("loop", effect, remedy, replace(question, cnn=cnns))


def habit_changes(question: Question) -> Iterator[Change]:
    """PyTorch's switches that are off, each on."""
    if question.framework == "pytorch" and question.capture == "eager" and not question.is_whole:
        [table] = ResolvedQuestion.of(question).tables
        for name in Habits._fields:
            effect, remedy = _switch_in_words(name, table)
            on: dict[str, Any] = {name: True}
            if not getattr(question, name):
                yield Change(name, effect, f"{remedy}.", replace(question, **on))


def link_changes(question: Question, name: str | None) -> Iterator[Change]:
    """Clearly slower links of the same kind between the GPUs than the one of this name; none for one GPU."""
    if name is None:
        return
    used = find_link(name)
    slow = _SLOWER_LINK * used.bandwidth_gb_per_s(question.n_gpus)
    for link in all_links():
        if link.joins == used.joins and link.bandwidth_gb_per_s(question.n_gpus) < slow:
            what = f"{link.name} between the GPUs, not {used.name}"
            yield Change("link", what, "Look at nvidia-smi topo -m.", replace(question, link=link.name))


def resizing_changes(question: Question) -> Iterator[Change]:
    """Bilinear resizing in NCHW, where the training resizes otherwise; in channels-last it is the memory format's."""
    [table] = ResolvedQuestion.of(question).tables
    layers = (
        replace(layer, type="upsample") if layer.type in RESIZING_TYPES else layer for layer in table.layers
    )
    bilinear = replace(table, layers=tuple(layers))
    if bilinear != table and question.framework == "pytorch":
        remedy, changed = "Resize by mode='nearest', or in channels-last.", replace(question, cnn=bilinear)
        yield Change("resizing", "its maps are resized bilinearly in NCHW", remedy, changed)
