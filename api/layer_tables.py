"""CNNs that come with a question as layer tables: their schema, and the checks of what was sent."""

from dataclasses import Field as Column
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from api.words import Range, described
from predictor.catalogue.modes import CAPTURES, MEMORY_FORMATS, OPTIMIZERS, PRECISIONS
from predictor.checks import MAX_BATCH_SIZE, MAX_IMAGE_SIZE, MAX_SAMPLES
from predictor.cnns import layer_table
from predictor.errors import SchemaError
from predictor.operator_types import ACTIVATION_KINDS, KINDS, LAYER_TYPES, OPERATOR_TYPES, RUNNING

MAX_LAYERS = 10_000

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""Of everything that is sent: no unknown field, no text for a number, no infinity."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
ImageSize = Annotated[int, Range(1, MAX_IMAGE_SIZE)]

_COUNT = Annotated[int, Range(0, 10**13)] | None
_SPECIAL: dict[str, Any] = {
    "index": (Annotated[int, Range(0, MAX_LAYERS - 1)] | None, described("LayerIn.index", None)),
    "name": (Annotated[str, Field(max_length=300)], ""),
    "type": (Literal[LAYER_TYPES], ...),
    "kind": (Literal[(*ACTIVATION_KINDS, RUNNING, *MEMORY_FORMATS)] | None, described("LayerIn.kind", None)),
    "inputs": (
        Annotated[list[Annotated[int, Range(-1, MAX_LAYERS - 1)]], Field(max_length=1000)] | None,
        described("LayerIn.inputs", None),
    ),
    "parameters": (_COUNT, described("LayerIn.parameters", None)),
    "derived": (_COUNT, None),
}
_OWN = ("index", "inputs", "parameters")
_AS_SENT = tuple(column.name for column in fields(layer_table.Layer) if column.name not in _OWN)


def _size(column: Column[Any]) -> tuple[Any, Any]:
    """A column of sides or counts as a bounded field; channels and groups may be larger."""
    largest = 10**7 if column.name.endswith(("channels", "groups")) else 10**6
    smallest = 0 if column.default is None else column.default  # a known count is at least its default
    kind = Annotated[int, Range(smallest, largest)]
    return (kind | None if column.default is None else kind), column.default


if TYPE_CHECKING:

    class LayerIn(BaseModel):
        """A row of a layer table."""

        index: int | None
        name: str
        type: str
        kind: str | None
        inputs: list[int] | None
        parameters: int | None
else:
    LayerIn = create_model(
        "LayerIn",
        __doc__="A row of a layer table: one operator at one image size, shapes per image; null means unknown.",
        __config__=STRICT,
        **{column.name: _SPECIAL.get(column.name) or _size(column) for column in fields(layer_table.Layer)},
    )


class WarningIn(BaseModel):
    """What the reader of a CNN could not follow."""

    model_config = STRICT

    kind: Literal["cnn", "frozen", "operator"]
    about: Annotated[str, Field(max_length=300)]


class StepIn(BaseModel):
    """The training step that the table was recorded from; batch size and mode of the question follow from it."""

    model_config = STRICT

    batch_size: Annotated[int, Range(1, MAX_BATCH_SIZE)]
    parts: Annotated[int, Range(1, 10_000)] = 1
    precision: Literal[PRECISIONS] | None = None  # type: ignore[valid-type]
    memory_format: Literal[MEMORY_FORMATS] = "nchw"  # type: ignore[valid-type]
    optimizer: Literal[OPTIMIZERS] | None = None  # type: ignore[valid-type]
    capture: Literal[CAPTURES] | None = None  # type: ignore[valid-type]
    waits: Annotated[int, Range(1, 10_000)] | None = None
    first_wait: Annotated[int, Range(0, MAX_LAYERS)] | None = None
    last_wait: Annotated[int, Range(0, MAX_LAYERS)] | None = None
    beside: Annotated[int, Range(1, 100_000)] | None = None
    update_waits: Annotated[int, Range(1, 10_000)] | None = None
    optimizer_states: Annotated[float, Range(0, 10**6)] | None = None
    optimizer_passes: Annotated[float, Range(0, 10**6)] | None = None
    optimizer_copies: Annotated[float, Range(0, 10**6)] | None = None
    optimizer_form: Literal["foreach", "fused", "loop"] | None = None
    parallel: Literal["dp"] | None = None
    deterministic: bool | None = None
    detect_anomaly: bool | None = None
    samples: Annotated[int, Range(1, MAX_SAMPLES)] | None = None
    drop_last: bool | None = None


class LayerTableIn(BaseModel):
    """A CNN as its layers, as `epochcast cnn show FILE --format json` prints them."""

    model_config = STRICT

    name: Name = "your CNN"
    image_size: ImageSize | None = Field(None, description="The height that the first layer reads, if null.")
    layers: Annotated[list[LayerIn], Field(min_length=1, max_length=MAX_LAYERS)]
    warnings: Annotated[list[WarningIn], Field(max_length=20)] = described("LayerTableIn.warnings", [])
    step: StepIn | None = None


def inline_table(posted: LayerTableIn) -> layer_table.LayerTable:
    """Layer table of the core from a posted one; SchemaError names the row and column that contradict others."""
    try:
        return _table(posted)
    except SchemaError as error:
        error.about("layer_table")
        raise


_MOST_INPUTS = 100_000  # ten of each of the most layers; looking at 700,000 took seconds


def _table(posted: LayerTableIn) -> layer_table.LayerTable:
    n_inputs = sum(len(row.inputs or ()) for row in posted.layers)
    if n_inputs > _MOST_INPUTS:
        raise SchemaError(
            f"layer_table.layers: their inputs name {n_inputs:,} rows; at most {_MOST_INPUTS:,}. Add or concatenate in "
            "fewer steps."
        )
    layers = tuple(_layer(row, position) for position, row in enumerate(posted.layers))
    size = posted.image_size or layer_table.image_side(layers)
    if not size:
        raise SchemaError("layer_table.image_size: it is missing, and so is the first layer's in_height.")
    table = layer_table.LayerTable(
        posted.name,
        size,
        layers,
        source="api",
        warnings=tuple(layer_table.TableWarning(warning.kind, warning.about) for warning in posted.warnings),
        step=None if posted.step is None else layer_table.Step(**posted.step.model_dump()),
    )
    complaint = layer_table.table_complaint(table)
    if complaint is not None:
        position, column, why = complaint
        raise SchemaError(f"layer_table.layers[{position}].{column}: {why}")
    return table


def _layer(posted: LayerIn, position: int) -> layer_table.Layer:
    where = f"layer_table.layers[{position}]"
    if posted.index not in (None, position):
        raise SchemaError(
            f"{where}: index is {posted.index}, but rows count from 0, so it must be {position}."
        )
    if posted.inputs is not None and any(source >= position for source in posted.inputs):
        raise SchemaError(f"{where}: inputs names row {max(posted.inputs)}, which does not run before it.")
    if posted.kind not in KINDS.get(posted.type, (None,)):
        raise SchemaError(
            f"{where}: an activation has a kind, a batch norm may be {RUNNING!r}, and a permute may lead to "
            f"{' or '.join(MEMORY_FORMATS)}; type is {posted.type}."
        )
    if posted.parameters is None and OPERATOR_TYPES[posted.type].weights:
        raise SchemaError(f"{where}: parameters is missing. Give how many the {posted.type} trains, or 0.")
    layer = layer_table.Layer(
        index=position,
        inputs=None if posted.inputs is None else tuple(posted.inputs),
        parameters=posted.parameters or 0,
        **{name: getattr(posted, name) for name in _AS_SENT},
    )
    complaint = layer_table.layer_complaint(layer)
    if complaint:
        raise SchemaError(f"{where}: {posted.type} {posted.name!r}: {complaint}.")
    return layer
