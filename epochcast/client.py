"""A service as seen from Python: the functions of `import epochcast`, answered elsewhere.

The answers are those of the local core, field by field.
"""

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any

from epochcast.push import PushReceipt, push, push_frame
from epochcast.remote import answer_of, compare_remotely, predict_remotely
from epochcast.transport import Service
from predictor.answers.question import Plan, Question

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Client", "PushReceipt", "push"]


class Client:
    """A service at an address.

    Parameters
    ----------
    url : str
        Such as ``https://epochcast.example``.
    key : str, optional
        API key, which only uploads need; `$EPOCHCAST_API_KEY` if not given.
    timeout_s : float
        For each answer.

    Raises
    ------
    SchemaError
        If `url` is no address.

    Examples
    --------
    >>> import epochcast
    >>> client = epochcast.Client("http://127.0.0.1:8000")
    >>> answer = client.predict("resnet50", "T4", 64, data_set="imagenet")  # doctest: +SKIP
    """

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 60.0) -> None:
        self._service = Service(url, key, timeout_s)

    def predict(
        self, cnn: object, gpu: object, batch_size: int | str | Iterable[object], **options: Any
    ) -> "pd.DataFrame":
        """As `epochcast.predict`, without its options `model` and `offers`, which are the service's."""
        question = Question.of(cnn, gpu, batch_size, options)
        return predict_remotely(self._service, question).frame()

    def compare(
        self, cnn: object, batch_size: int | str | Iterable[object], gpu: object = None, **options: Any
    ) -> "pd.DataFrame":
        """As `epochcast.compare`, without its options `model` and `offers`, which are the service's."""
        plan, others = Plan.of(options)
        question = Question.of(cnn, gpu, batch_size, others)
        return compare_remotely(self._service, question, plan).frame()

    def explain(
        self, cnn: object, gpu: object, batch_size: int | str | Iterable[object] | None = None, **options: Any
    ) -> "pd.DataFrame":
        """As `epochcast.explain` of CNNs, without its option `model`, which is the service's."""
        from epochcast.explaining import ExplainRequest, explained, explanation_frame

        return explanation_frame(*explained(ExplainRequest(cnn, gpu, batch_size, options), self._service))

    def gpus(self) -> "pd.DataFrame":
        """Every GPU that the service knows: its specifications, its precisions, and whether it was measured."""
        import pandas as pd

        found = answer_of(self._service, "/v1/gpus")
        return pd.DataFrame([{**each.pop("gpu"), **each} for each in found])

    def offers(self) -> "pd.DataFrame":
        """What can be rented, by the service's prices."""
        return self._table("/v1/offers")

    def cnns(self) -> "pd.DataFrame":
        """The CNNs that the service knows by name."""
        return self._table("/v1/cnns")

    def upload(self, measurements: "pd.DataFrame | str | PathLike[str]") -> PushReceipt:
        """Send a measurement table, or the file of one; what the service has already is stored once.

        Raises
        ------
        DataError, SchemaError, UnknownGpuError
            If the table is none; nothing is sent then.
        ServiceError
            If the service refuses the key or does not answer.
        """
        from predictor.measurements.table import check_measurements, read_measurements

        if isinstance(measurements, str | PathLike):
            return push_frame(read_measurements(measurements), self._service)
        return push_frame(check_measurements(measurements, "the measurements given"), self._service)

    def _table(self, path: str) -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(answer_of(self._service, path))
