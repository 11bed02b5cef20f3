"""Runs the blocks of a page as its reader would: in order, in one folder, without a process for each command."""

import ast
import contextlib
import importlib.util
import io
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["NOT_INSTALLED", "Block", "PageRunner", "blocks", "lines_of", "page_paths"]

ROOT = Path(__file__).parents[1]
NOT_INSTALLED = "not installed here"
_SERVICES = ("http://127.0.0.1:8000", "https://epochcast.example")
_HEREDOC = re.compile(r"cat > (\S+) <<'(\w+)'$")
_OPERATORS = {"|", "||", "&&", "&", ";", ">", ">>", "<"}


_pages = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "blocks.py"), run_name="blocks"))
Block, blocks, page_paths = _pages.Block, _pages.blocks, _pages.page_paths


def lines_of(text: str) -> Iterator[tuple[str, str | None]]:
    """The commands of a shell block, each with what a here-document holds, if it is one."""
    lines = iter(text.replace("\\\n", " ").splitlines())
    for line in lines:
        if match := _HEREDOC.match(line):
            body = []
            while (content := next(lines)) != match[2]:
                body.append(f"{content}\n")
            yield line, "".join(body)
            continue
        while not _is_whole(line):
            line += "\n" + next(lines)
        if shlex.split(line, comments=True):
            yield line, None


def _is_whole(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:  # a quotation goes on
        return False
    return True


class PageRunner:
    """One reader of one page, with a folder, Python's names and a service of their own.

    Parameters
    ----------
    folder : Path
    service : function that gives the address of a service, started when it is first asked for
    """

    def __init__(self, folder: Path, service: Callable[[], str]) -> None:
        self._folder, self._service = folder, service
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._named: dict[str, str] = {}
        self._printed, self._status = "", 200

    def run(self, block: Any, following: Any = None) -> str | None:
        """Run a block; what is wrong with it, or None. A refusal is right where the block that follows shows it."""
        run = {
            "sh": self._shell,
            "python": self._python,
            "console": self._console,
            "json": self._json,
            "file": self._file,
            "yaml": _yaml,
            "text": _nothing,
            "mermaid": _nothing,
        }.get(block.language)
        self._status = 200
        if run is None:
            return (
                f"a block of {block.language or 'no language'}: sh, console and python are run, text is not"
            )
        with pytest.MonkeyPatch.context() as patch, contextlib.chdir(self._folder):
            patch.delenv("COLUMNS", raising=False)
            for name in ("EPOCHCAST_STORE", "EPOCHCAST_MODEL"):  # what `serve` sets is undone
                patch.setenv(name, os.environ.get(name, ""))
                if not os.environ[name]:
                    patch.delenv(name)
            try:
                return run(block) or self._refusal(following)
            except Exception as error:  # noqa: BLE001 - whatever a page's code raises is the page's fault
                return f"{type(error).__name__}: {error}"

    def _refusal(self, following: Any) -> str | None:
        """What the service refused, unless the page shows it."""
        if self._status < 400 or (following is not None and following.language == "json"):
            return None
        return f"the service refuses: {self._printed}"

    def _shell(self, block: Any) -> str | None:
        self._printed = ""
        for line, content in lines_of(block.text):
            code, out, err = self._command(line, content)
            self._printed += out
            if code != 0:
                missing = f"{NOT_INSTALLED}, " if "is not installed" in err else ""
                return f"{missing}`{line}` ends with {code}: {err or out}"
        return None

    def _command(self, line: str, content: str | None = None) -> tuple[int, str, str]:
        """Exit code and output of one line."""
        if content is not None:
            (self._folder / _HEREDOC.match(line)[1]).write_text(content, encoding="utf-8")
            return 0, "", ""
        words = [self._there(os.path.expandvars(word)) for word in shlex.split(line, comments=True)]
        program = {"epochcast": _epochcast, "curl": self._curl, "cat": self._cat}.get(words[0])
        if line == "make predict":
            return _epochcast(_demo())
        if program is None or _OPERATORS & set(words):
            return 1, "", "not run by tests: say above the block why (<!-- not run: ... -->)"
        return program(words[1:])

    def _there(self, word: str) -> str:
        """The word with the address of the service that runs, where it names the pages' one."""
        for name in _SERVICES:
            if name in word:
                self._named[self._service()] = name
                word = word.replace(name, self._service())
        return word

    def _as_named(self, printed: str) -> str:
        """What was printed, with the pages' address for that of the service that runs."""
        for url, name in self._named.items():
            printed = printed.replace(url, name)
        return printed

    def _curl(self, words: list[str]) -> tuple[int, str, str]:
        if not any(word.startswith("http://127.0.0.1:") for word in words):
            return 1, "", f"asks another service than {' or '.join(_SERVICES)}"
        command = ["curl", "-sS", "-w", "\n%{http_code}", *words]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        out, _, status = run.stdout.rpartition("\n")
        self._status = max(self._status, int(status))
        return run.returncode, out, run.stderr

    def _cat(self, words: list[str]) -> tuple[int, str, str]:
        return 0, (self._folder / words[0]).read_text(encoding="utf-8"), ""

    def _console(self, block: Any) -> str | None:
        """A command and what it prints; a file that is shown, and not there yet, is the reader's."""
        line, shown = block.text.removeprefix("$ ").split("\n", 1)
        if line.startswith("cat ") and not (self._folder / line[4:]).exists():
            (self._folder / line[4:]).write_text(shown, encoding="utf-8")
            return None
        _, out, err = self._command(line)
        printed = self._as_named(out + err).splitlines()[:2]
        expected = [line for line in shown.splitlines()[:2] if line != "..."]
        if [_words(line_text, block.varies) for line_text in printed[: len(expected)]] != [
            _words(line_text, block.varies) for line_text in expected
        ]:
            return f"`{line}` prints\n{chr(10).join(printed)}\nand the page shows\n{chr(10).join(expected)}"
        return None

    def _python(self, block: Any) -> str | None:
        if match := re.match(r"# (\S+\.py)$", block.text.splitlines()[0]):
            (self._folder / match[1]).write_text(block.text, encoding="utf-8")
        missing = sorted(name for name in _imported(block.text) if importlib.util.find_spec(name) is None)
        if missing:
            return f"{NOT_INSTALLED}: {', '.join(missing)}"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block.text, block.place, "exec"), self._names)  # noqa: S102
        self._printed = out.getvalue()
        return None

    def _json(self, block: Any) -> str | None:
        """What the command before it prints; fractions within a third, and a text up to its dots."""
        return _unlike(json.loads(block.text), json.loads(self._printed), "the answer", bool(block.varies))

    def _file(self, block: Any) -> None:
        """Copy what stands in for a file of the reader's, as if measured on the GPU that is named."""
        name, stand_in, *gpu = block.text.split(maxsplit=3)
        if not gpu:
            shutil.copyfile(ROOT / stand_in, self._folder / name)
            return
        import pandas as pd

        pd.read_csv(ROOT / stand_in, dtype=str).assign(gpu=gpu[1]).to_csv(self._folder / name, index=False)


def _yaml(block: Any) -> None:
    """Read a file that another tool takes; an error if it is no YAML."""
    import yaml

    yaml.safe_load(block.text)


def _nothing(block: Any) -> None:
    """Read what is there to be read."""


def _unlike(shown: Any, got: Any, where: str, varies: bool) -> str | None:
    """Where two JSON values differ; None if nowhere. A shown list may be the beginning of the other."""
    if isinstance(shown, dict) and isinstance(got, dict):
        if list(shown) != list(got):
            return f"{where} has {', '.join(got)}"
        pairs = [(shown[name], got[name], f"{where}.{name}") for name in shown]
    elif isinstance(shown, list) and isinstance(got, list) and len(shown) <= len(got):
        pairs = [(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(shown, got, strict=False))]
    else:
        return None if _alike(shown, got, varies) else f"{where} is {got!r}"
    return next((difference for pair in pairs if (difference := _unlike(*pair, varies))), None)


def _alike(shown: Any, got: Any, varies: bool) -> bool:
    """Whether two JSON values that hold no others are the same, but for what moves with every fit."""
    if isinstance(shown, str) and isinstance(got, str):
        cut = shown.removesuffix("...")
        return _words(cut, True) == _words(got if cut == shown else got[: len(cut)], True)
    if isinstance(shown, float) and isinstance(got, float):
        return varies or got == pytest.approx(shown, rel=0.3)
    return shown == got or (varies and type(shown) is type(got))


def _words(line: str, varies: object) -> list[str]:
    """The words of a line; without numbers and keys where these vary."""
    return (re.sub(r"epochcast_[\w-]+|[\d.,]*\d", "#", line) if varies else line).split()


def _imported(code: str) -> set[str]:
    """Packages that Python code imports."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def _demo() -> list[str]:
    """Arguments of the command that `make predict` runs."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    match = re.search(r"^DEMO := (.*)$", recipe, re.MULTILINE)
    assert match is not None
    assert "$(BIN)/epochcast $(DEMO)" in recipe
    return shlex.split(match[1])


def _listen(config: Any) -> None:
    """Say what uvicorn says, in the service's form."""
    message = f"Uvicorn running on http://{config.host}:{config.port} (Press CTRL+C to quit)"
    print(json.dumps({"level": "info", "logger": "uvicorn.error", "message": message}))


def _epochcast(words: list[str]) -> tuple[int, str, str]:
    """The command in this process; `serve` goes on until it would listen."""
    from epochcast.command import main
    from epochcast.commands import serve

    code = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        patch.setattr(sys, "argv", ["epochcast", *words])
        patch.setattr(serve, "_check_port", lambda *_: None)  # others may use it
        patch.setattr("api.connections.serve", _listen)
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return code, out.getvalue(), err.getvalue()
