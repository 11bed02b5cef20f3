"""Several GPUs that train together, as one backend: a process for each of them, driven from here.

The process that drives them opens no GPU, so that its clock sees one GPU and several alike. The others train copies of
a CNN and add up their gradients (PyTorch's DistributedDataParallel).
"""

import multiprocessing
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from predictor.errors import DeviceOutOfMemoryError, EpochcastError, ProfilingError, SchemaError
from proxy_cnns.backends.base import Program, gpu_index
from proxy_cnns.backends.torch.backend import TorchBackend
from proxy_cnns.backends.torch.device import refusing
from proxy_cnns.backends.torch.layers import exchange_layers
from proxy_cnns.backends.torch.training import training_program
from proxy_cnns.configuration import Configuration, Launches, Prepared
from proxy_cnns.profiler import FEWEST, LIMITS, Limits
from proxy_cnns.runs import end_with

TOGETHER: dict[str, Any] = {
    "backend": "proxy_cnns.data_parallel:DataParallelBackend",
    "limits": LIMITS | {"target": Limits(0.4, 0.6, 0.0, 0.1, 200, FEWEST, 30, host_repeats_least=2)},
}
"""Parts of a request whose devices train together. A timed chunk is long: its ends wait for other processes."""

_CPU_PROCESSES = 2
_PATIENCE_S = 120.0
"""Longest wait for an answer: one process that fails leaves the others waiting for its gradients."""


def device_count(devices: Sequence[str]) -> int:
    """Devices that train together; a CPU counts as two."""
    return _CPU_PROCESSES if tuple(devices) == ("cpu",) else len(devices)


def gpu_counts(n_gpus: int) -> tuple[int, ...]:
    """Numbers of GPUs to measure on a machine of `n_gpus`: one, all, and the powers of two between.

    SchemaError if there is only one.
    """
    if n_gpus < 2:
        raise SchemaError(
            "the preset ddp trains on several GPUs together, and only one is given. Pass --gpus all or --gpus 0,1."
        )
    powers = [2**k for k in range(1, n_gpus.bit_length()) if 2**k < n_gpus]
    return (1, n_gpus, *reversed(powers))


class DataParallelBackend:
    """PyTorch's DistributedDataParallel on several devices of this machine; see `proxy_cnns.configuration.Backend`.

    `device`: names joined by commas, such as ``cuda:0,cuda:1``; ``cpu`` starts two processes on the CPU.
    BackendUnavailableError if PyTorch is not installed, or there is no such device.
    """

    framework = "pytorch"

    def __init__(self, device: str) -> None:
        self._devices = [device] * device_count([device]) if device == "cpu" else device.split(",")
        self._team: _Team | None = None
        self._environment: dict[str, object] = self._working().ask(1, "environment")[0]

    def environment(self) -> dict[str, object]:
        """Environment of the first process, and the number of processes."""
        return self._environment | {"processes": len(self._devices)}

    def prepare(self, configuration: Configuration) -> "_Together":
        """Build a configuration on its GPUs and run it once; errors as of `TorchBackend.prepare`."""
        team = self._working()
        team.ask(configuration.replicas.n_gpus, "prepare", configuration)
        return _Together(team, configuration)

    def launches(self) -> Launches:
        """All None: every process has a queue of its own."""
        return Launches()

    def _working(self) -> "_Team":
        """The processes; new ones after a failure in which they lost each other."""
        if self._team is None or self._team.broken:
            self._team = _Team(self._devices)
        return self._team


class _Team:
    """Processes that train together, and the pipes to them."""

    def __init__(self, devices: Sequence[str]) -> None:
        context = multiprocessing.get_context("spawn")
        folder = Path(tempfile.mkdtemp(prefix="epochcast-"))
        self.broken = False
        self._pipes: list[Any] = []
        self._awaited = [0] * len(devices)
        processes = []
        for rank, device in enumerate(devices):
            own_end, process_end = context.Pipe()
            about = (device, rank, len(devices), gpu_counts(len(devices)), str(folder / "meeting"))
            process = context.Process(target=_serve, args=(process_end, os.getpid(), about), daemon=True)
            process.start()
            process_end.close()
            self._pipes.append(own_end)
            processes.append(process)
        self._end = weakref.finalize(self, _end, processes, self._pipes, folder)
        self.ask(len(devices), "open")

    def tell(self, n: int, *command: Any) -> None:
        """Send a command to the first `n` processes, without waiting."""
        for rank in range(n):
            try:
                self._pipes[rank].send(command)
            except OSError as error:
                raise self._lost(rank) from error
            self._awaited[rank] += 1

    def ask(self, n: int, *command: Any) -> list[Any]:
        """Send a command to the first `n` processes, and return their answers once all have answered.

        EpochcastError: the first that a process raised; ProfilingError if a process is gone, or does not answer.
        """
        self.tell(n, *command)
        answers = [self._answers_of(rank) for rank in range(n)]
        errors = [answer for answer in chain(*answers) if isinstance(answer, EpochcastError)]
        if errors:
            raise next((error for error in errors if isinstance(error, DeviceOutOfMemoryError)), errors[0])
        return [process_answers[-1] for process_answers in answers]

    def _answers_of(self, rank: int) -> list[Any]:
        """All answers that a process owes."""
        answers = []
        while self._awaited[rank]:
            try:
                if not self._pipes[rank].poll(_PATIENCE_S):
                    raise self._lost(rank)
                answers.append(self._pipes[rank].recv())
            except (EOFError, OSError) as error:
                raise self._lost(rank) from error
            self._awaited[rank] -= 1
        return answers

    def _lost(self, rank: int) -> ProfilingError:
        """End all processes, and make the error that says so."""
        self.broken = True
        self._end()
        return ProfilingError(
            f"the process of GPU {rank} ended, or did not answer within {_PATIENCE_S:.0f} s. Earlier measurements are "
            "kept."
        )


class _Together(Prepared):
    """A configuration that runs on several GPUs.

    GPU times are None, since they would include the wait for the others; algorithms, too, which are noted of one GPU.
    """

    def __init__(self, team: _Team, configuration: Configuration) -> None:
        self._team, self._n = team, configuration.replicas.n_gpus
        message_bytes = configuration.subject.message_bytes
        self.copies = 1 if message_bytes is None else all_reduces_at_once(message_bytes)

    def run(self, n: int) -> None:
        """Start `n` iterations on every GPU."""
        self._team.tell(self._n, "run", n)

    def synchronise(self) -> None:
        """Wait until every GPU is done."""
        self._team.ask(self._n, "synchronise")

    def capture(self) -> str:
        """The reason why nothing is captured."""
        return "an iteration measured for several GPUs is not captured"

    def host_time_ms(self, n: int) -> float:
        """Time that the slowest host process needs to enqueue one iteration."""
        return float(max(self._team.ask(self._n, "host_time_ms", n)))

    def peak_memory_mib(self) -> float | None:
        """Most memory of any GPU."""
        peaks = self._team.ask(self._n, "peak_memory_mib")
        return None if None in peaks else float(max(peaks))

    def close(self) -> None:
        """Free everything on every GPU; processes that lost each other hold nothing."""
        if not self._team.broken:
            self._team.ask(self._n, "close")


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


def _end(processes: Sequence[Any], pipes: Sequence[Any], folder: Path) -> None:
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.kill()
        process.join()
    shutil.rmtree(folder, ignore_errors=True)


def _serve(pipe: Any, parent: int, about: tuple[Any, ...]) -> None:
    """Answer commands until the pipe closes: open the device and meet the others, prepare, or what is prepared does."""
    end_with(parent)
    backend: Any = None
    prepared: Any = None
    while True:
        try:
            name, *arguments = pipe.recv()
        except EOFError:
            return
        answer: Any = None
        try:
            if name == "open":
                backend = ParallelTorch(*about)
            elif name == "prepare":
                prepared = backend.prepare(*arguments)
            else:
                answer = getattr(backend if name == "environment" else prepared, name)(*arguments)
        except EpochcastError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - it crosses a process border, where its own type may be unknown
            answer = ProfilingError(f"{type(error).__name__}: {error}")
        pipe.send(answer)
