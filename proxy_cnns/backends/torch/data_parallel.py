"""One of several PyTorch processes that train copies of a CNN and add up their gradients (DistributedDataParallel)."""

import os
from collections.abc import Sequence
from typing import Any

from predictor.errors import SchemaError
from proxy_cnns.backends.base import Program, gpu_index
from proxy_cnns.backends.torch.backend import TorchBackend
from proxy_cnns.backends.torch.device import refusing
from proxy_cnns.backends.torch.layers import exchange_layers
from proxy_cnns.backends.torch.training import training_program
from proxy_cnns.configuration import Configuration

_QUICK_BYTES, _LONG_BYTES = 2**20, 2**25


class ParallelTorch(TorchBackend):
    """PyTorch on one device, in a group with the same on others.

    `device`: ``cpu`` (joined by gloo) or ``cuda:N`` (joined by NCCL). `rank`, `world`: number of this process, and how
    many there are. `counts`: numbers of processes that train together: 4 means the first four. `meeting_file`: path of
    a file that does not exist yet, the same for all processes, through which they find each other.

    NVLink multicast stays off unless NCCL_NVLS_ENABLE is set: sums then go around a ring.
    """

    def __init__(self, device: str, rank: int, world: int, counts: Sequence[int], meeting_file: str) -> None:
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        super().__init__(device)
        import torch.distributed as dist

        self._index = gpu_index(device, "PyTorch")
        with refusing("processes that train together"):
            dist.init_process_group("gloo", init_method=f"file://{meeting_file}", rank=rank, world_size=world)
            backend = "gloo" if self._index is None else "nccl"
            self._groups = {n: dist.new_group(list(range(n)), backend=backend) for n in counts if n > 1}

    def environment(self) -> dict[str, object]:
        """Versions of the libraries, the device's name, and how the processes are joined."""
        import torch

        about = super().environment() | {"collectives": "gloo"}
        if self._index is None:
            return about
        version = ".".join(map(str, torch.cuda.nccl.version()))
        multicast = os.environ["NCCL_NVLS_ENABLE"]
        return about | {"collectives": f"NCCL {version}, NCCL_NVLS_ENABLE={multicast}"}

    def _empty_mib(self, _configuration: Configuration) -> float:
        """Memory that the group keeps, to which a CNN's peak adds."""
        return 0.0 if self._gpu is None else self._gpu.used_mib()

    def _program(self, configuration: Configuration) -> Program:
        if configuration.subject.message_bytes is not None:
            return self._all_reduce(configuration)
        replicas = configuration.replicas
        if replicas.n_gpus == 1:
            return super()._program(configuration)
        group = self._group(replicas.n_gpus)

        def distributed(model: Any) -> Any:
            from torch.nn import SyncBatchNorm
            from torch.nn.parallel import DistributedDataParallel

            if replicas.sync_batch_norm:
                exchange_layers(model, lambda layer: SyncBatchNorm.convert_sync_batchnorm(layer, group))
            return DistributedDataParallel(
                model,
                device_ids=None if self._index is None else [self._index],
                process_group=group,
                bucket_cap_mb=replicas.bucket_mib,
                gradient_as_bucket_view=replicas.bucket_view,
            )

        return training_program(configuration, self._device, distributed)

    def _all_reduce(self, configuration: Configuration) -> Program:
        import torch
        import torch.distributed as dist

        n_bytes, group = configuration.subject.message_bytes or 0, self._group(configuration.replicas.n_gpus)
        gradients, at_once = torch.zeros(n_bytes // 4, device=self._device), all_reduces_at_once(n_bytes)

        def add_up() -> None:
            for _ in range(at_once):
                dist.all_reduce(gradients, group=group)

        return Program((add_up,), at_once)

    def _group(self, n: int) -> Any:
        if n not in self._groups:
            raise SchemaError(
                f"{n} processes do not train together here; there are groups of {[*self._groups]}."
            )
        return self._groups[n]


def all_reduces_at_once(n_bytes: int) -> int:
    """Sums in one timed iteration: many of a small message, which takes some microseconds."""
    return 100 if n_bytes <= _QUICK_BYTES else 20 if n_bytes <= _LONG_BYTES else 4
