"""What may be asked, field by field, every number bounded: the source of the OpenAPI document.

Options are those that the core's `Question` and `Plan` declare: a new one is taken here without an edit. Bounds keep
every product of fields far below the largest float, so that no huge number becomes infinity on the way.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
    model_validator,
)

from api.layer_tables import STRICT, LayerTableIn, Name, inline_table
from api.words import WORDS, Range, described
from predictor.answers.fit_memory import ALLOWED
from predictor.answers.options import KINDS, Option, options_of, renewed
from predictor.answers.question import ANCHOR_FIELDS, OPTIONS, RETIRED, Plan, Question
from predictor.answers.resolved import OwnMeasurements, ResolvedQuestion, load_model
from predictor.catalogue.modes import MEMORY_FORMATS, PRECISIONS
from predictor.catalogue.offers import Offer
from predictor.checks import LARGEST, MAX_BATCH_SIZE, SMALLEST
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import is_proxy_name
from predictor.cnns.resolve import name_and_size
from predictor.cnns.zoo import ZOO
from predictor.errors import EpochcastError, OutOfRangeError, SchemaError, UnknownCnnError, nearest
from predictor.measurements.hosts import is_host_file
from predictor.models.forecast import Anchor
from predictor.models.served import Model
from predictor.operators.operators import counted_operators

if TYPE_CHECKING:
    import pandas as pd

MAX_GPUS = 200
MAX_BATCHES = 200
MAX_EXPLAINED_GPUS = 8
MAX_ANCHORS = 200
MAX_MEASUREMENTS = 5_000
MAX_COLUMN_ROWS = 10_000  # fitting them takes about a second
MAX_RUNS = 500
"""Runs of one CNN at one image size in one precision among measurements: each corrects every time of it."""

MOST_WORK = 6_000_000
"""Times of a layer in an answer, about a second's work."""

SEARCHED = range(20)
"""As many batch sizes as are tried where a question gives none."""

_MEASURED = 300  # searching measured operators for one that was not measured takes as long as 300 plain times
_ROW = 100  # writing a row of an answer takes as long as 100 plain times
_RUN = 100  # correcting the times of a GPU by a run of the CNN takes as long as 100 plain times

LISTED = {"precision": "precisions", "memory_format": "memory_formats"}
"""Options of which a question about predictions gives several."""

EXAMPLES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("question_examples.json").read_text(encoding="utf-8")
)
"""By class of a question, then by name, what the OpenAPI document shows."""

_LONGEST_TEXT = 60

_Cell = Annotated[str, Field(max_length=100_000)] | int | float | bool | None
_ColumnName = Annotated[str, Field(max_length=100)]
_Measurement = Annotated[dict[_ColumnName, _Cell], Field(max_length=100)]
_MeasurementColumns = Annotated[
    dict[_ColumnName, Annotated[list[Any], Field(max_length=MAX_COLUMN_ROWS)]], Field(max_length=100)
]  # cells are checked with their rows: a type for each would name a million wrong ones


def is_served(option: Option) -> bool:
    """Whether a service takes an option; it takes none that names a file."""
    return option.remote and option.kind != "file"


def _form_of(value: object) -> str | None:
    return "columns" if isinstance(value, dict) else "rows" if isinstance(value, list) else None


def _rows_or_columns(max_rows: int) -> Any:
    """Type of a measurement table as a list of rows, or as columns; errors name only the form that was sent."""
    rows = Annotated[list[_Measurement], Field(max_length=max_rows)]
    kind = Discriminator(
        _form_of, custom_error_type="measurements_form",
        custom_error_message="Give an array of rows or an object of columns",
    )  # fmt: skip
    return Annotated[Annotated[rows, Tag("rows")] | Annotated[_MeasurementColumns, Tag("columns")], kind]


def _or_text(number: Any, option: Option) -> Any:
    """Numbers, or a text that the core reads: ``2d``, ``$100``, ``6/machine``."""

    def read(value: object, check: ValidatorFunctionWrapHandler) -> object:
        if not isinstance(value, str):
            return check(value)
        if not 1 <= len(value) <= _LONGEST_TEXT:
            raise ValueError(f"Give a number, or a text of 1 to {_LONGEST_TEXT} characters")
        try:
            return option.checked(value)
        except EpochcastError as error:
            raise ValueError(str(error)) from None

    text = {"type": "string", "minLength": 1, "maxLength": _LONGEST_TEXT}
    kinds = [TypeAdapter(number).json_schema(), text]
    return Annotated[number, WrapValidator(read), WithJsonSchema({"anyOf": kinds})]


def _with_commas(value: object) -> object:
    is_list = isinstance(value, list) and value and all(isinstance(text, str) for text in value)
    return ",".join(value) if is_list else value  # type: ignore[arg-type]


_OneOrMore = TypeAdapter(Name | Annotated[list[Name], Field(min_length=1)])
_Names = Annotated[Name, BeforeValidator(_with_commas), WithJsonSchema(_OneOrMore.json_schema())]


def _type_of(option: Option) -> Any:
    """The type of an option's values, None not counted."""
    if option.kind in ("whole", "workers", "trainings"):
        whole = Annotated[int, Range(int(option.low), int(option.high))]
        return whole if option.kind == "whole" else _or_text(whole, option)
    if option.kind in ("number", "hours", "usd"):
        least = SMALLEST if option.default is None and not option.free else option.low  # minutes may be 0
        number = Annotated[float, Range(least, min(option.high, LARGEST))]
        return number if option.kind == "number" else _or_text(number, option)
    if option.kind == "choice":
        return Literal[option.choices]
    if option.kind == "anchors":
        return Annotated[list[AnchorIn], Field(max_length=MAX_ANCHORS)]
    return {"word": Name, "names": _Names, "loader": Name, "flag": bool}[option.kind]


def _field_of(option: Option, *, needed: bool = False) -> tuple[Any, Any]:
    """An option as a field of a model."""
    kind = _type_of(option)
    if needed:
        return kind, Field(description=option.help)
    usual = f" Null: {option.usual}." if option.usual else ""
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    text = option.help + usual
    if option.now:
        text = f"Retired: now `{option.now[0]}`, {option.now[1].format(KINDS[option.kind].metavar)}."
    about = Field(default, description=text, deprecated=bool(option.now) or None)
    return kind | None if default is None else kind, about


def _with_options(
    base: type[BaseModel],
    options: Mapping[str, Option],
    without: Sequence[str] = (),
    needed: Sequence[str] = (),
) -> Any:
    """`base` with a field for each option that a service takes; `measurements` has a type of its own.

    Options that name a file are left out: no file of the service's machine is ever opened for a client.
    """
    declared: dict[str, Any] = {
        name: _field_of(option, needed=name in needed)
        for name, option in options.items()
        if is_served(option) and name not in without
    }
    return create_model(base.__name__.strip("_"), __base__=base, __doc__=base.__doc__, **declared)


class _Anchor(BaseModel):
    """A measurement of this CNN in this mode; give exactly one time."""

    model_config = STRICT


if TYPE_CHECKING:
    AnchorIn = _Anchor
    _Rows = list[dict[str, Any]] | dict[str, list[Any]]
    _ManyRows = _Rows
else:
    AnchorIn = _with_options(_Anchor, ANCHOR_FIELDS, needed=("gpu", "batch_size"))
    _Rows, _ManyRows = _rows_or_columns(MAX_MEASUREMENTS), _rows_or_columns(MAX_COLUMN_ROWS)


_MiniBatch = Annotated[int, Range(1, MAX_BATCH_SIZE)]
_BatchSizes = Annotated[list[_MiniBatch], Field(min_length=1, max_length=MAX_BATCHES)]


class CnnQuestion(BaseModel):
    """A question about a CNN, without the options that the core declares."""

    model_config = STRICT | ConfigDict(
        json_schema_extra=lambda schema, kind: schema.update(
            {"not": WORDS["no_cnn_or_two"]}, examples=[*EXAMPLES[kind.__name__].values()]
        )
    )

    layer_table: LayerTableIn | None = described("CnnQuestion.layer_table", None)
    answer: ClassVar[str] = "predict"
    """What it asks for, a word of `predictor.answers.options.ANSWERS`."""

    cnn: Name | None = described("CnnQuestion.cnn", None)
    batch_sizes: _BatchSizes | None = described("CnnQuestion.batch_sizes", None)
    measurements: _Rows = described("CnnQuestion.measurements", [])

    if TYPE_CHECKING:  # of each question's own fields and options, those that the service itself reads
        gpus: Any
        image_size: int | None
        data_set: str | None
        anchors: list[_Anchor]


if TYPE_CHECKING:
    _Predicted = CnnQuestion
    _Explained = CnnQuestion
    _Compared = CnnQuestion
    _Checked = CnnQuestion
else:
    _Predicted = _with_options(CnnQuestion, options_of(Question, "predict") | RETIRED, without=tuple(LISTED))
    _Explained = _with_options(CnnQuestion, options_of(Question, "explain"))
    _Checked = _with_options(CnnQuestion, options_of(Question, "predict") | RETIRED)
    _Compared = _with_options(CnnQuestion, options_of(Question, "compare") | RETIRED | options_of(Plan))

_Gpus = Annotated[list[Name], Field(min_length=1, max_length=MAX_GPUS)]
_FewGpus = Annotated[list[Name], Field(min_length=1, max_length=MAX_EXPLAINED_GPUS)]
_BatchSize = Annotated[list[_MiniBatch], Field(min_length=1, max_length=1)]
_Allowed: Any = Literal[ALLOWED]
_Precision: Any = Literal[PRECISIONS]
_MemoryFormat: Any = Literal[MEMORY_FORMATS]


class PredictionQuestion(_Predicted):
    """One CNN on many GPUs, at many batch sizes, precisions and memory formats."""

    gpus: _Gpus = described("PredictionQuestion.gpus")
    precisions: Annotated[list[_Precision], Field(min_length=1, max_length=len(PRECISIONS))] | None = Field(
        None, description=f"Null: {options_of(Question)['precision'].usual}."
    )
    memory_formats: (
        Annotated[list[_MemoryFormat], Field(min_length=1, max_length=len(MEMORY_FORMATS))] | None
    ) = Field(None, description=f"Null: {options_of(Question)['memory_format'].usual}.")
    form: Literal["rows", "columns"] = described("PredictionQuestion.form", "rows")


class ExplanationQuestion(_Explained):
    """What the time of one CNN in one mode is made of, on one GPU or a few."""

    batch_sizes: _BatchSizes
    answer: ClassVar[str] = "explain"

    gpus: _FewGpus = Field(description="Names as drivers and people write them.")


_Positive = Annotated[float, Range(SMALLEST, LARGEST)]


class CheckQuestion(_Checked):
    """Whether the speed of one training is normal; give exactly one of the three times."""

    gpu: Name | None = Field(None, description="The one that trains; needed, or `gpus`.")
    gpus: Annotated[list[Name], Field(min_length=1, max_length=1)] = Field([], description="`gpu` as a list.")
    batch_size: _MiniBatch | None = described("CheckQuestion.batch_size", None)
    batch_sizes: _BatchSize | None = Field(None, description="`batch_size` as a list.")
    epochs: Annotated[int, Range(1, 1_000_000)] = described("CheckQuestion.epochs", 1)
    images_per_s: _Positive | None = Field(None, description="The training's speed, or one of the next two.")
    iteration_time_ms: _Positive | None = None
    epoch_time_s: _Positive | None = Field(None, description="It needs `data_set` or `samples`.")
    waiting_share: Annotated[float, Range(0, 1, below=True)] | None = described(
        "CheckQuestion.waiting_share", None
    )

    @model_validator(mode="after")
    def _one_training(self) -> "CheckQuestion":
        for name in ("gpu", "batch_size"):
            value = getattr(self, name)
            values = getattr(self, f"{name}s")
            if (value is None and values == []) or (value is not None and values):
                raise ValueError(f"neither or both of {name} and {name}s are given. Give {name}.")
            if value is not None:
                setattr(self, f"{name}s", [value])
        return self


class StoredRows(BaseModel):
    """Which rows of the measurement store to answer from; all that is given must hold."""

    model_config = STRICT

    gpu: Name = Field(description="As drivers and people write it.")
    host: Name | None = None
    source: Name | None = None
    key: Name | None = Field(None, description="Only what came with the API key of this name.")
    upload: Annotated[int, Range(1, 2**63 - 1)] | None = None


class ChangedCnn(BaseModel):
    """The CNN after a change, by its name in the zoo or as layers."""

    model_config = STRICT

    cnn: Name | None = Field(None, description="A CNN of the zoo, as in the question.")
    layer_table: LayerTableIn | None = Field(None, description="A CNN of your own, instead of `cnn`.")


class DifferenceQuestion(_Checked):
    """What a change from one CNN to another costs, on a few GPUs at given batch sizes."""

    after: ChangedCnn
    gpus: _FewGpus = Field(description="Names as drivers and people write them.")
    batch_sizes: _BatchSizes | None = Field(None, description="The usual one of both CNNs if null.")

    @property
    def changed(self) -> "DifferenceQuestion":
        """The same question about the CNN after the change."""
        return self.model_copy(update={"cnn": self.after.cnn, "layer_table": self.after.layer_table})


class CalibrationQuestion(PredictionQuestion):
    """As for predictions, with measurements to answer from: `measurements`, or `stored` ones."""

    most_keys: ClassVar[int] = 400_000

    gpus: Annotated[list[Name], Field(max_length=MAX_GPUS)] = described("CalibrationQuestion.gpus", [])
    measurements: _ManyRows = described("CalibrationQuestion.measurements", [])
    stored: StoredRows | None = Field(None, description="Rows of the store, instead of `measurements`.")

    @model_validator(mode="after")
    def _one_source(self) -> "CalibrationQuestion":
        if bool(self.measurements) == (self.stored is not None):
            raise ValueError(
                "neither or both of measurements and stored are given. "
                "Send the rows of a profile, or say which stored ones."
            )
        return self


class ComparisonQuestion(_Compared):
    """Which GPU to rent for training one CNN."""

    answer: ClassVar[str] = "compare"

    gpus: _Gpus | None = Field(None, description="Every GPU on offer if null.")


class MemoryPlanQuestion(_Compared):
    """The cheapest way to train one CNN at one mini-batch in the memory of a few GPUs."""

    answer: ClassVar[str] = "compare"

    gpus: _FewGpus = Field(description="Names as drivers and people write them.")
    batch_sizes: _BatchSize = Field(description="Images of an iteration, on all GPUs; they stay.")
    memory_gib: _Positive | None = described("MemoryPlanQuestion.memory_gib", None)
    allow: Annotated[list[_Allowed], Field(max_length=len(ALLOWED))] = described(
        "MemoryPlanQuestion.allow", []
    )


def plan_of(posted: ComparisonQuestion | MemoryPlanQuestion) -> Plan:
    """The training that GPUs are compared for."""
    return Plan(**{name: getattr(posted, name) for name in options_of(Plan)})


def core_question(posted: CnnQuestion, gpus: object, served: Model, offers: Sequence[Offer]) -> Question:
    """The core's question with every option that was asked, but without the question's measurements.

    SchemaError, OutOfRangeError or UnknownCnnError if options contradict each other, or the CNN makes no sense.
    """
    cnn = _cnn_of(posted)
    fields = posted.__dict__  # where pydantic does not warn of deprecated ones
    options = renewed({name: fields[name] for name in OPTIONS if fields.get(name) is not None}, OPTIONS)
    for name in ("host", "loader"):
        if is_host_file(str(options.get(name))):
            raise SchemaError(
                f"{name} {options[name]!r} is a file, which a service does not read. Give its name, or ask locally."
            ).about(name)
    own = {
        "anchors": [anchor.model_dump(exclude_none=True) for anchor in posted.anchors],
        "measurements": None,
        "model": served,
        "offers": offers if options.get("usd_per_hour") is None else None,
    }
    read = {name: value for name, value in own.items() if posted.answer in options_of(Question)[name].answers}
    return Question(cnn, gpus, posted.batch_sizes, **{**options, **read})


def _cnn_of(posted: CnnQuestion) -> str | LayerTable:
    """The CNN, by its name in the zoo or as layers; a name is never a path, which the core would take."""
    if (posted.cnn is None) == (posted.layer_table is None):
        named = "no CNN is" if posted.cnn is None else "cnn and layer_table are"
        raise SchemaError(f"{named} given. Give one CNN: as cnn (a name) or as layer_table.").about("cnn")
    if posted.layer_table is not None:
        return inline_table(posted.layer_table)
    name = name_and_size(str(posted.cnn))[0]
    if name not in ZOO and not is_proxy_name(name):
        raise UnknownCnnError(
            f"no CNN is called {posted.cnn!r}. Nearest: {nearest(str(posted.cnn), ZOO)}. `GET /v1/cnns` lists all; "
            "send any other as layer_table."
        )
    return str(posted.cnn)


def check_work(
    resolved: ResolvedQuestion, gpus: float, modes: int = 1, *, rows: int = 0, repeats: int = 1
) -> None:
    """Refuse a question that would work longer than about a second: OutOfRangeError above `MOST_WORK`.

    `gpus` are those of a mode, `modes` the precisions x memory formats asked of them, `rows` those of the answer,
    `repeats` how often each time is computed.

    Layers of one shape are computed once and count once. A GPU with measured operators counts as 300 batch sizes more:
    layers that were not measured are searched for among those that were. Runs of the CNN correct each GPU; each of
    their GPUs is predicted at each of their batch sizes.
    """
    question, table = resolved.question, resolved.tables[0]
    sizes = len(question.batch_sizes or SEARCHED)
    own = question.measurements if isinstance(question.measurements, OwnMeasurements) else None
    model = own.model if own else load_model(question.model)
    tables = [side for side, _ in resolved.side_by_side] if question.beside else [table]
    layers = sum(len(counted_operators(side)[0]) for side in tables)
    runs = [(run["gpu"], run["batch_size"]) for run in question.anchors if not isinstance(run, Anchor)]
    runs += [run[:2] for run in own.runs_of(table)] if own else []
    run_times = len({gpu for gpu, _ in runs}) * len({size for _, size in runs})
    measured = min(gpus, model.layers.n_gpus())
    times = gpus * sizes + measured * _MEASURED + run_times
    work = layers * modes * repeats * times + rows * _ROW + len(runs) * _RUN * gpus * modes * repeats
    if work > MOST_WORK:
        corrections = f" corrected by {len(runs):,} runs" if runs else ""
        raise OutOfRangeError(
            f"{layers:,} different layers x {gpus:,.0f} GPUs x {modes} modes x {sizes:,} batch sizes{corrections} are "
            f"too much work for one answer ({work / MOST_WORK:.1f} times the bound). Ask in several parts: fewer GPUs, "
            f"precisions{', runs' if runs else ''} or batch sizes."
        )


def check_runs(frame: "pd.DataFrame") -> None:
    """SchemaError if measurements hold more than `MAX_RUNS` runs of one CNN at one image size in one precision."""
    targets = frame[frame["kind"].fillna("target") == "target"]
    runs = Counter(zip(targets["cnn"], targets["image_size"], targets["precision"], strict=True))
    for (cnn, size, precision), count in runs.items():
        if count > MAX_RUNS:
            raise SchemaError(
                f"the measurements hold {count:,} runs of {cnn} at image size {size} in {precision}; at most "
                f"{MAX_RUNS} are used. Leave out runs at batch sizes near others: these say the same."
            ).about("measurements")
