"""The images that the Dockerfile describes, what compose.yaml says, and the command that both run."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from epochcast.command import build_app

sys.path.insert(0, str(Path(__file__).parent))
from dockerfile import ROOT, Stage, read_stages


@pytest.fixture(scope="session")
def stages() -> dict[str, Stage]:
    """Stages of the Dockerfile by name."""
    return read_stages()


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    """What compose.yaml says."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def epochcast() -> Callable[..., Any]:
    """Run `epochcast` with these arguments; gives exit code and output."""
    return lambda *arguments: CliRunner().invoke(build_app(), list(arguments))
