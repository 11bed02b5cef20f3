"""Fitted scikit-learn estimators in joblib files, and the lock in front of them.

Called by experiments, notebooks and `evaluate`; calls nothing of ours but the error tree. A joblib file is a
pickle, and a pickle runs code when it is read, so nothing is read before the SHA-256 of the file's bytes is
found in `TRUSTED_SHA256` or the caller says ``trust=True``. Served models are JSON and need no trust.
"""

import hashlib
import io
import os
from pathlib import Path
from typing import Any

from predictor.errors import ArtifactError

__all__ = ["TRUSTED_SHA256", "load_artifact", "save_artifact", "sha256_of"]

TRUSTED_SHA256: dict[str, str] = {}
"""SHA-256 in hexadecimal -> what the file is: one line per joblib file that this version vouches for."""


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes in hexadecimal; ArtifactError if it cannot be read."""
    return hashlib.sha256(_bytes_of(path)).hexdigest()


def save_artifact(estimator: object, path: str | os.PathLike[str]) -> str:
    """Write a fitted estimator as a joblib file and return its SHA-256."""
    import joblib

    joblib.dump(estimator, path, compress=3)
    return sha256_of(path)


def load_artifact(path: str | os.PathLike[str], trust: bool = False) -> Any:
    """Read a fitted estimator from a joblib file.

    Parameters
    ----------
    path : path
    trust : bool
        Read it although its hash is not listed: for files that you wrote yourself.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or neither listed nor trusted (then nothing of it is unpickled).
    """
    data = _bytes_of(path)  # read once: what is hashed is what is loaded
    digest = hashlib.sha256(data).hexdigest()
    if not trust and digest not in TRUSTED_SHA256:
        raise ArtifactError(
            f"{Path(path).name} (SHA-256 {digest}) is not among the {len(TRUSTED_SHA256)} files that this "
            "version of epochcast vouches for, and reading a joblib file can run any code. "
            "Pass --trust (trust=True) if you wrote it yourself, or use a JSON model."
        )
    return _unpickle(data, path)


def _bytes_of(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}. Check the path.") from None


def _unpickle(data: bytes, path: str | os.PathLike[str]) -> Any:
    import joblib

    try:
        return joblib.load(io.BytesIO(data))
    except Exception as error:  # unpickling raises whatever the damaged bytes lead to
        raise ArtifactError(
            f"{Path(path).name} is damaged or of another version ({type(error).__name__}: {error}). "
            "Fit it again."
        ) from error
