"""Where the data that comes with epochcast lies: the one place that knows.

Called by whatever reads `datasets/`; calls nothing of ours but the error tree.
"""

import os
from pathlib import Path

from predictor.errors import DataError

__all__ = ["data_file", "data_root", "published_data_root"]


def data_root() -> Path:
    """Folder of the shipped data: `$EPOCHCAST_DATASETS`, then the installed copy, then the checkout.

    Raises
    ------
    DataError
        If none of the three holds `gpus.csv`.
    """
    chosen = os.environ.get("EPOCHCAST_DATASETS")
    package = Path(__file__).resolve().parent
    candidates = [Path(chosen)] if chosen else [package / "_datasets", package.parent / "datasets"]
    for folder in candidates:
        if (folder / "gpus.csv").is_file():
            return folder
    looked = ", ".join(str(folder) for folder in candidates)
    raise DataError(
        f"no gpus.csv in {looked}. Reinstall epochcast, or point $EPOCHCAST_DATASETS at its datasets folder."
    )


def data_file(name: str) -> Path:
    """Path of a shipped file, such as ``gpus.csv`` or ``models/default.json``; a DataError if it is missing."""
    path = data_root() / name
    if not path.is_file():
        raise DataError(
            f"the shipped file {name!r} is missing from {path.parent}. "
            "Reinstall epochcast, or check $EPOCHCAST_DATASETS."
        )
    return path


def published_data_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """Folder of the published measurements: the argument, else `$EPOCHCAST_PUBLISHED_DATA`; DataError if neither."""
    chosen = folder or os.environ.get("EPOCHCAST_PUBLISHED_DATA")
    if not chosen:
        raise DataError(
            "the published measurements are not part of epochcast. "
            "Pass --published FOLDER or set $EPOCHCAST_PUBLISHED_DATA (datasets/README.md names their sources)."
        )
    path = Path(chosen)
    if not path.is_dir():
        raise DataError(f"{path} is not a folder. Pass --published FOLDER or set $EPOCHCAST_PUBLISHED_DATA.")
    return path
