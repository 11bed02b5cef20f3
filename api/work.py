"""One bound on the work of a question, for every route: layers x GPUs x modes x batch sizes.

Nothing that is admitted works longer than about a second, so that the next client's turn comes.
"""

from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.layer_times.law import counted_operators
from predictor.models.served import Model

__all__ = ["MOST_WORK", "SEARCHED", "check_work"]

MOST_WORK = 6_000_000
"""Times of a layer in an answer, about a second's work."""

SEARCHED = range(20)
"""As many batch sizes as are tried where a question gives none."""

_MEASURED = 300  # searching measured operators for one that was not measured takes as long as 300 plain times
_ROW = 100  # writing a row of an answer takes as long as 100 plain times


def check_work(
    table: LayerTable, model: Model, gpus: int, modes: int, sizes: int, rows: int = 0, repeats: int = 1
) -> None:
    """Refuse a question that would work longer than about a second.

    Parameters
    ----------
    gpus, modes : int
        GPUs, and precisions x memory formats asked of them.
    sizes : int
        Batch sizes.
    rows : int
        Rows of the answer.
    repeats : int
        How often each time is computed.

    Raises
    ------
    OutOfRangeError
        If the work is above `MOST_WORK`.

    Notes
    -----
    Layers of one shape are computed once and count once. A GPU with measured operators counts as 300 batch sizes more:
    layers that were not measured are searched for among those that were.
    """
    layers = len(counted_operators(table)[0])
    measured = min(gpus, model.layers.n_gpus())
    work = layers * modes * repeats * (gpus * sizes + measured * _MEASURED) + rows * _ROW
    if work > MOST_WORK:
        raise OutOfRangeError(
            f"{layers:,} different layers x {gpus:,} GPUs x {modes} modes x {sizes:,} batch sizes are too much work "
            f"for one answer ({work / MOST_WORK:.1f} times the bound). Ask in several parts: fewer GPUs, precisions or "
            "batch sizes."
        )
