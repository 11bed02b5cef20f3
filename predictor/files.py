"""Where the shipped data lies, and how a file is replaced without a moment in which it is half written."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from predictor.errors import ArtifactError, DataError


def data_root() -> Path:
    """Folder of the shipped data: `$EPOCHCAST_DATASETS`, then the installed copy, then the checkout.

    DataError if none of the three holds `gpus.csv`.
    """
    return _data_root(os.environ.get("EPOCHCAST_DATASETS"))


@lru_cache(maxsize=8)
def _data_root(chosen: str | None) -> Path:
    package = Path(__file__).resolve().parent
    candidates = [Path(chosen)] if chosen else [package / "_datasets", package.parent / "datasets"]
    for folder in candidates:
        if (folder / "gpus.csv").is_file():
            return folder
    looked = ", ".join(str(folder) for folder in candidates)
    raise DataError(
        f"no gpus.csv in {looked}. Reinstall epochcast, or point $EPOCHCAST_DATASETS at its datasets folder."
    )


@lru_cache(maxsize=256)  # for every question
def _joined(folder: Path, name: str) -> Path:
    return folder / name


def data_file(name: str) -> Path:
    """Path of a shipped file, such as ``gpus.csv`` or ``models/default.json``.

    DataError if it is missing.
    """
    path = _joined(data_root(), name)
    if not os.path.isfile(path):  # noqa: PTH113 - for every question
        raise DataError(
            f"the shipped file {name!r} is missing from {path.parent}. "
            "Reinstall epochcast, or check $EPOCHCAST_DATASETS."
        )
    return path


def published_data_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """Folder of the published measurements: the argument, else `$EPOCHCAST_PUBLISHED_DATA`.

    DataError if neither is given, or it is no folder.
    """
    chosen = folder or os.environ.get("EPOCHCAST_PUBLISHED_DATA")
    if not chosen:
        raise DataError(
            "the published measurements are not part of epochcast. "
            "Pass --published FOLDER or set $EPOCHCAST_PUBLISHED_DATA; datasets/README.md names their sources, "
            "`epochcast data list --to FOLDER` what a folder lacks."
        )
    path = Path(chosen)
    if not path.is_dir():
        raise DataError(f"{path} is not a folder. Pass --published FOLDER or set $EPOCHCAST_PUBLISHED_DATA.")
    return path


def replace_file(path: str | PathLike[str], content: str | bytes) -> None:
    """Replace a file by `content`, text as UTF-8.

    OSError as `replacing`.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def check_replaceable(path: str | PathLike[str]) -> None:
    """Raise the OSError that `replacing` would raise for a path, by a file without a name in its folder."""
    try:
        if not is_written_through(path):
            TemporaryFile(dir=Path(path).resolve().parent).close()
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def content_of(path: Path, model_file: Path, digest: str) -> bytes:
    """Content of a file that belongs to a model file, which holds its SHA-256.

    ArtifactError if it is missing, or of another model.
    """
    content = path.read_bytes() if path.is_file() else b""
    if sha256(content).hexdigest() != digest:
        raise ArtifactError(
            f"{path} is missing, or not the file that {model_file} was written with. If `epochcast fit` is writing "
            "the model now, try again when it has ended; else write the model again with it."
        )
    return content


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file beside `path`; when the block ends, sync it to disk and rename it to `path`, unless the block raises.

    A link stays; what it points to is replaced. What cannot be replaced is opened and written to: a FIFO, a device, and
    an open file of this process such as /dev/stdout or /dev/fd/3. OSError if `path` is a folder, or its folder does not
    exist or cannot be written; then the old file is untouched. Its `filename` is `path`.
    """
    try:
        is_kept = is_written_through(path)
        with _written_through(Path(path)) if is_kept else _replaced(Path(path).resolve()) as file:
            yield file
    except OSError as error:
        error.filename, error.filename2 = os.fspath(path), None  # not the temporary file's name
        raise


def is_written_through(path: str | PathLike[str]) -> bool:
    """Whether a file can only be written to, as a FIFO, a device or /dev/stdout, not replaced by another.

    OSError if `path` is a folder, or goes through what is none.
    """
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    return not stat.S_ISREG(mode) or _own_descriptor(Path(path)) is not None


def _own_descriptor(path: Path) -> int | None:
    """Number of the open file of this process that a path names, such as 1 for /dev/stdout; None for other paths."""
    folders = {Path(folder).resolve() for folder in ("/dev/fd", "/proc/self/fd")}
    for _ in range(40):  # as many links as Linux follows
        folder = path.parent.resolve()
        if folder in folders and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = folder / path.readlink()
    return None


@contextmanager
def _written_through(path: Path) -> Iterator[BinaryIO]:
    descriptor = _own_descriptor(path)
    # An open file is written where it stands: to open /dev/stdout anew would begin a redirected one again.
    opened = os.open(path, os.O_WRONLY) if descriptor is None else os.dup(descriptor)
    with os.fdopen(opened, "wb") as file:
        yield file


@contextmanager
def _replaced(target: Path) -> Iterator[BinaryIO]:
    old_mode = _mode(target)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    # The system takes the umask off a new file's permissions; what replaces a file is its owner's alone until then.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666 if old_mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if old_mode is not None:
            temporary.chmod(old_mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name != "nt":  # Windows opens no folders
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _mode(target: Path) -> int | None:
    """Permissions of a file; None where there is none."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        return None
