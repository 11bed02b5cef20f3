"""Moves the packages with common names into `epochcast` in a finished wheel: no `api` of a user hides them there."""

import ast
import base64
import hashlib
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMES = "predictor|proxy_cnns|api"
_DOTTED = re.compile(rf"({NAMES})\.[\w.:]*")
"""A module, or the beginning of its name, as texts have it: `predictor.files`, `api.main:create_app`."""


def mapped_source(source: str) -> str:
    """A module with its imports, and the texts that name a module, as they are in the wheel.

    Raises
    ------
    ValueError
        If it binds a package by its own name, ``import api.main``: the wheel has no such name.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(
            re.match(rf"({NAMES})\b", alias.name) for alias in node.names
        ):
            raise ValueError(
                f"line {node.lineno}: {lines[node.lineno - 1].strip()}: import a module of it by `from`"
            )
        dotted = (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value)
        )
        if dotted or isinstance(node, ast.ImportFrom):
            pattern = rf"(?<=[\"'])({NAMES})(?=\.)" if dotted else rf"(?<=from )({NAMES})\b"
            index = node.lineno - 1
            lines[index] = re.sub(pattern, r"epochcast._\1", lines[index])
    return "".join(lines)


def map_wheel(wheel: Path) -> None:
    """Replace a wheel by one whose only top-level package is `epochcast`."""
    record, new = [], wheel.with_suffix(".mapped")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as out:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                last = entry
                continue
            if entry.filename.endswith(".py"):
                content = mapped_source(content.decode()).encode()
            entry.filename = re.sub(rf"^({NAMES})/", r"epochcast/_\1/", entry.filename)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{entry.filename},sha256={digest},{len(content)}\n")
            out.writestr(entry, content)
        out.writestr(last, "".join([*record, f"{last.filename},,\n"]))
    shutil.move(new, wheel)


class WheelHook(BuildHookInterface[Any]):
    """Hatchling's hook: an editable installation keeps the checkout's folders."""

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Map the wheel that was built."""
        if version == "standard":
            map_wheel(Path(artifact_path))
