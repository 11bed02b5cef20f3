"""Assigned names and parameters say what the value is: a few words that say nothing are counted, wing by wing."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from case_tables import each_row

ROOT = Path(__file__).parents[2]
WINGS = ("predictor", "proxy_cnns", "api", "epochcast", "benchmarks", "docs", "notebooks", "tests", ".ci")
EMPTY = {
    "each", "found", "known", "given", "asked", "place", "those", "there", "such", "other", "others",
    "thing", "things", "way", "ways", "whole", "part", "one", "two", "some", "many", "which", "said",
    "told", "seen", "item", "items", "elem", "obj", "stuff", "this", "that", "it", "rest", "what", "here",
    "both", "these", "wanted", "sought", "got", "matter", "piece",
}  # fmt: skip
MOST_PER_THOUSAND_LINES = 5


def assigned_names(module: ast.Module) -> Iterator[str]:
    """Names of variables, parameters, fields and exceptions that a module binds; pytest names its hooks' parameters."""
    hooks = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("pytest_")
    ]
    named_by_pytest = {parameter for hook in hooks for parameter in hook.args.args}
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node not in named_by_pytest:
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def is_empty(name: str) -> bool:
    return name.strip("_").rstrip("0123456789") in EMPTY


def wing_of(path: Path) -> str:
    folder = path.relative_to(ROOT).parts[:-1]
    return "/".join(folder[:2]) if folder[0] == "predictor" else folder[0]


def empty_names_by_wing() -> dict[str, tuple[int, Counter[str]]]:
    """Lines of each wing, and its empty names by file."""
    lines: Counter[str] = Counter()
    names: dict[str, Counter[str]] = {}
    for path in sorted(path for wing in WINGS for path in (ROOT / wing).rglob("*.py")):
        source, wing = path.read_text(encoding="utf-8"), wing_of(path)
        lines[wing] += len(source.splitlines())
        empty = [name for name in assigned_names(ast.parse(source)) if is_empty(name)]
        names.setdefault(wing, Counter()).update({str(path.relative_to(ROOT)): len(empty)})
    return {wing: (lines[wing], names[wing]) for wing in lines}


def test_no_wing_has_more_than_five_empty_names_in_a_thousand_lines() -> None:
    above = {
        wing: f"{1000 * names.total() / lines:.1f} per thousand lines, most in {names.most_common(3)}"
        for wing, (lines, names) in empty_names_by_wing().items()
        if 1000 * names.total() > MOST_PER_THOUSAND_LINES * lines
    }
    assert not above, f"Name what the value is (`row`, `gpu_time_ms`, `layers_by_name`): {above}"


@each_row
def test_names_are_counted_where_they_are_bound(source: str, empty: list[str]) -> None:
    assert sorted(name for name in assigned_names(ast.parse(source)) if is_empty(name)) == sorted(empty)
