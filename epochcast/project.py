"""A project's defaults of options: ``epochcast.toml``, or ``[tool.epochcast]`` of ``pyproject.toml``.

Commands and Python's functions take them where no value is given; the service and the tools of agents never do.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from logging import getLogger
from pathlib import Path
from typing import Any

from predictor.answers.options import Option, check_known, options_of
from predictor.answers.question import Plan, Question, replaced_by
from predictor.errors import EpochcastError, SchemaError

_OPTIONS = {**options_of(Question), **options_of(Plan)}
_FILES = ("epochcast.toml", "pyproject.toml")


@contextmanager
def with_defaults(
    declared: Mapping[str, Option], typed: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], str]]:
    """The options given and the defaults of others that are declared, and these in words, empty without any.

    They are of the nearest file in this folder or those above it. SchemaError, which names the file, if it cannot be
    read, or has an unknown option or a wrong value; an error about an option of the file names it, too.
    """
    paths = filter(os.path.isfile, _places(os.getcwd()))  # noqa: PTH109 - for every question
    files = ((path, _read(path, os.stat(path).st_mtime_ns)) for path in paths)  # noqa: PTH116
    path, options = next(((path, options) for path, options in files if options is not None), (None, {}))
    replaced = {*typed, *replaced_by({"framework_loop": options.get("framework_loop"), **typed})}
    own = {name: value for name, value in options.items() if name in declared and name not in replaced}
    listed = ", ".join(f"{name} = {value!r}" for name, value in own.items())
    words = f"Defaults of {path}: {listed}." if own else ""
    if own:
        getLogger("epochcast.project").info(words)
    try:
        yield {**own, **typed}, words
    except EpochcastError as error:
        blamed = [name for name in own if _OPTIONS[name].shown in str(error) or name == error.option]
        if blamed:
            error.args = (f"{error} {path} gives {', '.join(blamed)}.",)
        raise


@lru_cache(maxsize=16)
def _places(folder: str) -> tuple[str, ...]:
    """Where a file of defaults may lie for this working folder, the nearest first."""
    return tuple(str(above / name) for above in (Path(folder), *Path(folder).parents) for name in _FILES)


@lru_cache(maxsize=16)
def _read(path: str, _modified_ns: int) -> dict[str, Any] | None:
    """The options of a file; None if it is a pyproject.toml without any."""
    import tomllib

    try:
        text, is_own = Path(path).read_text(encoding="utf-8"), Path(path).name == _FILES[0]
        table = tomllib.loads(text) if is_own or "epochcast" in text else {}
        options = table if is_own else table.get("tool", {}).get("epochcast")
        for name, value in (options or {}).items():
            check_known(name, _OPTIONS)
            if _OPTIONS[name].kind == "file" and isinstance(value, str):
                options[name] = str(Path(path).parent / value)
            _OPTIONS[name].checked(value)
    except (OSError, ValueError, EpochcastError) as error:  # no UTF-8 and no TOML are ValueErrors
        raise SchemaError(f"{path} gives no options: {error}") from error
    return options
