"""No word of a verdict and no rank is untrue of a plain loop: a part of what `benchmarks/verdicts.py` asks in full."""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "benchmarks" / "verdicts.py"


@pytest.mark.slow
def test_no_verdict_or_rank_of_seeded_questions_is_untrue(monkeypatch):
    spec = importlib.util.spec_from_file_location("verdicts", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "verdicts", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    assert module.untrue_of(15, seed=2) == {}
