"""What a GPU can sustain: arithmetic and memory rates that a kernel's time is measured against.

Called by `predictor.roofline.features`; calls the GPU catalogue's plain data only.
"""

from dataclasses import dataclass
from math import sqrt

from predictor.errors import OutOfRangeError
from predictor.gpus import Gpu

__all__ = ["ELEMENT_BYTES", "LAUNCH_MS", "Rates", "rates_of"]

LAUNCH_MS = 0.004
"""Shortest time of a kernel on the device; a constant of CUDA GPUs since Kepler, to within a factor of two."""

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp32_or_tf32": 4, "fp16": 2, "amp_fp16": 2, "amp_bf16": 2}

_TENSOR_PEAK = {
    "tf32": "peak_tf32_tflop_per_s",
    "fp32_or_tf32": "peak_tf32_tflop_per_s",
    "fp16": "peak_fp16_tensor_tflop_per_s",
    "amp_fp16": "peak_fp16_tensor_tflop_per_s",
    "amp_bf16": "peak_bf16_tensor_tflop_per_s",
}

# Share of the pin bandwidth that a streaming kernel reaches, by memory technology, and a further share on Kepler,
# which has no L2 large enough to merge its accesses; share of the peak that Kepler's four schedulers can issue
# to its six groups of cores. Architecture facts, not fitted.
_HBM_SHARE, _GDDR_SHARE, _KEPLER_MEMORY_SHARE, _KEPLER_ISSUE_SHARE = 0.88, 0.72, 0.8, 2 / 3
_DATA_CENTRE_CHIPS = ("Tesla", "NVIDIA A", "NVIDIA H", "NVIDIA L", "NVIDIA B", "NVIDIA T4", "GRID")


@dataclass(frozen=True, slots=True)
class Rates:
    """Sustained rates of one GPU at one precision.

    `flop_per_ms` is what convolutions and matrix products run against, `fp32_flop_per_ms` what everything outside
    the tensor cores does; `tensor` says whether the two differ.
    """

    flop_per_ms: float
    fp32_flop_per_ms: float
    bytes_per_ms: float
    element_bytes: int
    tensor: bool


def rates_of(gpu: Gpu, precision: str) -> Rates:
    """Sustained rates of `gpu` at `precision`.

    Raises
    ------
    OutOfRangeError
        If the precision is unknown here.

    Notes
    -----
    Data-centre cards run power-capped: their sustained clock is taken as the geometric mean of base and boost.
    Half precision on a GPU without tensor cores runs at the fp32 rate, because training accumulates in fp32.
    """
    if precision not in ELEMENT_BYTES:
        raise OutOfRangeError(
            f"precision {precision!r} is not known here. Known: {', '.join(ELEMENT_BYTES)}."
        )
    kepler = gpu.generation == "kepler"
    clock = _sustained_clock_share(gpu) * (_KEPLER_ISSUE_SHARE if kepler else 1.0)
    memory = (_HBM_SHARE if gpu.memory_type.startswith("HBM") else _GDDR_SHARE) * (
        _KEPLER_MEMORY_SHARE if kepler else 1.0
    )
    fp32 = gpu.peak_fp32_tflop_per_s * 1e9 * clock
    peak = getattr(gpu, _TENSOR_PEAK[precision]) if precision in _TENSOR_PEAK else None
    return Rates(
        flop_per_ms=fp32 if peak is None else peak * 1e9 * clock,
        fp32_flop_per_ms=fp32,
        bytes_per_ms=gpu.memory_bandwidth_gb_per_s * 1e6 * memory,
        element_bytes=ELEMENT_BYTES[precision],
        tensor=peak is not None,
    )


def _sustained_clock_share(gpu: Gpu) -> float:
    if not gpu.name.startswith(_DATA_CENTRE_CHIPS) or gpu.base_clock_ghz is None:
        return 1.0
    return sqrt(gpu.base_clock_ghz / gpu.boost_clock_ghz)
