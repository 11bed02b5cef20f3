"""What may be asked and what is answered, field by field, every number bounded: the source of the OpenAPI document.

Used by the routes; calls the core for its words and limits. Bounds keep every product of fields far below what a float
holds, so that no huge number becomes infinity on the way.
"""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.store.upload_tables import MAX_ROWS
from predictor.answers.compare import RANKINGS
from predictor.catalogue.modes import CAPTURES, FRAMEWORKS, MEMORY_FORMATS, OPTIMIZERS, PRECISIONS
from predictor.checks import MAX_BATCH_SIZE, MAX_IMAGE_SIZE, MAX_SAMPLES
from predictor.cnns.layer_table import ACTIVATION_KINDS, LAYER_TYPES
from predictor.models.served import METHODS

__all__ = [
    "MAX_BATCHES",
    "MAX_EXPLAINED_GPUS",
    "MAX_GPUS",
    "MAX_LAYERS",
    "MAX_ONNX_BYTES",
    "AnchorIn",
    "CalibrationQuestion",
    "ComparisonQuestion",
    "ExplanationQuestion",
    "LayerIn",
    "LayerTableIn",
    "OwnCnn",
    "PredictionQuestion",
    "StoredRows",
]

MAX_GPUS = 200
MAX_BATCHES = 200
MAX_EXPLAINED_GPUS = 8
MAX_LAYERS = 10_000
MAX_ANCHORS = 200
MAX_MEASUREMENTS = 5_000
MAX_ONNX_BYTES = 16 * 2**20

if TYPE_CHECKING:
    _LayerType = str
    _Kind = str
    _Framework = str
    _Capture = str
    _Optimizer = str
    _Precision = str
    _MemoryFormat = str
    _Method = str
    _Ranking = str
else:
    _LayerType, _Kind = Literal[LAYER_TYPES], Literal[ACTIVATION_KINDS]
    _Framework, _Capture, _Optimizer = Literal[FRAMEWORKS], Literal[CAPTURES], Literal[OPTIMIZERS]
    _Precision, _MemoryFormat = Literal[PRECISIONS], Literal[MEMORY_FORMATS]
    _Method, _Ranking = Literal[METHODS], Literal[RANKINGS]

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_BatchSize = Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]
_ImageSize = Annotated[int, Field(ge=1, le=MAX_IMAGE_SIZE)]
_Samples = Annotated[int, Field(ge=1, le=MAX_SAMPLES)]
_Time = Annotated[float, Field(gt=0, ge=1e-6, le=1e12)]
_Side = Annotated[int, Field(ge=0, le=1_000_000)]
_Channels = Annotated[int, Field(ge=0, le=10_000_000)]

_Cell = Annotated[str, Field(max_length=100_000)] | int | float | bool | None
_ColumnName = Annotated[str, Field(max_length=100)]
_Measurement = Annotated[dict[_ColumnName, _Cell], Field(max_length=100)]
_MeasurementColumns = Annotated[
    dict[_ColumnName, Annotated[list[Any], Field(max_length=MAX_ROWS)]], Field(max_length=100)
]  # cells are checked with their rows: a type for each would name a million wrong ones

_IN = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class LayerIn(BaseModel):
    """A row of a layer table: one operator at one image size, shapes per image; null means unknown."""

    model_config = _IN

    index: Annotated[int, Field(ge=0, lt=MAX_LAYERS)] | None = Field(
        None, description="Its place, counted from 0."
    )
    name: Annotated[str, Field(max_length=300)] = ""
    type: _LayerType
    kind: _Kind | None = Field(None, description="Of an activation.")
    inputs: Annotated[list[Annotated[int, Field(ge=-1, lt=MAX_LAYERS)]], Field(max_length=1000)] | None = (
        Field(
            None, description="Indices of the layers that it reads, -1 being the image; null: the one before."
        )
    )
    in_channels: _Channels | None = None
    in_height: _Side | None = None
    in_width: _Side | None = None
    out_channels: _Channels | None = None
    out_height: _Side | None = None
    out_width: _Side | None = None
    kernel_height: _Side | None = None
    kernel_width: _Side | None = None
    stride_height: _Side | None = None
    stride_width: _Side | None = None
    padding_height: _Side | None = None
    padding_width: _Side | None = None
    dilation: _Side | None = None
    groups: _Channels | None = None
    parameters: Annotated[int, Field(ge=0, le=10**13)] | None = Field(
        None, description="Trainable numbers; needed where a layer has weights."
    )


class LayerTableIn(BaseModel):
    """A CNN as its layers, as `epochcast cnn show FILE --format json` prints them."""

    model_config = _IN

    name: _Name = "your CNN"
    image_size: _ImageSize | None = Field(None, description="The height that the first layer reads, if null.")
    layers: Annotated[list[LayerIn], Field(min_length=1, max_length=MAX_LAYERS)]
    warnings: Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=20)] = Field(
        [], description="Why an answer about it extrapolates, as whoever read the CNN found."
    )


class AnchorIn(BaseModel):
    """A measurement of this very CNN in this mode; give exactly one time."""

    model_config = _IN

    gpu: _Name
    batch_size: _BatchSize
    image_size: _ImageSize | None = None
    iteration_time_ms: _Time | None = None
    epoch_time_s: _Time | None = Field(None, description="Needs `samples`.")
    samples: _Samples | None = None
    throughput_samples_per_s: _Time | None = None


class _GivenCnn(BaseModel):
    """A CNN that is brought along."""

    model_config = _IN

    most_keys: ClassVar[int] = 150_000
    """Keys of a body: naming a wrong one takes microseconds, a million would stop the service for seconds."""

    form_without_question: ClassVar[bool] = False
    """Whether a form with a file says enough."""

    layer_table: LayerTableIn | None = Field(None, description="A CNN of your own, instead of `cnn`.")
    onnx: Annotated[str, Field(max_length=MAX_ONNX_BYTES * 4 // 3 + 4)] | None = Field(
        None,
        description="An ONNX file in base64, instead of `cnn`; or send it as a file, multipart/form-data.",
    )
    image_size: _ImageSize | None = Field(
        None, description="Pixels of a side; the data set's or usual one if null."
    )


class OwnCnn(_GivenCnn):
    """A CNN of one's own: an ONNX file or a layer table, to be read."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "layer_table": {
                        "name": "mine",
                        "image_size": 8,
                        "layers": [
                            {
                                "type": "linear",
                                "in_channels": 192,
                                "in_height": 1,
                                "in_width": 1,
                                "out_channels": 10,
                                "out_height": 1,
                                "out_width": 1,
                                "parameters": 1930,
                            }
                        ],
                    }
                },
            ]
        }
    )

    form_without_question: ClassVar[bool] = True

    @model_validator(mode="after")
    def _one_source(self) -> "OwnCnn":
        if self.layer_table is not None and self.onnx is not None:
            raise ValueError("layer_table and onnx are given. Give one of them.")
        return self


class _CnnQuestion(_GivenCnn):
    """What every question about a CNN says alike."""

    cnn: _Name | None = Field(None, description="A CNN of the zoo: `GET /v1/cnns`.")
    batch_sizes: Annotated[list[_BatchSize], Field(min_length=1, max_length=MAX_BATCHES)]
    samples: _Samples | None = Field(None, description="Training samples of an epoch.")
    data_set: _Name | None = Field(
        None, description="A known data set, such as imagenet, instead of `samples`."
    )
    framework: _Framework = "pytorch"
    autotune: bool = False
    capture: _Capture = "eager"
    optimizer: _Optimizer = "momentum"
    anchors: Annotated[list[AnchorIn], Field(max_length=MAX_ANCHORS)] = []
    measurements: Annotated[list[_Measurement], Field(max_length=MAX_MEASUREMENTS)] | _MeasurementColumns = (
        Field(
            [],
            description="A measurement table (docs/instrument.md) as at most 5,000 rows, or as columns of at most "
            "20,000 cells, `{column: [cell, ...]}`: proxies' and operators' rows answer at once, those of this CNN are "
            "anchors. "
            "`/v1/calibrations` takes stored ones.",
            union_mode="left_to_right",
        )
    )
    method: _Method = "auto"
    host: _Name | None = None

    @model_validator(mode="after")
    def _one_cnn(self) -> "_CnnQuestion":
        given = [name for name in ("cnn", "layer_table", "onnx") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are given. Give one of cnn, layer_table and onnx.")
        if self.samples is not None and self.data_set is not None:
            raise ValueError("both samples and data_set are given. Give one of them.")
        return self


class _Question(_CnnQuestion):
    """What predictions and comparisons are asked alike."""

    validation_samples: Annotated[int, Field(ge=0, le=MAX_SAMPLES)] = 0
    spot: bool = Field(False, description="Spot prices.")


class PredictionQuestion(_Question):
    """One CNN on many GPUs, at many batch sizes, precisions and memory formats."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"cnn": "resnet50", "gpus": ["T4", "H200"], "batch_sizes": [32, 64], "data_set": "imagenet"},
                {
                    "cnn": "vgg16",
                    "gpus": ["all"],
                    "batch_sizes": [64],
                    "precisions": ["fp32", "amp_bf16"],
                    "memory_formats": ["nchw", "channels_last"],
                    "form": "columns",
                },
            ]
        }
    )

    gpus: Annotated[list[_Name], Field(min_length=1, max_length=MAX_GPUS)] = Field(
        description="Names as drivers and people write them; `all` is every GPU that has the precision."
    )
    precisions: Annotated[list[_Precision], Field(min_length=1, max_length=len(PRECISIONS))] = ["fp32"]
    memory_formats: Annotated[list[_MemoryFormat], Field(min_length=1, max_length=len(MEMORY_FORMATS))] = [
        "nchw"
    ]
    form: Literal["rows", "columns"] = Field(
        "rows", description="Rows, or columns: smaller and faster where there are many."
    )


class ExplanationQuestion(_CnnQuestion):
    """What the time of one CNN in one mode is made of, on one GPU or a few."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "cnn": "resnet50",
                    "gpus": ["H200"],
                    "batch_sizes": [1, 4, 16, 64, 256],
                    "data_set": "imagenet",
                    "precision": "tf32",
                }
            ]
        }
    )

    gpus: Annotated[list[_Name], Field(min_length=1, max_length=MAX_EXPLAINED_GPUS)] = Field(
        description="Names as drivers and people write them."
    )
    precision: _Precision = "fp32"
    memory_format: _MemoryFormat = "nchw"


class StoredRows(BaseModel):
    """Which rows of the measurement store to answer from; all that is given must hold."""

    model_config = _IN

    gpu: _Name = Field(description="As drivers and people write it.")
    host: _Name | None = None
    source: _Name | None = None
    key: _Name | None = Field(None, description="Only what came with the API key of this name.")
    upload: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class CalibrationQuestion(PredictionQuestion):
    """As for predictions, with measurements to answer from: `measurements`, or `stored` ones."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"cnn": "resnet50", "batch_sizes": [32, 64], "stored": {"gpu": "L40S"}},
                {
                    "cnn": "resnet50",
                    "batch_sizes": [32],
                    "measurements": [
                        {
                            "gpu": "L40S",
                            "cnn": "resnet50",
                            "image_size": 224,
                            "batch_size": 64,
                            "precision": "fp32",
                            "iteration_time_ms": 190.5,
                        }
                    ],
                },
            ]
        }
    )

    most_keys: ClassVar[int] = 400_000

    gpus: Annotated[list[_Name], Field(max_length=MAX_GPUS)] = Field(
        [], description="Those of the measurements, if none is given."
    )
    measurements: Annotated[list[_Measurement], Field(max_length=MAX_ROWS)] | _MeasurementColumns = Field(
        [],
        description="Rows or columns of a measurement table (docs/instrument.md), such as a quick profile's.",
        union_mode="left_to_right",
    )
    stored: StoredRows | None = Field(None, description="Rows of the store, instead of `measurements`.")

    @model_validator(mode="after")
    def _one_source(self) -> "CalibrationQuestion":
        if bool(self.measurements) == (self.stored is not None):
            raise ValueError(
                "neither or both of measurements and stored are given. "
                "Send the rows of a profile, or say which stored ones."
            )
        return self


class ComparisonQuestion(_Question):
    """Which GPU to rent for training one CNN."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "cnn": "resnet50",
                    "batch_sizes": [32, 64, 128],
                    "data_set": "imagenet",
                    "epochs": 90,
                    "budget_usd": 400,
                }
            ]
        }
    )

    gpus: Annotated[list[_Name], Field(min_length=1, max_length=MAX_GPUS)] | None = Field(
        None, description="Every GPU on offer if null."
    )
    precision: _Precision = "fp32"
    memory_format: _MemoryFormat = "nchw"
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    budget_usd: Annotated[float, Field(gt=0, le=1e12)] | None = None
    deadline_h: Annotated[float, Field(gt=0, le=1e9)] | None = None
    setup_minutes: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    relative_to: _Name | None = None
    rank_by: _Ranking = "cost"
    all_offers: bool = False
