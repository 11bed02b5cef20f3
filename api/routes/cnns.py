"""`POST /v1/cnns`: a CNN of one's own as the layer table that every question takes, with its sums. Nothing is stored.

A client with several questions about an ONNX file sends it here once, and then its layers.
"""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from api.layer_tables import LayerTableIn, as_sent
from api.openapi import question_body
from api.parsing import body_of, question_of
from api.questions import OwnCnn
from api.serving import serving_of
from predictor.cnns.layer_table import LayerTable
from predictor.operators.work import cnn_flops

__all__ = ["router"]

router = APIRouter(prefix="/v1/cnns", tags=["catalogue"])


class ReadCnn(BaseModel):
    """A CNN as it was read: its sums, and `layer_table`, which other questions take instead of the file."""

    cnn: str
    image_size: int
    parameters: int
    forward_flops_per_image: float
    training_flops_per_image: float
    layer_table: LayerTableIn = Field(
        description="Rows in the order in which they run; what is unknown is left out."
    )


@router.post(
    "",
    summary="Read a CNN of your own",
    response_model=ReadCnn,
    openapi_extra={"requestBody": question_body(OwnCnn)},
)
async def read(request: Request) -> Response:
    """The layers of an ONNX file, or of a layer table, checked, with parameters and operations.

    A multiply-add counts as two operations; training is the forward pass and both backward passes. Nothing is stored.
    """
    _, table = await question_of(await body_of(request), OwnCnn)
    return Response(await serving_of(request).model_queue.run(_answer, table), media_type="application/json")


def _answer(table: LayerTable) -> bytes:
    content = {
        "cnn": table.cnn,
        "image_size": table.image_size,
        "parameters": table.parameters,
        "forward_flops_per_image": cnn_flops(table, 1, ("forward",)),
        "training_flops_per_image": cnn_flops(table, 1),
        "layer_table": as_sent(table),
    }
    return to_json(content, inf_nan_mode="null")
