"""Reads the Dockerfile far enough for tests: its stages, each a list of instructions and their arguments."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Stage", "read_stages"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Stage:
    """One image that the Dockerfile describes."""

    name: str
    base: str
    instructions: list[tuple[str, str]]

    def all(self, instruction: str) -> list[str]:
        """Arguments of every instruction of this kind."""
        return [arguments for found, arguments in self.instructions if found == instruction]

    def words(self, instruction: str) -> list[str]:
        """Words of the one instruction of this kind, which is written as a JSON list."""
        (arguments,) = self.all(instruction)
        found: list[str] = json.loads(arguments[arguments.index("[") :])
        return found

    def copies(self) -> list[tuple[str | None, list[str], str]]:
        """The stage that a COPY takes from (None: the folder that is built), what it takes, and where to."""
        found = []
        for arguments in self.all("COPY"):
            *sources, target = shlex.split(arguments)
            stage = sources.pop(0).removeprefix("--from=") if sources[0].startswith("--from=") else None
            found.append((stage, sources, target))
        return found

    def environment(self) -> dict[str, Any]:
        """What ENV sets."""
        pairs = (word.split("=", 1) for arguments in self.all("ENV") for word in shlex.split(arguments))
        return dict(pair for pair in pairs)


def read_stages(path: Path = ROOT / "Dockerfile") -> dict[str, Stage]:
    """Stages by name, in the file's order."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    stages: dict[str, Stage] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        instruction, _, arguments = line.strip().partition(" ")
        if instruction == "FROM":
            base, name = arguments.split(" AS ")
            stages[name] = Stage(name, base, [])
        elif instruction and stages:
            stages[name].instructions.append((instruction, arguments))
    return stages
