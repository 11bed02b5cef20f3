"""Made-up tables of the published ones' form, a few rows each."""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from predictor.measurements.published.sources import DATA_SETS

SOURCES: dict[str, Any] = json.loads(Path(__file__).with_name("sources.json").read_text("utf-8"))
"""By source: a row of its table, changes of further rows, and the cells that they become."""


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder that holds every published table's form with made-up numbers."""
    for name, source in SOURCES.items():
        rows = [source["row"], *({**source["row"], **changes} for changes in source["changes"])]
        pd.DataFrame(rows).to_csv(tmp_path / DATA_SETS[name].table, index=False)
    return tmp_path


@pytest.fixture
def imported_cells() -> dict[str, dict[str, list[Any]]]:
    """Cells of our columns by source."""
    return {name: source["imported"] for name, source in SOURCES.items()}


@pytest.fixture
def profet_row() -> dict[str, Any]:
    return dict(SOURCES["profet"]["row"])


@pytest.fixture(scope="session")
def real_tables() -> Path:
    """The folder of real published tables; without it, a skip that says so."""
    folder = os.environ.get("EPOCHCAST_PUBLISHED_DATA")
    if not folder:
        pytest.skip("$EPOCHCAST_PUBLISHED_DATA is not set: the published tables are not part of epochcast")
    return Path(folder)
