"""How far a refitted model lies from another, number by number: `make model` compares it with the committed one.

Run it as `python benchmarks/refit_differences.py FOLDER FOLDER`, folders such as datasets/models. The same data give
the same numbers to the last digit on one machine and within 1e-6 on another; more than that is listed.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WITHIN = 1e-6
"""Relative."""

ABOUT = ("fitted_on", "versions")
"""What says when and by what a model was fitted, not what it is."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    folders = options.before, options.after
    of_models = [(folder, kind) for folder in folders for kind in ("*.json", "*.json.gz", "*.npz")]
    names = sorted({path.relative_to(folder) for folder, kind in of_models for path in folder.rglob(kind)})
    different = 0
    for name in names:
        changes = list(differences(read(options.before / name), read(options.after / name)))
        largest = max((by for _, by in changes), default=0.0)
        print(f"{name!s:90} {len(changes):6,} numbers or texts differ, by {largest:.1e} at most")
        beyond = [(where, by) for where, by in changes if by > WITHIN]
        different += bool(beyond)
        for where, by in beyond[:5]:
            print(f"    {where}: {by:.1e}")
    print(f"{different} of {len(names)} files differ by more than {WITHIN:g}")
    return int(bool(different))


def read(path: Path) -> object:
    """Contents of a model's file: JSON, plain or gzipped, or arrays with JSON in `about`; None if it is missing."""
    if not path.is_file():
        return None
    if path.suffix == ".npz":
        arrays = dict(np.load(path, allow_pickle=False))
        about = json.loads(str(arrays.pop("about")))
        return {"about": about} | {name: values.tolist() for name, values in arrays.items()}
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def differences(before: object, after: object, where: str = "") -> Iterator[tuple[str, float]]:
    """Places, but keys of `ABOUT`, where contents differ: numbers by difference over the larger, else infinity."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after} - {*ABOUT}):
            yield from differences(before.get(key), after.get(key), f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{where}[{index}]")
    elif before != after:
        numbers = [value for value in (before, after) if isinstance(value, int | float)]
        size = max(map(abs, numbers), default=0.0)
        yield where, abs(numbers[0] - numbers[1]) / size if len(numbers) == 2 else float("inf")


if __name__ == "__main__":
    sys.exit(main())
