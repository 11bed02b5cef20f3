"""What this machine has for measuring, what is missing, and the command that installs it.

No device is opened; GPUs are read through NVIDIA's management library.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from proxy_cnns.device import driver_version, gpu_names, host_name

_TWO_STEPS = "pip install 'setuptools>=70.1,<82' && pip install --no-build-isolation chainer==7.8.1"
_CUPY = "pip install 'epochcast[cuda12]' (CUDA 12) or 'epochcast[cuda13]' (CUDA 13)"
_CUDNN = "pip install nvidia-cudnn-cu12 (CUDA 12) or nvidia-cudnn-cu13 (CUDA 13)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: the version found (None: it is missing), its purpose, and the next step where there is one."""

    what: str
    found: str | None
    purpose: str
    next_step: str = ""


def examine() -> list[Finding]:
    """Find processor, drivers, GPUs and packages."""
    return [
        Finding("processor", host_name(), "measured with --device cpu; feeds the GPU"),
        *_gpus(),
        _pytorch(),
        _package("chainer", ("chainer",), "the framework chainer", _TWO_STEPS),
        _package("CuPy", ("cupy-cuda12x", "cupy-cuda13x", "cupy"), "Chainer on a GPU", _CUPY),
        _package("cuDNN", ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"), "what Chainer runs on a GPU", _CUDNN),
        _package("Pillow", ("pillow",), "loading images: profile input", "pip install 'epochcast[input]'"),
    ]


def _gpus() -> list[Finding]:
    purpose = "clocks, temperature and other processes beside every measurement"
    names = gpu_names()
    if names is None:
        return [Finding("nvidia-ml-py", None, purpose, "pip install 'epochcast[gpu]'")]
    library = Finding("nvidia-ml-py", _version("nvidia-ml-py") or "present", purpose)
    if not names:
        step = "install NVIDIA's driver, or start the container with --gpus all; without a GPU: --device cpu"
        return [library, Finding("GPU", None, "everything but --device cpu", step)]
    driver = Finding("NVIDIA driver", driver_version(), "any GPU")
    return [library, driver, *(_gpu(number, name) for number, name in enumerate(names))]


def _gpu(number: int, name: str) -> Finding:
    from predictor.catalogue.devices import find_gpu
    from predictor.errors import UnknownGpuError

    try:
        catalogue_name = find_gpu(name).name
    except UnknownGpuError:
        step = "add it to datasets/gpus.csv with its sources"
        return Finding(f"GPU {number}", name, "not in the catalogue", step)
    prefix = f"{catalogue_name} " * (catalogue_name != name)
    return Finding(f"GPU {number}", name, f"{prefix}in the catalogue")


def _pytorch() -> Finding:
    purpose = "the framework pytorch"
    torch_version = _version("torch")
    if torch_version is None:
        return Finding("PyTorch", None, purpose, "pip install 'epochcast[torch]'")
    if "+cpu" in torch_version and Path("/proc/driver/nvidia/version").exists():
        step = "install its CUDA build: https://pytorch.org/get-started says how"
        return Finding("PyTorch", torch_version, f"{purpose}; this build has no CUDA", step)
    return Finding("PyTorch", torch_version, purpose)


def _package(what: str, names: tuple[str, ...], purpose: str, next_step: str) -> Finding:
    for name in names:
        package_version = _version(name)
        if package_version is not None:
            return Finding(what, f"{name} {package_version}", purpose)
    return Finding(what, None, purpose, next_step)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return "present" if find_spec(name) is not None else None
