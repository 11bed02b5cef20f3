"""No module of ours imports itself by way of others as it loads: any of them can be imported first."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from case_tables import each_row

ROOT = Path(__file__).parents[2]
PACKAGES = ("predictor", "proxy_cnns", "api", "epochcast")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs when a module loads: nothing within functions, nothing for type checkers alone."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from statements(statement.orelse)
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from statements(handler.body)


def imported(source: str, modules: set[str]) -> set[str]:
    """Modules of these that a source text imports as it loads; of a name in a package, the module if it is one."""
    names = set()
    for statement in statements(ast.parse(source).body):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            members = {f"{statement.module}.{alias.name}" for alias in statement.names}
            names |= members & modules or {str(statement.module)}
    return names & modules


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules of one circle of imports, in their order; none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_way_of_others():
    assert set(PACKAGES) <= set(MODULES)
    graph = {name: imported(path.read_text(encoding="utf-8"), set(MODULES)) for name, path in MODULES.items()}
    assert sum(map(len, graph.values())) > len(graph)
    assert circle(graph) == []


@each_row
def test_a_circle_is_one_of_imports_that_run_as_a_module_loads(second, is_circle):
    sources = {"a.one": "from a import two", "a.two": second}
    graph = {name: imported(text, set(sources)) for name, text in sources.items()}
    assert set(circle(graph)) == (set(sources) if is_circle else set())
