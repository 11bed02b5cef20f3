"""GPUs and CPUs: specifications, names, precisions, peak rates, and the rates that they sustain.

Units: clocks in GHz, bandwidth in GB/s (10^9 bytes), memory and L2 cache in GiB and MiB, peaks in TFLOP/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from predictor.catalogue.rows import read_rows
from predictor.errors import OutOfRangeError, SchemaError, UnknownGpuError, nearest
from predictor.files import data_file


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as software sees it: of a card with several chips (K80, M60, ...), one chip.

    Every field is a column of `datasets/gpus.csv`; `datasets/README.md` gives its meaning, unit and source.
    None where no vendor's sheet gives the value. Peaks are at the boost clock; tensor peaks are dense, with
    sums in fp32 as training does.
    """

    name: str
    chip: str
    architecture: str
    generation: str
    compute_capability: float
    sm_count: int
    cuda_cores: int
    tensor_cores: int | None
    base_clock_ghz: float | None
    boost_clock_ghz: float
    peak_fp32_tflop_per_s: float
    peak_fp16_tflop_per_s: float | None  # outside the tensor cores
    peak_fp16_tensor_tflop_per_s: float | None
    peak_bf16_tensor_tflop_per_s: float | None
    peak_tf32_tflop_per_s: float | None
    memory_gib: float  # as sold
    driver_memory_mib: float | None  # as nvidia-smi shows it
    memory_type: str
    memory_bus_bits: int
    memory_bandwidth_gb_per_s: float  # 10^9 bytes
    l2_mib: float | None
    tdp_w: float | None  # of the whole card
    chips_per_card: int
    nvlink_generation: int | None  # 0: it has none
    pcie_generation: int | None
    released: str
    aliases: tuple[str, ...]
    shared_names: tuple[str, ...]  # names that other GPUs bear as well, so that they choose none
    source: str
    source_url: str
    driver_memory_source: str
    retrieved_on: str
    verified: bool
    notes: str

    def __hash__(self) -> int:
        return hash(self.name)  # thirty fields would take longer than what is cached by them

    @property
    def driver_memory_gib(self) -> float:
        """Memory that the driver shows, in GiB: as seen, else a share of the marketed size.

        The share is judged from the 45 GPUs of which it was seen, within 3 %: 15/16 of a data centre card's GDDR, whose
        ECC takes the rest; 0.95 of what a GPU shares with its CPU; all of any other memory.
        """
        if self.driver_memory_mib is not None:
            return self.driver_memory_mib / 1024
        if self.memory_type.startswith("LPDDR"):
            return 0.95 * self.memory_gib
        has_ecc = self.memory_type.startswith("GDDR") and self.name.startswith(_WITH_ECC)
        return self.memory_gib * (15 / 16 if has_ecc else 1.0)

    @property
    def memory_in_words(self) -> str:
        """``15 GiB``, and whether the driver's figure is derived."""
        derived = "" if self.driver_memory_mib is not None else ", derived from the marketed size"
        return f"{self.driver_memory_gib:.4g} GiB{derived}"


def load_gpus(path: Path) -> tuple[Gpu, ...]:
    """Read a catalogue of GPUs, in the file's order; SchemaError as `read_rows`, or if it has no rows."""
    gpus = read_rows(Gpu, path)
    if not gpus:
        raise SchemaError(f"{path.name} holds no GPU.")
    return gpus


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, oldest generation first; read once per process."""
    return load_gpus(data_file("gpus.csv"))


@cache
def generations() -> tuple[str, ...]:
    """Generations of the catalogue's GPUs, oldest first, as its rows are sorted."""
    return tuple(dict.fromkeys(gpu.generation for gpu in all_gpus()))


def gpus_of_generation(name: str | None) -> list[Gpu]:
    """GPUs of a generation, such as ``turing``, in the catalogue's order; all GPUs if `name` is None.

    SchemaError if no generation has this name, in any case; the message lists all.
    """
    if name is not None and name.casefold() not in generations():
        raise SchemaError(
            f"no generation is called {name!r}. Nearest: {nearest(name, generations())}; "
            f"known: {', '.join(generations())}."
        )
    return [gpu for gpu in all_gpus() if name is None or gpu.generation == name.casefold()]


# A name's last word may be its memory: "T4 16GB", "A100 (80 GB)".
_MEMORY_SUFFIX = re.compile(r"^(?P<stem>.*\S)[\s_\-(]+(?P<gib>\d+)\s*gi?b?\)?$", re.IGNORECASE)
_OTHER_VENDORS = re.compile(
    r"\b(amd|radeon|instinct|mi\d{2,3}x?|rx\s?\d{4}|apple|mps|m[1-5](\s(pro|max|ultra))?|tpu|v\d\w?(lite)?pod|gaudi"
    r"|trainium|inferentia\d?|intel|arc\s[ab]\d{3})\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"(?P<n>\d+)\s*[x×*]\s*(?P<gpu>\S.*)|(?P<gpu_first>.*\S)\s*[x×*]\s*(?P<n_last>\d+)", re.IGNORECASE
)
"""Several GPUs in one name: "2x T4", "T4 x2"."""
_WITH_ECC = ("Tesla", "NVIDIA A", "NVIDIA L", "NVIDIA T4")
_VENDOR_WORDS = re.compile("nvidia|tesla|geforce|quadro")


@lru_cache(maxsize=4096)
def find_gpu(name: str) -> Gpu:
    """Find the GPU of a name.

    `name`: a canonical name or an alias, such as a driver reports or a cloud writes. Case, spaces, dashes and the words
    NVIDIA, Tesla, GeForce and Quadro do not matter, nor GTX and RTX of a GeForce (``"4090"``); a memory size may follow
    (``"T4 16GB"``). UnknownGpuError if no GPU has this name (the nearest are listed), or several have (``"V100"``; all
    are listed).

    >>> find_gpu("rtx-3090").name
    'GeForce RTX 3090'
    >>> find_gpu("A10").name
    'NVIDIA A10'
    """
    gpus = _candidates(name)
    if len(gpus) == 1:
        return gpus[0]
    if gpus:
        listed = ", ".join(repr(gpu.name) for gpu in gpus)
        raise UnknownGpuError(f"{name!r} fits several GPUs. Say which: {listed}.")
    if _OTHER_VENDORS.search(name):
        raise UnknownGpuError(
            f"{name!r} is of another vendor: only NVIDIA GPUs are known. `epochcast gpu list` shows all "
            f"{len(all_gpus())}."
        )
    several = _SEVERAL.fullmatch(name.strip())
    if several and _candidates(gpu := several["gpu"] or several["gpu_first"]):
        raise UnknownGpuError(
            f"{name!r} is {several['n'] or several['n_last']} GPUs: give the name of one, {gpu!r}, and their number as "
            "n_gpus (--n-gpus), with the batch size of all of them."
        )
    if _key(name) == "cpu":
        raise UnknownGpuError(
            f"{name!r} is not one CPU: give the name that stands in its measurements, such as 'cpu:Apple M2'. "
            "`epochcast profile --device cpu` measures this machine's and prints the question to ask."
        )
    from predictor.catalogue.offers import load_offers  # which needs this module

    for offer in load_offers():
        if offer.instance.casefold() == name.strip().casefold():
            number = f", and {offer.gpu_count:g} as n_gpus (--n-gpus)" if offer.gpu_count > 1 else ""
            raise UnknownGpuError(
                f"{name!r} is a machine of {offer.provider} with {offer.gpu_count:g}x {offer.gpu}: "
                f"give the GPU's name, {offer.gpu!r}{number}."
            )
    raise UnknownGpuError(
        f"no GPU is called {name!r}. Nearest: {_nearest_names(name)}. "
        f"`epochcast gpu list` shows all {len(all_gpus())}."
    )


_SERIES = "?tx"
"""Stands for GTX or RTX of a GeForce, where a name leaves it out: "1650 mobile", "4090"."""


def _candidates(name: str) -> tuple[Gpu, ...]:
    """GPUs that a name may mean; where it ends in a memory size, those with that memory."""
    exact, bare = _index()
    gpus = exact.get(_key(name)) or bare.get(_bare_key(name)) or bare.get(_SERIES + _bare_key(name), ())
    if gpus:
        return gpus
    match = _MEMORY_SUFFIX.match(name.strip())
    if match is None:
        return ()
    return tuple(gpu for gpu in _candidates(match["stem"]) if gpu.memory_gib == float(match["gib"]))


@cache
def _index() -> tuple[Mapping[str, tuple[Gpu, ...]], Mapping[str, tuple[Gpu, ...]]]:
    """Names with vendor words, and names without, each with its GPUs."""
    exact: dict[str, dict[Gpu, None]] = {}
    bare: dict[str, dict[Gpu, None]] = {}
    for gpu in all_gpus():
        labels = (gpu.name, *gpu.aliases)
        keys = [_bare_key(label) for label in (*labels, *gpu.shared_names)]
        if gpu.name.startswith("GeForce"):
            keys += [re.sub("^[gr]tx(?=[0-9])", _SERIES, _bare_key(label)) for label in labels]
        for label in labels:
            exact.setdefault(_key(label), {})[gpu] = None
        for key in keys:
            bare.setdefault(key, {})[gpu] = None
    return {key: tuple(gpus) for key, gpus in exact.items()}, {key: tuple(gpus) for key, gpus in bare.items()}


def _key(name: str) -> str:
    """Letters and digits of a name, in lower case."""
    return re.sub("[^a-z0-9]", "", name.casefold())


def _bare_key(name: str) -> str:
    """`_key` without the vendor's words; a name of only vendor's words stays as it is."""
    key = _key(name)
    return _VENDOR_WORDS.sub("", key) or key


def _nearest_names(name: str) -> str:
    """Quote the three GPUs that share most words with this name in any order, then those that look most like it.

    The vendor's words do not count; a word counts its letters, one with a digit three times.
    """
    _, bare = _index()
    close = get_close_matches(_bare_key(name), list(bare), n=12, cutoff=0.4)
    names = dict.fromkeys(gpu.name for key in close for gpu in bare[key])
    words = _words(name)
    shared = {
        gpu.name: sum(_weight(word) for word in words & _words(" ".join((gpu.name, *gpu.aliases))))
        for gpu in all_gpus()
    }
    names |= dict.fromkeys(gpu_name for gpu_name, weight in shared.items() if weight)
    ranked = sorted(names, key=lambda gpu_name: -shared[gpu_name])
    return ", ".join(repr(gpu_name) for gpu_name in ranked[:3]) or "nothing is similar"


def _words(name: str) -> set[str]:
    return {word for word in re.findall("[a-z0-9]+", name.casefold()) if not _VENDOR_WORDS.fullmatch(word)}


def _weight(word: str) -> int:
    return len(word) * (3 if any(map(str.isdigit, word)) else 1)


@lru_cache(maxsize=1024)
def design_of(gpu: Gpu) -> str:
    """Name of the chip, its active SMs and boost clock: GPUs that share it compute alike, whatever their memory.

    >>> design_of(find_gpu("V100-SXM2-16GB")) == design_of(find_gpu("V100-SXM2-32GB"))
    True
    >>> design_of(find_gpu("T4"))
    'TU104, 40 SMs, 1.59 GHz'
    """
    return f"{gpu.chip}, {gpu.sm_count} SMs, {gpu.boost_clock_ghz:g} GHz"


@cache
def short_name(name: str) -> str:
    """How people write a GPU's canonical name: without its brand, or its first alias where that is a shorter word.

    >>> [short_name(name) for name in ("NVIDIA H100 80GB HBM3", "Tesla T4", "NVIDIA A100 80GB PCIe")]
    ['H100 SXM', 'T4', 'A100 80GB PCIe']
    """
    plain = name.removeprefix("NVIDIA ").removeprefix("Tesla ").removeprefix("GeForce ")
    aliases = next((gpu.aliases for gpu in all_gpus() if gpu.name == name), ())
    return min((plain, *(alias for alias in aliases[:1] if alias[0].isalpha())), key=len)


_WITHOUT_PEER_ACCESS = ("GeForce", "NVIDIA TITAN RTX")


def has_peer_access(gpu: Gpu) -> bool:
    """Whether GPUs of this kind read one another's memory over PCI Express.

    NVIDIA's drivers allow it on no GeForce card from Turing on (github.com/NVIDIA/nccl-tests, issue 117), nor on TITAN
    RTX without its bridge. Of older GeForce cards it is not assumed: four GTX 1080 Ti exchanged 2.2 GB/s (links.csv).
    """
    return not gpu.name.startswith(_WITHOUT_PEER_ACCESS)


def is_cpu(name: str) -> bool:
    """Whether a device's name is a CPU's: ``cpu:<model>``."""
    return name.startswith("cpu:")


def device_of(name: str) -> Gpu:
    """The CPU (``cpu:<model>``) or the GPU of the catalogue that a name means.

    UnknownGpuError as `find_gpu`.
    """
    return cpu_device(name) if is_cpu(name) else find_gpu(name)


def cpu_device(name: str) -> Gpu:
    """A CPU as a `Gpu`: only fp32, unlimited memory; its rates of 1 are placeholders.

    Only operators measured on it answer for a CPU; `Model.forecast` refuses everything else.
    """
    blank: dict[str, Any] = {"str": "", "bool": False, "int": 0, "float": 1.0, "tuple[str, ...]": ()}
    cells: dict[str, Any] = {field.name: blank.get(str(field.type)) for field in fields(Gpu)}  # None: unknown
    cells |= {"name": name, "chip": name, "architecture": "CPU", "source": "measured"}
    cells["generation"] = generations()[-1]  # any: a CPU is compared with itself alone
    cells |= {"compute_capability": 0.0, "sm_count": 1, "chips_per_card": 1, "memory_gib": math.inf}
    return Gpu(**cells)


def precisions_of(gpu: Gpu) -> tuple[str, ...]:
    """Names of the precisions that a GPU computes in hardware, in the words of measurement tables.

    By compute capability, after the arithmetic throughput table of NVIDIA's CUDA C++ Programming Guide: fp32 is
    everywhere; half-precision arithmetic came with 5.3, so older GPUs could only store in fp16; TF32 and bfloat16 came
    with the tensor cores of 8.0. Pascal other than GP100 computes fp16 at 1/64 of the fp32 rate, so libraries store in
    fp16 and compute in fp32 there; fp16 is listed all the same.
    """
    capability = gpu.compute_capability
    half = ("fp16", "amp_fp16") if capability >= 5.3 else ()
    tf32, bf16 = (("tf32",), ("amp_bf16",)) if capability >= 8.0 else ((), ())
    return ("fp32", *tf32, *half, *bf16)


_AMP_BF16, _AMP_FP16 = 8.0, 7.0  # compute capability from which tensor cores have them


def fast_mode_of(gpu: Gpu, framework: str, memory_format: str = "nchw") -> tuple[str, str] | None:
    """Precision and memory format of the fastest mode in common use on a GPU; None where there is none.

    Only of PyTorch: AMP in bf16 with channels-last from Ampere on, AMP in fp16 on Volta and Turing, whose tensor cores
    have no bf16. Older GPUs have no tensor cores.

    >>> fast_mode_of(find_gpu("A10G"), "pytorch"), fast_mode_of(find_gpu("T4"), "pytorch")
    (('amp_bf16', 'channels_last'), ('amp_fp16', 'nchw'))
    """
    if framework != "pytorch" or is_cpu(gpu.name) or gpu.tensor_cores is None:
        return None
    if gpu.compute_capability >= _AMP_BF16:
        return "amp_bf16", "channels_last"
    return ("amp_fp16", memory_format) if gpu.compute_capability >= _AMP_FP16 else None


def default_precision(gpu: Gpu, framework: str) -> str:
    """Precision unless a user chooses: TF32 in PyTorch and TensorFlow where the GPU has it, else fp32.

    PyTorch computes convolutions in TF32 by default (`torch.backends.cudnn.allow_tf32`) and, since 1.12, matrix
    products in fp32 (`torch.set_float32_matmul_precision`); TensorFlow computes both in TF32 from 2.4 on (its RFC 287),
    Chainer's CuPy in fp32 (`CUPY_TF32` is off).
    """
    return "tf32" if framework in ("pytorch", "tensorflow") and "tf32" in precisions_of(gpu) else "fp32"


def default_memory_format(framework: str, precision: str) -> str:
    """What a framework lays maps out in unless its user chooses: channels-last in TensorFlow's AMP, else NCHW.

    TensorFlow's layout optimizer lays half-precision convolutions out channels-last, which its tensor core kernels
    need, whatever the layout that the user writes.
    """
    return "channels_last" if framework == "tensorflow" and precision.startswith("amp_") else "nchw"


def check_precision(gpu: Gpu, precision: str) -> None:
    """Raise OutOfRangeError, listing what the GPU has, if it does not compute in `precision`."""
    available = precisions_of(gpu)
    if precision not in available:
        raise OutOfRangeError(
            f"{gpu.name} (compute capability {gpu.compute_capability}) has no {precision}. "
            f"It has: {', '.join(available)}."
        ).about("precision")


COMPILES_FROM = 7.0
"""Compute capability from which PyTorch's compiler makes kernels for a GPU, as Triton does."""


def compiles(gpu: Gpu) -> bool:
    """Whether PyTorch's compiler makes kernels for a GPU."""
    return gpu.compute_capability >= COMPILES_FROM


_TENSOR_PEAK = {
    "tf32": "peak_tf32_tflop_per_s",
    "fp32_or_tf32": "peak_tf32_tflop_per_s",
    "fp16": "peak_fp16_tensor_tflop_per_s",
    "amp_fp16": "peak_fp16_tensor_tflop_per_s",
    "amp_bf16": "peak_bf16_tensor_tflop_per_s",
}


def _tensor_peak(gpu: Gpu, precision: str) -> float | None:
    """Peak of the tensor cores at a precision; None where the GPU has none for it, or it needs none."""
    peak: float | None = getattr(gpu, _TENSOR_PEAK[precision]) if precision in _TENSOR_PEAK else None
    return peak


def peak_tflop_per_s(gpu: Gpu, precision: str) -> float:
    """Peak rate of a GPU at a precision, in 10^12 FLOP/s (dense, fp32 accumulate); NaN if it is not known.

    Before compute capability 7.0 there are no tensor cores, and fp16 training computes at the fp32 rate.
    ``fp32_or_tf32`` means what frameworks do by default: TF32 where the GPU has it (compute capability 8.0).
    """
    tensor = _tensor_peak(gpu, precision)
    if tensor is not None:
        return tensor
    without_tensor_cores = {"fp32": math.inf, "fp32_or_tf32": 8.0, "fp16": 7.0, "amp_fp16": 7.0}
    in_fp32 = gpu.compute_capability < without_tensor_cores.get(precision, 0.0)
    return gpu.peak_fp32_tflop_per_s if in_fp32 else math.nan


LAUNCH_MS = 0.004
"""Shortest time of a kernel on the device; a constant of CUDA GPUs since Kepler, to within a factor of two."""

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp32_or_tf32": 4, "fp16": 2, "amp_fp16": 2, "amp_bf16": 2}

# Share of the pin bandwidth that a streaming kernel reaches, by memory technology, and a further share on Kepler,
# which has no L2 large enough to merge its accesses; share of the peak that Kepler's four schedulers can issue
# to its six groups of cores. Architecture facts, not fitted.
_HBM_SHARE, _GDDR_SHARE, _KEPLER_MEMORY_SHARE, _KEPLER_ISSUE_SHARE = 0.88, 0.72, 0.8, 2 / 3

_DESKTOP, _PORTABLE = ("GeForce", "NVIDIA TITAN"), ("Max-Q", "Laptop", "Mobile")
_ABOVE_BOOST = 1.12  # desktop cards boost beyond their sheets
_GHZ_OF_POWER = dict.fromkeys(("pascal", "volta", "turing", "ampere"), 1.0) | {"kepler": 0.5, "maxwell": 0.65}
_GHZ_OF_LATER_POWER = 1.4  # 5 nm and 4 nm
_RTX_2080_TI_GHZ, _RTX_2080_TI_WATTS = 1.75, 3.68  # by its power, at its watts per multiprocessor
_POWER_EXPONENT, _MINIMUM_SHARPNESS = 0.6, 6.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Sustained rates of one GPU at one precision.

    `flop_per_ms` is what convolutions run against, `product_flop_per_ms` what matrix products do, `fp32_flop_per_ms`
    what everything outside the tensor cores does; `tensor` says whether the first and the last differ.
    `multiprocessors` is their number.
    """

    flop_per_ms: float
    product_flop_per_ms: float
    fp32_flop_per_ms: float
    bytes_per_ms: float
    element_bytes: int
    tensor: bool
    multiprocessors: int


@lru_cache(maxsize=4096)
def rates_of(gpu: Gpu, precision: str, fp32_products: bool = False) -> Rates:
    """Sustained rates of `gpu` at `precision`, its matrix products in fp32 if `fp32_products`.

    OutOfRangeError if the precision is unknown here.

    The clock is that of `sustained_clock_ghz`. Half precision on a GPU without tensor cores runs at the fp32 rate,
    because training accumulates in fp32.
    """
    if precision not in ELEMENT_BYTES:
        raise OutOfRangeError(
            f"precision {precision!r} is not known here. Known: {', '.join(ELEMENT_BYTES)}."
        )
    kepler = gpu.generation == "kepler"
    clock = sustained_clock_ghz(gpu) / gpu.boost_clock_ghz * (_KEPLER_ISSUE_SHARE if kepler else 1.0)
    memory = _HBM_SHARE if gpu.memory_type.startswith("HBM") else _GDDR_SHARE
    memory *= _KEPLER_MEMORY_SHARE if kepler else 1.0
    fp32 = gpu.peak_fp32_tflop_per_s * 1e9 * clock
    peak = _tensor_peak(gpu, precision)
    flop_per_ms = fp32 if peak is None else peak * 1e9 * clock
    return Rates(
        flop_per_ms=flop_per_ms,
        product_flop_per_ms=fp32 if fp32_products else flop_per_ms,
        fp32_flop_per_ms=fp32,
        bytes_per_ms=gpu.memory_bandwidth_gb_per_s * 1e6 * memory,
        element_bytes=ELEMENT_BYTES[precision],
        tensor=peak is not None,
        multiprocessors=gpu.sm_count,
    )


@cache
def sustained_clock_ghz(gpu: Gpu) -> float:
    """Clock that a card sustains in training: what its sheet allows, or less where its power does not suffice.

    (a^-6 + p^-6)^(-1/6) of a, the boost clock (x 1.12 on desktop cards), and p = 1.75 g (watts per multiprocessor /
    3.68)^0.6 GHz, by the process of the chip: g = 1 from 16 to 7 nm, 1.4 below, 0.65 on Maxwell and 0.5 on Kepler. Set
    from clocks that such cards are known to hold, not fitted (decision 062). Older multiprocessors than Volta's count
    as their lanes / 64. The limit a where the sheet says no power.
    """
    desktop = gpu.name.startswith(_DESKTOP) and not any(word in gpu.name for word in _PORTABLE)
    allowed = gpu.boost_clock_ghz * (_ABOVE_BOOST if desktop else 1.0)
    if gpu.tdp_w is None:
        return allowed
    units = gpu.sm_count if gpu.compute_capability >= 7.0 else gpu.cuda_cores / 64
    watts = gpu.tdp_w / gpu.chips_per_card / units / _RTX_2080_TI_WATTS
    process = _GHZ_OF_POWER.get(gpu.generation, _GHZ_OF_LATER_POWER)
    powered: float = process * _RTX_2080_TI_GHZ * watts**_POWER_EXPONENT
    sharp = _MINIMUM_SHARPNESS
    return float((allowed**-sharp + powered**-sharp) ** (-1 / sharp))
