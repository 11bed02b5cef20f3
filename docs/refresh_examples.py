"""Runs the examples of README.md and docs/commands.md anew, and writes what they print.

Run it as `python docs/refresh_examples.py`. An example is a ```console block with `$ epochcast ...` in its first line;
a block that ends in ``...`` keeps its length. Files that a page shows with `$ cat NAME` lie there. Examples that need a
service, a store or published data stay as they are.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PAGES = ("README.md", "docs/commands.md")
BLOCK = re.compile(r"```console\n\$ (?P<line>.*?)\n(?P<text>.*?)```", re.DOTALL)
NEEDS_MORE = (
    "published",
    "measurements.csv",
    "model.json",
    " keys ",
    " serve ",
    " push ",
    " profile ",
    "curl ",
)
ROOT = Path(__file__).parents[1]


def main() -> int:
    """Refresh both pages."""
    for name in PAGES:
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for line, shown in BLOCK.findall(text):
                if line.startswith("cat "):
                    (Path(folder) / line.removeprefix("cat ")).write_text(shown, encoding="utf-8")
            page.write_text(BLOCK.sub(lambda found: _refreshed(found, folder), text), encoding="utf-8")
    return 0


def _refreshed(block: re.Match[str], folder: str) -> str:
    line, shown = block["line"], block["text"]
    if line == "make predict":
        return _printed(demo(), line, shown, folder)
    if not line.startswith("epochcast ") or any(word in line for word in NEEDS_MORE):
        return block[0]
    return _printed(line, line, shown, folder)


def demo() -> str:
    """The command that `make predict` runs."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.search(r"^DEMO := (.*)$", recipe, re.MULTILINE)
    if found is None:
        raise SystemExit("the Makefile has no DEMO")
    return f"epochcast {found[1]}"


def _printed(line: str, title: str, shown: str, folder: str) -> str:
    """The block of a command that is run now."""
    command = [sys.executable, "-m", "epochcast", *shlex.split(line)[1:]]
    run = subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    printed = (run.stdout + run.stderr).rstrip("\n")
    if shown.rstrip().endswith("\n..."):
        printed = "\n".join([*printed.splitlines()[: len(shown.rstrip().splitlines()) - 1], "..."])
    return f"```console\n$ {title}\n{printed}\n```"


if __name__ == "__main__":
    sys.exit(main())
