"""What both ladders share: a time budget, and rows that are on disk as soon as they are measured."""

import csv
import json
import time
from pathlib import Path
from typing import Any

__all__ = ["Budget", "Rows"]


class Budget:
    """Seconds that a run may take."""

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left; negative when it is over."""
        return self._end - time.perf_counter()


class Rows:
    """Rows of one ladder, written to FILE.csv and, with what they were measured on, to FILE.json after each.

    Parameters
    ----------
    path : Path
        Without or with the suffix .csv.
    about : dict
        The environment.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._path = path.with_suffix(".csv")
        self._about = about
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row, write all, and print it."""
        self.rows.append(row)
        names = list(dict.fromkeys(name for each in self.rows for name in each))
        with self._path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(self.rows)
        text = json.dumps({"environment": self._about, "rows": self.rows}, indent=1, default=str)
        self._path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
        print(
            "  ".join(f"{name} {value}" for name, value in row.items() if value not in (None, "")), flush=True
        )
