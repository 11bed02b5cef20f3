"""The fastest mode in common use on each GPU, beside what the framework does unless told otherwise."""

from predictor.catalogue.devices import Gpu, is_cpu

__all__ = ["fast_mode_of"]

_AMP_BF16, _AMP_FP16 = 8.0, 7.0  # compute capability from which tensor cores have them


def fast_mode_of(gpu: Gpu, framework: str, memory_format: str = "nchw") -> tuple[str, str] | None:
    """Precision and memory format of the fastest mode in common use on a GPU; None where there is none.

    Notes
    -----
    PyTorch alone: AMP in bf16 with channels-last from Ampere on, AMP in fp16 on Volta and Turing, whose tensor cores
    have no bf16. Older GPUs have no tensor cores.

    Examples
    --------
    >>> from predictor.catalogue.devices import find_gpu
    >>> fast_mode_of(find_gpu("A10G"), "pytorch"), fast_mode_of(find_gpu("T4"), "pytorch")
    (('amp_bf16', 'channels_last'), ('amp_fp16', 'nchw'))
    """
    if framework != "pytorch" or is_cpu(gpu.name) or gpu.tensor_cores is None:
        return None
    if gpu.compute_capability >= _AMP_BF16:
        return "amp_bf16", "channels_last"
    return ("amp_fp16", memory_format) if gpu.compute_capability >= _AMP_FP16 else None
