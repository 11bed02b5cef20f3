"""How far a run is, on stderr: a bar on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from predictor.answers.notes import duration

if TYPE_CHECKING:
    from proxy_cnns.jobs import Progress

_EACH_S = 10.0


@contextmanager
def shown_progress() -> "Iterator[Callable[[Progress], None]]":
    """Show what the run reports; the bar goes when it ends."""
    if not sys.stderr.isatty():
        last = time.monotonic() - _EACH_S

        def print_line(progress: "Progress") -> None:
            nonlocal last
            if time.monotonic() - last >= _EACH_S:
                last = time.monotonic()
                done = f"{progress.done:,} of {progress.total:,}"
                print(f"{done}, {_left(progress)}: {progress.now}", file=sys.stderr)

        yield print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    texts = (TextColumn("{task.fields[left]}"), TextColumn("{task.description}", markup=False))
    columns = (BarColumn(), MofNCompleteColumn(), *texts)
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def report(progress: "Progress") -> None:
            done, total = progress.done, progress.total
            bar.update(task, completed=done, total=total, description=progress.now, left=_left(progress))

        yield report


def _left(progress: "Progress") -> str:
    """In words, whether all is measured then or the time limit ends the run before."""
    left = duration(progress.seconds_left)
    return f"the time limit ends it in {left}" if progress.limited else f"about {left} left"
