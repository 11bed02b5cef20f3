"""From `epochcast profile --suggest` to the operators that would narrow an answer most."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from epochcast.profiling import ProfileRequest, asked_modes, measuring_request
from predictor.catalogue.devices import Gpu, find_gpu
from predictor.catalogue.modes import Mode
from predictor.checks import batch_sizes_of
from predictor.errors import BackendUnavailableError, SchemaError

if TYPE_CHECKING:
    from predictor.answers.suggest import Suggestion
    from proxy_cnns.runs import Request

_BATCH_SIZES = (64, 16, 128)


def suggested(options: ProfileRequest, out: Path | None) -> "list[Suggestion]":
    """What to measure on the GPU of the options, or this machine's, the most telling first.

    Raises
    ------
    SchemaError
        If an option does not go with it.
    UnknownCnnError, UnknownGpuError
        If there is no such CNN or GPU.
    BackendUnavailableError
        If no GPU is named, and none is here.
    """
    from predictor.answers.suggest import suggest
    from proxy_cnns.user_cnns import named_table

    if options.device == "cpu" or options.framework != "pytorch":
        raise SchemaError(
            "--suggest compares with what was measured on GPUs with PyTorch. Leave out the option."
        )
    gpu = find_gpu(options.gpu or _gpu_here())
    sizes = batch_sizes_of(list(options.batch_sizes)) if options.batch_sizes else _BATCH_SIZES
    tables = [named_table(text) for text in options.suggest]
    known = out if out is not None and out.exists() else None
    return suggest(tables, gpu, _modes(options, gpu), list(sizes), known)


def suggested_request(options: ProfileRequest, suggestions: "list[Suggestion]", out: Path) -> "Request":
    """The request that measures suggestions in their order."""
    from proxy_cnns.configuration import Configuration
    from proxy_cnns.presets import operator_subjects

    configurations = [
        # A run's mode says in which precision it multiplies matrices.
        Configuration(
            operator_subjects([replace(each.operator, fp32_product=False)])[0], each.mode, each.batch_size
        )
        for each in suggestions
    ]
    return measuring_request("suggest:" + ",".join(options.suggest), configurations, options, out)


def _modes(options: ProfileRequest, gpu: Gpu) -> list[Mode]:
    """The modes asked for; else what the framework does on the GPU."""
    from predictor.catalogue.devices import precisions_of

    usual = Mode(precision="tf32" if "tf32" in precisions_of(gpu) else "fp32")
    return asked_modes((usual,), options)


def _gpu_here() -> str:
    from predictor.measurements.table import canonical_gpu_name
    from proxy_cnns.device import gpu_names

    names = gpu_names()
    if not names:
        raise BackendUnavailableError(
            "there is no GPU here that can be read. Name one: --gpu 'NVIDIA H100 PCIe'."
        )
    return canonical_gpu_name(names[0])
