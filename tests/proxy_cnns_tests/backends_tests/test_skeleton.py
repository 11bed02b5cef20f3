"""How any framework's configurations are built, run once and closed, on a pretended GPU."""

from contextlib import contextmanager, nullcontext

import pytest
from small_subjects import OPERATORS, TARGETS

from predictor.catalogue.modes import Mode
from predictor.errors import DeviceOutOfMemoryError, ProfilingError
from proxy_cnns.backends.base import FrameworkBackend, PreparedProgram, Program, refusing_failures
from proxy_cnns.configuration import Configuration, Launches

OPERATOR = Configuration(OPERATORS[0], Mode(), 4)
CNN = Configuration(TARGETS[0], Mode(), 4)


class Gpu:
    """Notes what is asked of it."""

    capability, cache_bytes, used = (9, 0), 2**20, 0.0

    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        return lambda: self.calls.append(name)

    def used_mib(self):
        return self.used

    def peak_mib(self, run):
        run()
        return 100.0

    def launches(self):
        return Launches(host_us=5.0)


class Framework(FrameworkBackend):
    """Runs programs that note that they ran; the first `fails` of them lack memory."""

    framework = "pretended"
    prepared = PreparedProgram

    def __init__(self, fails=0):
        self.calls, self.fails = [], fails
        self._gpu = Gpu(self.calls)

    def check_mode(self, _mode, capability):
        self.calls.append(f"check {capability}")

    def switch(self, _mode):
        self.calls.append("switch")

    @contextmanager
    def running(self, configuration):
        with refusing_failures("Pretended", configuration.words, ProfilingError, (RuntimeError,)):
            yield

    def _program(self, _configuration):
        def run():
            self.calls.append("run")
            if self.calls.count("run") <= self.fails:
                raise RuntimeError("CUDA out of memory")

        return Program((run,), copies=2)


@pytest.mark.parametrize(
    ("fails", "calls"),
    [(0, ["run", "synchronise"]), (1, ["run", "tidy", "run", "synchronise"]), (2, ["run", "tidy"] * 2)],
)
def test_behind_its_mode_an_operator_that_lacks_memory_is_built_once_more_in_empty_memory(fails, calls):
    backend = Framework(fails)
    refused = pytest.raises(DeviceOutOfMemoryError, match="does not fit in memory")
    with refused if fails == 2 else nullcontext():
        backend.prepare(OPERATOR)
    assert backend.calls == ["check (9, 0)", "switch", "tidy_if_needed", *calls]


def test_a_cnn_is_built_in_empty_memory_where_its_peak_is_its_own():
    backend = Framework()
    prepared = backend.prepare(CNN)
    assert prepared.peak_memory_mib() == 100.0
    assert backend.calls[2:] == ["tidy", "run", "synchronise", "run"]
    prepared.close()
    prepared.close()
    assert backend.calls[-1] == "tidy"
    assert backend.calls.count("tidy") == 2


def test_a_cnn_is_not_built_beside_what_an_earlier_configuration_holds():
    backend = Framework()
    backend._gpu.used = 500.0
    with pytest.raises(ProfilingError, match="500 MiB are still occupied by an earlier configuration"):
        backend.prepare(CNN)
    assert "run" not in backend.calls


def test_host_time_is_that_of_one_copy_each_on_an_empty_queue():
    backend = Framework()
    prepared = backend.prepare(OPERATOR)
    del backend.calls[:]
    assert prepared.host_time_ms(2) > 0
    assert backend.calls == ["synchronise", "run", "synchronise", "run", "synchronise"]
