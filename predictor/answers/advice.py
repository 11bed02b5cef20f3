"""What would sharpen an answer that extrapolates: the remedy for each kind of reason."""

from collections.abc import Iterable

from predictor.models.forecast import Reason

__all__ = ["MEASURE_IT", "REMEDIES", "sharpened_by"]

MEASURE_IT = (
    "measure 3 minutes on this GPU (epochcast profile --preset quick), or give one run on it as an anchor"
)
_MEASURE_LAYERS = (
    "measure the CNN's own layers (epochcast profile --preset cnn:NAME), or give one run as an anchor"
)
_MEASURE_TOGETHER = "measure these GPUs training together (epochcast profile --preset ddp)"

REMEDIES: dict[str, str | None] = {
    "gpu": MEASURE_IT,
    "layers": MEASURE_IT,
    "framework": MEASURE_IT,
    "precision": MEASURE_IT,
    "memory_format": MEASURE_IT,
    "mode": MEASURE_IT,
    "xla": MEASURE_IT,
    "operator": _MEASURE_LAYERS,
    "shape": _MEASURE_LAYERS,
    "batch": "measure the CNN's own layers at this batch size (epochcast profile --preset cnn:NAME --batch-size N)",
    "capture": "give one run of the CNN in this mode as an anchor",
    "autotune": "give one run of the CNN in this mode as an anchor",
    "optimizer": "give one run of the CNN with this optimizer as an anchor",
    "edges": "say in the table's column inputs which rows every layer reads",
    "frozen": "give one run of the CNN with its parts frozen as an anchor",
    "anchor": "give a run of the CNN nearer to this question as an anchor",
    "host": "name the machine around the GPU (--host), or measure 3 minutes on it (epochcast profile --preset quick)",
    "link": _MEASURE_TOGETHER,
    "nodes": _MEASURE_TOGETHER,
    "sync_batch_norm": _MEASURE_TOGETHER,
    "measurements": "ask for the mode that was measured",
    "cnn": None,  # the reason itself says what to change
    "method": None,  # the reason itself names the errors of both
}
"""What to do about each kind of reason; None where nothing but the reason itself helps."""


def sharpened_by(reasons: Iterable[Reason]) -> str | None:
    """What would narrow the interval of an answer with these reasons: the remedy of the one that widens it most."""
    known = [(each.widens, remedy) for each in reasons if (remedy := REMEDIES.get(each.kind)) is not None]
    return max(known, key=lambda each: each[0])[1] if known else None
