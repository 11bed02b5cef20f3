"""CPUs that train: known by what was measured on them alone, since no catalogue has their rates.

Called by questions; calls gpus, whose form it borrows, so that the rest need not tell devices apart.
"""

import math

from predictor.gpus import GENERATIONS, Gpu

__all__ = ["CPU_PREFIX", "cpu_device", "is_cpu"]

CPU_PREFIX = "cpu:"
"""What the name of a CPU begins with, in measurement tables and questions."""


def is_cpu(name: str) -> bool:
    """Whether a device's name is a CPU's: ``cpu:<model>``."""
    return name.startswith(CPU_PREFIX)


def cpu_device(name: str) -> Gpu:
    """A CPU in a GPU's form: fp32 only, memory without bound, and rates that mean nothing (1).

    Only measured operators of it may answer; `Model.forecast` refuses everything else.
    """
    return Gpu(
        name=name,
        chip=name,
        architecture="CPU",
        generation=GENERATIONS[-1],  # any: a CPU is compared with itself alone
        compute_capability=0.0,
        sm_count=1,
        cuda_cores=0,
        tensor_cores=None,
        base_clock_ghz=None,
        boost_clock_ghz=1.0,
        peak_fp32_tflop_per_s=1.0,
        peak_fp16_tflop_per_s=None,
        peak_fp16_tensor_tflop_per_s=None,
        peak_bf16_tensor_tflop_per_s=None,
        peak_tf32_tflop_per_s=None,
        memory_gib=math.inf,
        memory_type="",
        memory_bus_bits=0,
        memory_bandwidth_gb_per_s=1.0,
        l2_mib=None,
        tdp_w=None,
        chips_per_card=1,
        nvlink_generation=None,
        pcie_generation=None,
        released="",
        aliases=(),
        shared_names=(),
        source="measured",
        source_url="",
        retrieved_on="",
        verified=False,
        notes="",
    )
