"""Golden tables: which columns of the answers are held, how they are stored, and how answers are compared with them."""

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "Table", "explained_rows", "first", "other_modes", "read", "write"]

FOLDER = Path(__file__).parent / "golden"

Record = dict[str, Any]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A golden table: rows are found by `key`, `held` columns must agree; others may come and go."""

    name: str
    key: tuple[str, ...]
    held: tuple[str, ...]
    relative: float = 1e-6

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.csv"

    def rows(self, records: Iterable[Record]) -> dict[Key, dict[str, Any]]:
        """Held columns of records by key; a column that a record lacks is left out."""
        rows: dict[Key, dict[str, Any]] = {}
        for record in records:
            key = tuple(_text(record[name]) for name in self.key)
            assert key not in rows, f"{self.name} answers {key} twice"
            rows[key] = {name: _held(record, name) for name in self.held if name in record}
        return rows

    def differences(self, golden: dict[Key, Any], now: dict[Key, Any]) -> list[str]:
        """One line for each row that is missing or new, and for each number that differs."""
        lines = [f"{key}: not answered any more" for key in golden if key not in now]
        lines += [f"{key}: not in the golden table" for key in now if key not in golden]
        for key in golden.keys() & now.keys():
            for column, text in golden[key].items():
                value = now[key].get(column, "(no such column)")
                if not _same(text, _text(value), self.relative):
                    lines.append(f"{key} {column}: golden {text or 'none'}, now {_text(value) or 'none'}")
        return sorted(lines)


_PREDICTED = (
    "image_size iterations_per_epoch iteration_time_ms low_ms high_ms gpu_time_ms host_time_ms epoch_time_s "
    "epoch_low_s epoch_high_s cost_usd offer_gpu_count peak_memory_gib fits_in_memory "
    "memory_estimate_validated best_batch method extrapolates"
)
_COMPARED = (
    "rank batch_size usd_per_hour image_size iteration_time_ms epoch_time_s epoch_low_s epoch_high_s cost_usd "
    "total_time_h total_cost_usd pareto within_budget within_deadline speedup cost_ratio peak_memory_gib "
    "fits_in_memory method extrapolates"
)

TABLES = {
    table.name: table
    for table in (
        Table("predict", ("question", "cnn", "gpu", "batch_size"), tuple(_PREDICTED.split())),
        Table("fit", ("cnn", "gpu", "batch_size"), tuple(_PREDICTED.split())),
        Table("compare", ("question", "gpu", "offer", "region"), tuple(_COMPARED.split())),
        Table("explain", ("question", "cnn", "gpu", "batch_size", "what"), ("value",)),
        Table(
            "other_modes",
            ("question", "cnn", "gpu", "precision", "memory_format", "batch_size"),
            ("factor", "low", "high", "gpu_factor", "method"),
        ),
        Table(
            "bulk",
            ("id",),
            ("iteration_time_ms", "gpu_time_ms", "low_ms", "high_ms", "epoch_time_s", "method", "failed"),
        ),
        Table(
            "evaluate",
            ("scenario", "predictor"),
            ("mape", "median", "p90", "n", "coverage", "worst_coverage", "worst_mape", "worst_mape_group"),
        ),
    )
}


def explained_rows(question: str, explanations: Iterable[Record]) -> list[Record]:
    """A row for each number of explanations but those of other modes: times, classes, bounds, the law."""
    rows: list[Record] = []
    for explanation in explanations:
        about = {"question": question, "cnn": explanation["cnn"], "gpu": explanation["gpu"]}
        times = "iteration_time_ms", "low_ms", "high_ms", "gpu_time_ms"
        columns = {name: explanation[name] for name in times}
        columns |= {"host_time_ms": explanation["host_time_ms"], "bound": explanation["bound"]}
        columns |= {f"{name}_ms": values for name, values in explanation["classes"].items()}
        columns |= {f"{name}_bound_ms": values for name, values in explanation["bound_ms"].items()}
        for what, values in columns.items():
            sizes = explanation["batch_sizes"]
            rows += [
                about | {"batch_size": size, "what": what, "value": value}
                for size, value in zip(sizes, values, strict=True)
            ]
        law = explanation["small_batch_law"] or {}
        rows += [
            about | {"batch_size": "law", "what": name, "value": law[name]}
            for name in ("k_s", "iteration_time_ms", "from_batch_size", "up_to_batch_size", "because")
            if name in law
        ]
    return rows


def other_modes(question: str, explanations: Iterable[Record]) -> list[Record]:
    """A row for each other precision and memory format of explanations at each batch size."""
    return [
        {"question": question, "cnn": explanation["cnn"], "gpu": explanation["gpu"], "batch_size": size}
        | {"precision": mode["precision"], "memory_format": mode["memory_format"], "method": mode["method"]}
        | {name: mode[name][i] for name in ("factor", "low", "high", "gpu_factor")}
        for explanation in explanations
        for mode in explanation["other_modes"]
        for i, size in enumerate(explanation["batch_sizes"])
    ]


def read(table: Table) -> dict[Key, dict[str, str]]:
    """The golden table as stored: texts by key and column."""
    with table.path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        tuple(row[name] for name in table.key): {name: row[name] for name in row if name not in table.key}
        for row in rows
    }


def write(table: Table, rows: dict[Key, dict[str, Any]]) -> None:
    """Store rows, sorted by key, in a file that depends on them alone."""
    columns = [name for name in table.held if any(name in held for held in rows.values())]
    FOLDER.mkdir(exist_ok=True)
    with table.path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*table.key, *columns])
        writer.writerows([*key, *(_text(rows[key].get(name)) for name in columns)] for key in _sorted(rows))


def _sorted(rows: dict[Key, Any]) -> list[Key]:
    return sorted(rows, key=lambda key: [(len(cell) if cell.isdigit() else 0, cell) for cell in key])


def _held(record: Record, name: str) -> Any:
    """Reasons are held as whether there are any: their wording is free."""
    value = record[name]
    return bool(value) if name == "extrapolates" else value


def _text(value: Any) -> str:
    """A cell: numbers to eight digits, whole ones without a point, nothing for None and NaN."""
    value = value.item() if hasattr(value, "item") else value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.8g}"
    return value if isinstance(value, str) else json.dumps(value)


def _same(golden: str, now: str, relative: float) -> bool:
    if golden == now:
        return True
    try:
        return math.isclose(float(golden), float(now), rel_tol=relative, abs_tol=1e-15)
    except ValueError:
        return False


def first(lines: Sequence[str], most: int = 20) -> str:
    """The first lines of differences, and how many there are."""
    return "\n".join([f"{len(lines)} differences, the first:", *lines[:most]])
