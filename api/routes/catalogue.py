"""What a question may name: GPUs, offers, CNNs, data sets; and the model that answers. All of it is read once."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from math import isfinite
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from api.caching import KeptRoute
from api.layer_tables import ImageSize
from api.problems import only_known_parameters
from api.questions import LISTED, is_served
from api.serving import ServingState, in_turn, serving_of
from api.words import WORDS, described
from predictor.answers.options import KINDS, options_of
from predictor.answers.question import Plan, Question
from predictor.catalogue.data_sets import TrainingSet, training_sets
from predictor.catalogue.devices import Gpu, find_gpu, gpus_of_generation, precisions_of
from predictor.catalogue.hosts import all_hosts
from predictor.catalogue.offers import Offer
from predictor.cnns.layer_table import Layer
from predictor.cnns.proxies import FOUNDING_PROXIES, is_proxy_name, proxy_table
from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.zoo import ZOO, zoo_cnn, zoo_names
from predictor.models.registry import METHODS, PREDICTORS
from predictor.models.served import Model
from predictor.operators.work import cnn_flops

router = APIRouter(
    prefix="/v1", tags=["catalogue"], dependencies=[Depends(only_known_parameters)], route_class=KeptRoute
)

_Name = Annotated[str, Query(min_length=1, max_length=200)]

_ANSWERS: dict[str, str] = WORDS["answers"]
_UNSERVED = ("file", "share", "words", "sizes")  # kinds of options that no question over REST has
_NEEDS = {"method": {name: "anchors" for name, entry in PREDICTORS.items() if entry.needs_runs}}


class KnownGpu(BaseModel):
    """A GPU of the catalogue, the precisions that it trains in, and whether it was measured and is for rent."""

    gpu: Gpu
    precisions: tuple[str, ...]
    measured: bool = Field(description="False: predicted from its specifications.")
    for_rent: bool = Field(description="Whether an offer of today has it.")


class KnownCnn(BaseModel):
    """A CNN of the zoo at its usual image size."""

    cnn: str
    usual_image_size: int
    minimum_image_size: int
    layers: int
    parameters: int
    training_flops_per_image: float


class CnnLayers(BaseModel):
    """A CNN of the zoo at one image size; `layers` may be sent as a `layer_table`."""

    cnn: str
    image_size: int
    parameters: int
    training_flops_per_image: float
    layers: list[Layer]


class KnownOption(BaseModel):
    """An option of a question: what a form or a client needs to offer it."""

    name: str
    kind: str = Field(json_schema_extra={"enum": [kind for kind in KINDS if kind not in _UNSERVED]})
    help: str
    default: str | float | bool | list[str] | None
    usual: str = Field(description="What holds where the default is null.")
    panel: str = Field(description="Options of one panel belong together.")
    choices: tuple[str, ...]
    needs: dict[str, str] = Field(description="Choices that mean something only beside another option.")
    low: float
    high: float | None = Field(description="Null: unbounded.")
    answers: tuple[Annotated[str, Field(json_schema_extra={"enum": [*_ANSWERS]})], ...] = described(
        "KnownOption.answers"
    )
    listed: str | None = Field(description="Its name where a question about predictions takes several.")


class ModelCard(BaseModel):
    """A model: its training data, its errors on held-out data, and the modes and GPUs that it covers."""

    name: str
    trained_on: str
    card: dict[str, Any] = described("ModelCard.card")
    methods: tuple[str, ...]
    hosts: list[str]
    measured_gpus: list[str]
    operator_libraries: list[str] = Field(description="GPUs and modes whose operators were measured.")
    problem: str | None = Field(description="Why the model file as it is now does not answer.")


@router.get("/gpus", operation_id="list_gpus", summary="All GPUs")
async def gpus(
    request: Request,
    generation: Annotated[str | None, Query(max_length=200, description="Such as turing.")] = None,
) -> list[KnownGpu]:
    """Every GPU that can be predicted, oldest generation first."""
    return _known_gpus(gpus_of_generation(generation), serving_of(request))


@router.get("/gpus/{name}", operation_id="get_gpu", summary="One GPU, by any of its names")
async def gpu(request: Request, name: Annotated[str, Path(examples=["T4"])]) -> KnownGpu:
    """All that is known of it, with its sources."""
    return _known_gpus([find_gpu(name[:200])], serving_of(request))[0]


@router.get("/offers", operation_id="list_offers", summary="What GPUs cost to rent")
async def offers(request: Request, gpu: _Name | None = None, historic: bool = False) -> list[Offer]:
    """Offers, cheapest machine first; historic ones only if asked for."""
    name = None if gpu is None else find_gpu(gpu).name
    today = [offer for offer in serving_of(request).offers if historic or not offer.historic]
    chosen = [offer for offer in today if name is None or offer.gpu == name]
    return sorted(chosen, key=lambda offer: offer.usd_per_hour)


@router.get("/cnns", operation_id="list_cnns", summary="The CNNs of the zoo")
async def cnns() -> list[KnownCnn]:
    """Names, sizes and work; `GET /v1/cnns/{name}` has the layers."""
    return await run_in_threadpool(_known_cnns)


@router.get(
    "/cnns/{name}", operation_id="get_cnn", summary="One CNN, layer by layer", response_model=CnnLayers
)
async def cnn(
    request: Request,
    name: Annotated[str, Path(examples=["lenet5"])],
    image_size: ImageSize | None = None,
) -> Response:
    """Its layer table at an image size; the usual one by default."""
    queue = serving_of(request).model_queue
    content = await in_turn(request, queue, cnn_in_json, name[:200], image_size)
    return Response(content, media_type="application/json")


@router.get("/options", operation_id="list_options", summary="Options of a question")
async def options() -> list[KnownOption]:
    """Every option with its kind, default and choices, and the questions that take it."""
    return _known_options()


@router.get("/data_sets", operation_id="list_data_sets", summary="Known data sets")
async def data_sets() -> list[TrainingSet]:
    """What `data_set` may name, with the samples of an epoch and the size of the images."""
    return list(training_sets().values())


@router.get("/models", operation_id="list_models", summary="The models that answer")
async def models(request: Request) -> list[ModelCard]:
    """The model that answers now, with its accuracy on groups that its fit never saw."""
    served = serving_of(request).model
    model: Model = served.current
    return [
        ModelCard(
            name=str(model.card.get("name", "unnamed")),
            trained_on=str(model.card.get("trained_on", "unknown data")),
            card=model.card,
            methods=METHODS,
            hosts=[*(host.name for host in all_hosts()), *model.hosts()],
            measured_gpus=sorted(model.ranges.gpus),
            operator_libraries=model.layers.modes(),
            problem=served.problem,
        )
    ]


def _known_gpus(gpus: Sequence[Gpu], serving: ServingState) -> list[KnownGpu]:
    measured = serving.model.current.ranges.gpus
    offered = {offer.gpu for offer in serving.offers if not offer.historic}
    facts = ((gpu, gpu.name in measured, gpu.name in offered) for gpu in gpus)
    return [
        KnownGpu(gpu=gpu, precisions=precisions_of(gpu), measured=was_measured, for_rent=for_rent)
        for gpu, was_measured, for_rent in facts
    ]


def cnn_in_json(name: str, image_size: int | None = None) -> bytes:
    """A CNN of the zoo, or a proxy, as `get_cnn` answers it."""
    table = resolve_cnn(name, image_size) if is_proxy_name(name) else zoo_cnn(name, image_size)
    own = {name: getattr(table, name) for name in ("cnn", "image_size", "parameters")}
    answer = CnnLayers(**own, training_flops_per_image=cnn_flops(table, 1), layers=list(table.layers))
    return answer.model_dump_json().encode()


@cache
def _known_options() -> list[KnownOption]:
    declared = {**options_of(Question), **options_of(Plan)}
    own = {
        name: {
            "default": list(option.default) if isinstance(option.default, tuple) else option.default,
            "needs": _NEEDS.get(name, {}),
            "high": option.high if isfinite(option.high) else None,
            "answers": tuple(path for path, answer in _ANSWERS.items() if answer in option.answers),
            "listed": LISTED.get(name),
        }
        for name, option in declared.items()
        if is_served(option)
    }
    return [KnownOption.model_validate({**asdict(declared[name]), **fields}) for name, fields in own.items()]


@cache
def _known_cnns() -> list[KnownCnn]:
    return [
        KnownCnn(
            cnn=table.cnn,
            usual_image_size=table.image_size,
            minimum_image_size=least,
            layers=len(table),
            parameters=table.parameters,
            training_flops_per_image=cnn_flops(table, 1),
        )
        for table, least in [(zoo_cnn(name), ZOO[name].minimum_image_size) for name in zoo_names()]
        + [(table, table.image_size) for table in map(proxy_table, FOUNDING_PROXIES)]
    ]
