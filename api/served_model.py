"""The model that answers, and its replacement while the service runs.

`epochcast fit --out` replaces the file in one step; whether it has changed is looked at between requests,
never in one, and a request keeps the model that it began with. A file that cannot be read is reported, and
the model before it goes on answering.
"""

import asyncio
import logging
from os import PathLike
from pathlib import Path

from predictor.errors import ModelError
from predictor.files import data_file
from predictor.models.served import Model

__all__ = ["ServedModel"]

_LOG = logging.getLogger("epochcast.model")
_Stamp = tuple[int, int, int]


class ServedModel:
    """A model file and what was read of it last.

    Parameters
    ----------
    path : path, optional
        The default that comes with epochcast, if not given.

    Raises
    ------
    ArtifactError
        If there is no model to begin with.
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else data_file("models/default.json")
        self.problem: str | None = None
        """Why the file as it is now is not what answers; None if it is."""
        self._stamp = self._look()
        self.current = Model.load(self.path)
        """The model that answers; take it once per request."""

    def reload_if_changed(self) -> bool:
        """Read the file if it is another than last time; whether another model answers now.

        Raises
        ------
        Nothing: a file that is missing or damaged becomes `problem`.
        """
        stamp = self._look()
        if stamp == self._stamp:
            return False
        try:
            model = Model.load(self.path)
        except ModelError as error:
            self._stamp, self.problem = stamp, str(error)
            _LOG.error("the new model is not served: %s", error)
            return False
        self.current, self._stamp, self.problem = model, stamp, None
        _LOG.info("serving another model: %s", model.card.get("trained_on"))
        return True

    async def watch(self, every_s: float = 1.0) -> None:
        """Look at the file again and again, in a thread, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            await asyncio.to_thread(self.reload_if_changed)

    def _look(self) -> _Stamp | None:
        """What changes when the file is replaced, even within one tick of the clock."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
