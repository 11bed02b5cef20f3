"""What README.md and the pages of docs/ show is run, in order, as a reader would; notebooks have tests.

A block that a test cannot run says above it why: `<!-- not run: needs a GPU -->` (docs/blocks.py).
"""

import functools
import re

import pytest
import typer
from page_runner import NOT_INSTALLED, ROOT, Block, PageRunner, blocks, lines_of, page_paths

from epochcast.command import build_app

PAGES = {page: blocks(page) for page in page_paths()}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FOLDERS = ("api", "benchmarks", "datasets", "docs", "epochcast", "predictor", "proxy_cnns", "tests")
MADE = {ROOT / "docs" / "reference" / name for name in ("python.md", "commands.md", "rest.md")}
"""Pages that the site makes of the code (docs/site/)."""
FILES = [path.name for path in ROOT.glob("*.*")]
FILES += [path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
LEFT_OUT = [block for page in PAGES.values() for block in page if block.reason]


@pytest.fixture
def service(serve, tmp_path, monkeypatch):
    """Gives the address of a service with a store, started when it is asked for; its key is in the environment."""
    from api.main import create_app
    from api.settings import Settings
    from api.store.keys import add_key
    from epochcast.measured import open_store

    store = f"sqlite:///{tmp_path}/service.db"
    monkeypatch.setenv("EPOCHCAST_STORE", store)
    monkeypatch.setenv("EPOCHCAST_API_KEY", add_key(open_store(store), "reader"))
    return functools.cache(lambda: serve(create_app(Settings(store=store))))


SAME_AS = {"README.ja.md": "README.md"}
"""A page whose blocks are those of another (test_readme.py)."""


@pytest.mark.parametrize("page", [page for page, blocks_ in PAGES.items() if blocks_ and page not in SAME_AS])
def test_what_a_page_shows_runs(page, service, tmp_path):
    reader = PageRunner(tmp_path, service)
    run = [block for block in PAGES[page] if not block.reason]
    reasons = {a.place: reader.run(a, b) for a, b in zip(run, [*run[1:], None], strict=False)}
    missing = [why for why in reasons.values() if why and why.startswith(NOT_INSTALLED)]
    wrong = [f"{block}: {why}" for block, why in reasons.items() if why and why not in missing]
    if wrong:
        pytest.fail("\n".join(wrong))
    if missing:
        pytest.skip("; ".join(missing))


def test_what_a_page_shows_imports_epochcast_and_no_other_package_of_ours():
    imports = re.compile(r"^(?:>>> )?(?:from|import) (predictor|proxy_cnns|api)\b", re.MULTILINE)
    shown = [block for page in PAGES.values() for block in page if block.language == "python"]
    assert [block.place for block in shown if imports.search(block.text)] == []


@pytest.mark.parametrize("reason", sorted({block.reason for block in LEFT_OUT}))
def test_a_block_that_is_not_run_says_why(reason):
    assert reason.startswith(("needs ", "takes ", "changes "))
    pytest.skip(f"{reason}: {', '.join(block.place for block in LEFT_OUT if block.reason == reason)}")


def test_a_wrong_block_is_found(tmp_path):
    """Else the tests above would say nothing."""
    made = functools.partial(Block, "page.md", 1)
    reader = PageRunner(tmp_path, lambda: "http://127.0.0.1:1")
    assert "Nearest" in reader.run(made("sh", "epochcast predict resnet50 --gpu T5 --batch-size 64\n"))
    assert "not run by tests" in reader.run(made("sh", "pip install epochcast\n"))
    assert "not run by tests" in reader.run(made("sh", "epochcast gpu list | head\n"))
    assert "the page shows" in reader.run(made("console", "$ epochcast gpu list\n3 GPUs\n"))
    assert "NameError" in reader.run(made("python", "answer\n"))
    assert "no language" in reader.run(made("", "epochcast gpu list\n"))


def test_every_page_names_commands_targets_files_and_links_that_exist():
    commands = set(typer.main.get_command(build_app()).commands)
    named = {
        (page, name)
        for page in PAGES
        for name in re.findall(r"\bepochcast ([a-z]+)\b(?!\w)", "\n".join([*_typed(page), *_inline(page)]))
    }
    assert sorted((page, name) for page, name in named if name not in commands) == []
    named = {(page, name) for page in PAGES for name in re.findall(r"`make ([a-z]+)", _text(page))}
    assert sorted((page, name) for page, name in named if f"\n{name}:" not in MAKEFILE) == []
    linked = {
        (page, name)
        for page in PAGES
        for name in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", _text(page))
        if "://" not in name
    }
    missing = {(ROOT / page).parent / name for page, name in linked} - MADE
    assert sorted(str(path) for path in missing if not path.exists()) == []
    named = {
        (page, word)
        for page in PAGES
        if "decisions" not in page  # which tell of what was
        for word in _inline(page)
        if re.fullmatch(r"(benchmarks|datasets)/[\w/.]+\.\w+|[\w/.]+\.py", word)
        and word not in ("setup.py", "train.py")  # of others
    }
    missing = {
        (page, word) for page, word in named if not any(f"/{path}".endswith(f"/{word}") for path in FILES)
    }
    assert sorted(missing) == []


def _text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def _typed(page):
    return [line for block in PAGES[page] if block.language == "sh" for line, _ in lines_of(block.text)]


def _inline(page):
    """Code within sentences."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", _text(page))
