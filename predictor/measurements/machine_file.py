"""JSON files of what one machine was measured to do: read, checked and written alike, whatever they hold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from predictor.errors import SchemaError
from predictor.files import replace_file

M = TypeVar("M")

_FAULTS = (OSError, SchemaError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What reading a file raises that is none of its kind."""


@dataclass(frozen=True, slots=True)
class MachineFile(Generic[M]):
    """The file of a measurement, a dataclass whose field `parts` holds a tuple of the dataclass `part`.

    `command` writes it, `name` is what the command's examples call it, `version` is that of its format.
    """

    measurement: type[M]
    parts: str
    part: type[Any]
    command: str
    name: str
    version: int

    def read(self, path: Path) -> M:
        """Read the file that the command wrote.

        SchemaError if it cannot be read, is no such file, is of another version, or holds what the measurement
        refuses; the message names it.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8-sig"))
            if not isinstance(document, dict):
                raise SchemaError("it holds no object")
            version = document.pop("format_version")
            if version != self.version:
                raise SchemaError(f"format_version is {version!r}; this release reads {self.version}.")
            parts = tuple(self.part(**row) for row in document.pop(self.parts))
            about = {name: document[name] for name in self._about() if name in document}
            return self.measurement(**about, **{self.parts: parts})
        except _FAULTS as error:
            why = getattr(error, "strerror", None) or str(error).removesuffix(".")
            why = f"it lacks {why}" if isinstance(error, KeyError) else why
            raise SchemaError(
                f"{path} is not a file of `{self.command}`: {why}. "
                f"Write one: {self.command} --out {self.name}"
            ) from error

    def write(self, measured: M, path: Path) -> None:
        """Write the file that `read` reads; what is None is left out."""
        about = {name: getattr(measured, name) for name in self._about()}
        document = {
            "format_version": self.version,
            **{name: value for name, value in about.items() if value is not None},
            self.parts: [asdict(entry) for entry in getattr(measured, self.parts)],
        }
        replace_file(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())

    def _about(self) -> list[str]:
        return [field.name for field in fields(self.measurement) if field.name != self.parts]  # type: ignore[arg-type]
