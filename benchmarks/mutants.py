"""Do tests notice a fault? Draws small faults in the wings that compute, runs their tests on each, names survivors.

    python benchmarks/mutants.py --n 50 --out build/mutants.csv

A fault is a comparison, an operator, a number, a truth value or a returned value changed in one place. Tests that name
the faulty module run first, then the others of the wing; with `--near` the former alone, which takes a quarter of the
time and leaves more survivors, to be run again by `--only 3,17`.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WINGS = {
    "predictor/operators": "tests/predictor_tests/operators_tests",
    "predictor/models": "tests/predictor_tests/models_tests",
}
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
_LIMIT_S = 1800


class Mutant(NamedTuple):
    """One fault: a source file with one expression replaced."""

    path: str
    line: int
    before: str
    after: str
    source: str


def mutants_of(path: str) -> Iterator[Mutant]:
    """Every fault of one file, in the order of its text."""
    source = (ROOT / path).read_text(encoding="utf-8")
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function in ast.walk(tree):  # what is said of types and constants at import is no computation
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (each for statement in function.body for each in ast.walk(statement)):
            if not isinstance(node, ast.expr | ast.stmt):
                continue
            changed = _changed(node)
            if changed is None or node.end_lineno is None or node.end_col_offset is None:
                continue
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            before, after = source.encode()[start:end].decode(), f"({changed})"
            if isinstance(node, ast.Return):
                after = changed
            text = (source.encode()[:start] + after.encode() + source.encode()[end:]).decode()
            yield Mutant(path, node.lineno, " ".join(before.split()), " ".join(after.split()), text)


def _changed(node: ast.expr | ast.stmt) -> str | None:
    """Source of the node with a fault; None where it can have none."""
    if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp):
        field = "ops" if isinstance(node, ast.Compare) else "op"
        old = node.ops[0] if isinstance(node, ast.Compare) else node.op
        if type(old) not in _SWAPS:
            return None
        new = _SWAPS[type(old)]()
        copy = ast.parse(ast.unparse(node), mode="eval").body
        setattr(copy, field, [new, *node.ops[1:]] if isinstance(node, ast.Compare) else new)
        return ast.unparse(copy)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return repr(node.value + 1)
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        return "return None"
    return None


def drawn(n: int, seed: int) -> list[Mutant]:
    """`n` faults, all kinds and lines alike."""
    tracked = subprocess.check_output(["git", "ls-files", *WINGS], cwd=ROOT, text=True).split()
    sites = [each for path in sorted(tracked) if path.endswith(".py") for each in mutants_of(path)]
    return random.Random(seed).sample(sites, n)  # noqa: S311 - a sample, no secret


def outcome(mutant: Mutant, deselected: list[str], near: bool) -> str:
    """The test that failed, ``timeout``, or nothing: the fault survived."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        (Path(folder) / mutant.path).write_text(mutant.source, encoding="utf-8")
        tests = next(Path(folder, tests) for wing, tests in WINGS.items() if mutant.path.startswith(wing))
        module = mutant.path.removesuffix(".py").replace("/", ".")
        mentions = {file: file.read_text(encoding="utf-8").count(module) for file in tests.rglob("test_*.py")}
        files = sorted(mentions, key=lambda file: (-mentions[file], file))
        if near and mentions[files[0]]:
            files = [file for file in files if mentions[file]]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "--no-header",
        ]
        command += [f"--deselect={each}" for each in deselected] + [
            str(file.relative_to(folder)) for file in files
        ]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": folder, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return "timeout"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0] if lines else "" if done.returncode == 0 else f"pytest: {done.returncode}"


def main() -> None:
    """Run the drawn faults and print the survivors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--near", action="store_true", help="only tests that name the faulty module")
    parser.add_argument("--only", default="", help="numbers of faults, separated by commas")
    parser.add_argument("--deselect", action="append", default=[], help="a test that fails without a fault")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants.csv")
    options = parser.parse_args()
    chosen = [int(each) for each in options.only.split(",") if each] or list(range(options.n))
    faults = drawn(options.n, options.seed)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file, ThreadPoolExecutor(options.jobs) as pool:
        table = csv.writer(file)
        table.writerow(["number", "path", "line", "before", "after", "noticed_by"])
        for number, by in zip(
            chosen,
            pool.map(lambda i: outcome(faults[i], options.deselect, options.near), chosen),
            strict=True,
        ):
            fault = faults[number]
            table.writerow([number, *fault[:4], by])
            file.flush()
            if not by:
                print(
                    f"survived: {number} {fault.path}:{fault.line}: {fault.before} -> {fault.after}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
