"""A framework without a framework: times follow a formula, and its clock moves only when it works.

Imported by tests, and by processes that they start, as ``fake_backend:FakeBackend``. Orders come from environment
variables, so that they reach other processes as well.
"""

import json
import os
import threading
from math import exp

from predictor.errors import BackendUnavailableError, DeviceOutOfMemoryError, SchemaError
from proxy_cnns.configuration import Launches


class Clock:
    """Seconds that pass when something is run."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def time_ms(configuration):
    """GPU time of one iteration: a law with a jump at batch 100, where an algorithm is switched."""
    batch_size = configuration.batch_size
    return 1.0 + 0.1 * batch_size * (0.6 if batch_size >= 100 else 1.0)


class FakePrepared:
    """Runs in no time by the wall clock, and in `time_ms` by its own."""

    copies = 1

    def __init__(self, configuration, clock, orders):
        self.configuration, self.clock, self.orders = configuration, clock, orders
        self.n_runs, self.queued, self.closed = 0, 0.0, False

    def one_ms(self):
        """Slow while it warms up, then steady but for the noise ordered."""
        self.n_runs += 1
        slow = 1.0 + 2.0 * exp(-self.n_runs / self.orders.get("cold", 0.01))
        noise = self.orders.get("noise", 0.0) * ((self.n_runs * 7919) % 11 - 5) / 5
        return time_ms(self.configuration) * self.orders.get("slowness", 1.0) * slow * (1 + noise)

    def run(self, n):
        if self.configuration.batch_size >= self.orders.get("memory_for", 10**9):
            raise DeviceOutOfMemoryError("an iteration does not fit")
        self.queued += sum(self.one_ms() for _ in range(n))

    def synchronise(self):
        self.clock.now += self.queued / 1000
        self.queued = 0.0

    def capture(self):
        return self.orders.get("no_capture")

    def gpu_times_ms(self, n):
        if self.orders.get("no_capture"):
            return None
        times = [self.one_ms() for _ in range(n)]
        self.clock.now += sum(times) / 1000
        return times

    def host_time_ms(self, n):
        self.clock.now += 0.0002 * n
        return 0.2

    def peak_memory_mib(self):
        return 100.0 + self.configuration.batch_size

    def compile_s(self):
        return 12.5 if self.configuration.mode.capture == "compile" else None

    def conv_algorithms(self):
        return None

    def close(self):
        self.closed = True


class FakeBackend:
    """`orders`: what is to go wrong; by default JSON in $FAKE_ORDERS."""

    framework = "pytorch"

    def __init__(self, device, clock=None, orders=None):
        self.device, self.clock = device, clock or Clock()
        self.orders = json.loads(os.environ.get("FAKE_ORDERS", "{}")) if orders is None else orders
        self.prepared = []

    def environment(self):
        version = self.orders.get("version", "1.0")
        gpu = "cpu:fake" if self.device == "cpu" else "NVIDIA H200"
        workspace = self.orders.get("workspace_mib", 8.0)
        return {"gpu": gpu, "framework_version": version, "cudnn": "9.1", "workspace_mib": workspace}

    def prepare(self, configuration):
        if len(self.prepared) == self.orders.get("hangs_after"):
            threading.Event().wait()  # until somebody kills this process
        if len(self.prepared) == self.orders.get("interrupted_after"):
            raise KeyboardInterrupt
        if configuration.subject.name in self.orders.get("cannot", []):
            raise SchemaError(f"{configuration.subject.name} cannot be built")
        if configuration.batch_size in self.orders.get("breaks_at", []) or self.orders.get("broken"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.prepared.append(FakePrepared(configuration, self.clock, self.orders))
        return self.prepared[-1]

    def launches(self):
        return Launches() if self.device == "cpu" else Launches(host_us=5.0, graph_us=1.5)


class Missing:
    """A framework that is not installed."""

    def __init__(self, _device):
        raise BackendUnavailableError("PyTorch is not installed: pip install 'epochcast[torch]'")
