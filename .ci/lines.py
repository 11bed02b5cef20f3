"""Counts lines of Python by wing, beside the numbers of `.ci/lines.csv`: `python .ci/lines.py [--lower | --raise]`.

Without an option it fails where a sum lies above its committed number. `--lower` commits the lines of now, if no sum
grew; `--raise` commits them in any case, and the commit says what for. `findings/` does not count.
"""

import argparse
import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / ".ci/lines.csv"
SUMS = ("outside tests", "in tests")


def wing_of(path: str) -> str:
    """Wing of a file: its first folder, in `predictor/` and `tests/` its first two; files above them are `roots`."""
    folders = path.split("/")[:-1]
    if not folders:
        return "roots"
    deep = folders[0] in ("predictor", "tests")
    return "/".join(folders[:2]) if deep and len(folders) > 1 else folders[0]


def lines_by_wing() -> Counter[str]:
    """Lines of tracked and new Python files by wing, and both sums."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines: Counter[str] = Counter()
    for path in sorted(set(listed.stdout.split())):
        if path.startswith("findings/") or not (ROOT / path).is_file():
            continue
        count = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        wing = wing_of(path)
        lines[wing] += count
        lines[SUMS[wing.startswith("tests")]] += count
    return lines


def main() -> int:
    """Print lines beside the committed ones, or commit those of now."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--lower", action="store_true", help="commit the lines of now, if neither sum grew")
    change.add_argument("--raise", dest="raised", action="store_true", help="commit them although a sum grew")
    options = parser.parse_args()
    with COMMITTED.open(newline="", encoding="utf-8") as file:
        committed = {row["wing"]: int(row["lines"]) for row in csv.DictReader(file)}
    lines = lines_by_wing()
    grown = [name for name in SUMS if lines[name] > committed.get(name, 0)]
    if options.raised or (options.lower and not grown):
        with COMMITTED.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("wing", "lines"))
            writer.writerows(sorted(lines.items()))
        return 0
    print(f"{'wing':34}{'lines':>8}{'committed':>11}")
    for wing in sorted(lines.keys() | committed.keys()):
        print(f"{wing:34}{lines[wing]:8,}{committed.get(wing, 0):11,}")
    for name in grown:
        print(
            f"{name}: {lines[name]:,} lines, {lines[name] - committed.get(name, 0):,} more than committed. Take out "
            "what the change makes needless, or run `python .ci/lines.py --raise` and say in the commit what for.",
            file=sys.stderr,
        )
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
