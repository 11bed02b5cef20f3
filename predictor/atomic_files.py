"""Files replaced in one step: a reader sees the old file or the new one, never half of it.

Called by whoever writes what another process may be reading, such as a served model; calls nothing of ours.
"""

import os
import tempfile
from os import PathLike
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: str | PathLike[str], content: str | bytes) -> None:
    """Write `content`, text as UTF-8, to a file beside `path`, sync it to disk, and rename it to `path`.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written; then the old file is untouched.
    """
    target = Path(path).resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(target))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _mode(target: Path) -> int:
    """Permissions of the old file, or those that a new one would get: a temporary file is its owner's alone."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
