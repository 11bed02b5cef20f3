"""Runs the examples of README.md and docs/ anew, and writes what they print: after a fit, before a release.

Run it as `python docs/refresh_examples.py`. An example is a ```console block with `$ epochcast ...` or `$ make predict`
in its first line; a block that ends in ``...`` keeps its length. What stands in for a reader's files lies beside it, as
for the tests (`blocks.py`); blocks that are not run, or whose numbers vary, stay as they are.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from blocks import ROOT, Block, blocks, page_paths

NEEDS_A_SERVICE = (" keys ", " serve ", " store ", " push ", "model.json")


def main() -> int:
    """Refresh every page."""
    for page in page_paths():
        with tempfile.TemporaryDirectory() as folder:
            for block in blocks(page):
                _prepare(block, Path(folder))
                _refresh(block, folder)
    return 0


def _prepare(block: Block, folder: Path) -> None:
    """Put files where the page's reader has them."""
    if block.language == "file":
        name, stand_in = block.text.split()[:2]
        shutil.copyfile(ROOT / stand_in, folder / name)
    elif block.text.startswith("$ cat "):
        line, shown = block.text.split("\n", 1)
        file = folder / line.removeprefix("$ cat ")
        if file.exists():  # a command made it
            _replace(block, f"```console\n{line}\n{file.read_text(encoding='utf-8')}```")
        else:
            file.write_text(shown, encoding="utf-8")


def _refresh(block: Block, folder: str) -> None:
    line = block.text.split("\n", 1)[0].removeprefix("$ ")
    typed = demo() if line == "make predict" else line
    varies = block.reason or block.varies or any(word in line for word in NEEDS_A_SERVICE)
    if block.language != "console" or varies or not typed.startswith("epochcast "):
        return
    _replace(block, _printed(typed, line, block.text, folder))


def _replace(block: Block, new: str) -> None:
    """Put a new block in the place of one."""
    page = ROOT / block.page
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(f"```console\n{block.text}```", new), encoding="utf-8")


def demo() -> str:
    """The command that `make predict` runs."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    demo_line = re.search(r"^DEMO := (.*)$", recipe, re.MULTILINE)
    if demo_line is None:
        raise SystemExit("the Makefile has no DEMO")
    return f"epochcast {demo_line[1]}"


def _printed(line: str, title: str, shown: str, folder: str) -> str:
    """The block of a command that is run now."""
    command = [sys.executable, "-m", "epochcast", *shlex.split(line)[1:]]
    run = subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    printed = (run.stdout + run.stderr).rstrip("\n")
    if shown.rstrip().endswith("\n..."):
        printed = "\n".join([*printed.splitlines()[: len(shown.rstrip().splitlines()) - 2], "..."])
    return f"```console\n$ {title}\n{printed}\n```"


if __name__ == "__main__":
    sys.exit(main())
