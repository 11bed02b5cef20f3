"""A service as seen from Python: the functions of `import epochcast`, answered over HTTP with the same fields."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import predictor.errors
from epochcast.service import KEY_VARIABLE, Reply, Service
from epochcast.signatures import takes_options
from predictor.answers.answer import COLUMNS, TIMES, Answer
from predictor.answers.bounds import Switch
from predictor.answers.compare import Comparison, ComparisonRow, Verdict
from predictor.answers.explain import Explanation, OtherMode, SmallBatchLaw
from predictor.answers.notes import EnergyBasis, Note, Priority, Reason
from predictor.answers.options import options_of
from predictor.answers.passes import PartEffect
from predictor.answers.question import ANCHOR_FIELDS, Plan, Question
from predictor.answers.verdict import Choice
from predictor.checks import as_list
from predictor.errors import EpochcastError, SchemaError, ServiceError

if TYPE_CHECKING:
    import pandas as pd

_LOCAL = tuple(name for name, known in options_of(Question).items() if not known.remote)
_MOST_MEASUREMENTS = 10_000  # that services take with a question
_MOST_EXPLAINED_GPUS = 8  # that services explain in one question
_ROWS_OF_AN_UPLOAD = 2_000


@dataclass(frozen=True, slots=True)
class UploadReceipt:
    """What became of the rows of a table: `stored` were new; `ids` are all rows' numbers, in the table's order."""

    stored: int
    duplicates: int
    ids: list[int]


class Client:
    """A service at an address.

    Parameters
    ----------
    url : str
        Such as ``https://epochcast.example``.
    key : str, optional
        API key, which only uploads need; `$EPOCHCAST_API_KEY` if not given.
    timeout_s : float
        For each response.

    Raises
    ------
    SchemaError
        If `url` is not an address.
    BackendUnavailableError
        If httpx is not installed (`pip install 'epochcast[client]'`).

    Examples
    --------
    >>> import epochcast
    >>> client = epochcast.Client("http://127.0.0.1:8000")
    >>> answer = client.predict("resnet50", "T4", 64, data_set="imagenet")  # doctest: +SKIP
    """

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 60.0) -> None:
        self._service = Service(url, key, timeout_s)

    @takes_options(Question, answer="predict", without=_LOCAL)
    def predict(
        self, cnn: object, gpu: object, batch_size: int | str | Iterable[object] | None = None, **options: Any
    ) -> "pd.DataFrame":
        """As `epochcast.predict`, without its options `model` and `offers`, which are the service's.

        Parameters
        ----------
        cnn, gpu, batch_size
            As for `epochcast.predict`.
        **options
            Those of `predictor.answers.question.Question`.
        """
        return self.answer(Question.of(cnn, gpu, batch_size, options)).frame()

    @takes_options(Plan, Question, answer="compare", without=_LOCAL)
    def compare(
        self,
        cnn: object,
        gpu: object = None,
        batch_size: int | str | Iterable[object] | None = None,
        **options: Any,
    ) -> "pd.DataFrame":
        """As `epochcast.compare`, without its options `model` and `offers`, which are the service's.

        Parameters
        ----------
        cnn, gpu, batch_size
            As for `epochcast.compare`.
        **options
            Those of `predictor.answers.question.Question`.
        """
        plan, others = Plan.of(options)
        return self.comparison(Question.of(cnn, gpu, batch_size, others), plan).frame()

    @takes_options(Question, answer="explain", without=_LOCAL)
    def explain(
        self, cnn: object, gpu: object, batch_size: int | str | Iterable[object] | None = None, **options: Any
    ) -> "pd.DataFrame":
        """As `epochcast.explain` of CNNs, without its option `model`, which is the service's.

        Parameters
        ----------
        cnn, gpu, batch_size
            As for `epochcast.explain`.
        **options
            Those of `predictor.answers.question.Question`.
        """
        from epochcast.api import explanation_frame, explanations

        return explanation_frame(*explanations(cnn, gpu, batch_size, options, ask=self.explanations))

    def answer(self, question: Question) -> Answer:
        """As `predictor.answers.answer.answer`.

        Parameters
        ----------
        question : Question
            Without the options that a service answers with its own.

        Raises
        ------
        SchemaError
            If the question has an option that a service answers with its own.
        ServiceError
            If the service does not answer.
        EpochcastError
            What the service refuses, of the class that the core would raise.
        """
        sent = _with_lists(_options_to_send(question)) | {"gpus": _names(question.gpus)}
        columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        scopes: dict[str, None] = {}
        for cnn in as_list(question.cnn):
            document = self._ask("/v1/predictions", sent | _cnn_to_send(cnn, question))
            for row in document["rows"]:
                _check_version(set(COLUMNS), row)
                for name in COLUMNS:
                    columns[name].append(_as_in_core(name, row[name]))
            scopes |= dict.fromkeys(document["covers"])
        return Answer(columns, "\n".join(scopes))

    def comparison(self, question: Question, plan: Plan) -> Comparison:
        """As `predictor.answers.compare.compare` for a question and a plan; errors as of `answer`."""
        cnns = as_list(question.cnn)
        if len(cnns) != 1:
            raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
        sent = _options_to_send(question) | _different(plan) | _cnn_to_send(cnns[0], question)
        sent |= {} if question.gpus is None else {"gpus": _names(question.gpus)}
        document = self._ask("/v1/comparisons", sent)
        rows = [_made(ComparisonRow, row) for row in document["rows"]]
        return Comparison(rows, document["covers"], _verdict(document["verdict"]))

    def explanations(self, question: Question) -> tuple[list[Explanation], str]:
        """As `predictor.answers.explain.explain` for a question; errors as of `answer`."""
        sent, names = _options_to_send(question), self._explained_gpus(question)
        of_all_cnns: list[Explanation] = []
        scopes: dict[str, None] = {}
        for cnn in as_list(question.cnn):
            by_gpu: dict[str, Explanation] = {}  # several names may be one GPU's
            for gpus in _parts(names, _MOST_EXPLAINED_GPUS):
                body = sent | _cnn_to_send(cnn, question) | {"gpus": gpus}
                document = self._ask("/v1/explanations", body)
                by_gpu |= {one.gpu: one for one in map(_explanation, document["explanations"])}
                scopes[document["covers_together"]] = None
            of_all_cnns += by_gpu.values()
        return of_all_cnns, "\n".join(scopes)

    def gpus(self) -> "pd.DataFrame":
        """Every GPU of the service: its specifications, its precisions, and whether it was measured."""
        import pandas as pd

        rows = self._ask("/v1/gpus")
        return pd.DataFrame([{**row.pop("gpu"), **row} for row in rows])

    def offers(self) -> "pd.DataFrame":
        """What can be rented, by the service's prices."""
        return self._table("/v1/offers")

    def cnns(self) -> "pd.DataFrame":
        """The service's CNNs by name."""
        return self._table("/v1/cnns")

    def upload(self, measurements: "pd.DataFrame | str | PathLike[str]") -> UploadReceipt:
        """Store a measurement table, or the CSV file of one, at the service.

        The table is sent in parts, and each row is stored once, so that an upload that broke off can be repeated.
        Columns that the measurement schema lacks are not sent.

        Parameters
        ----------
        measurements : DataFrame or path

        Raises
        ------
        DataError, SchemaError, UnknownGpuError
            If the table is not valid; nothing is sent then.
        ServiceError
            If the service refuses the key or does not answer; what it acknowledged before is stored.
        """
        stored, duplicates, ids = 0, 0, list[int]()
        for part in _uploads(_measurements(measurements)):
            reply = self._service.post("/v1/measurements", part, "text/csv")
            if reply.status != 201:
                raise ServiceError(
                    f"{self._service.url} refuses the upload after {len(ids):,} rows: {_reason(reply)} "
                    "The rows before are stored; upload the table again when this is solved."
                )
            stored += int(reply.content["stored"])
            duplicates += int(reply.content["duplicates"])
            ids += reply.content["ids"]
        return UploadReceipt(stored, duplicates, ids)

    def _ask(self, path: str, question: Mapping[str, Any] | None = None) -> Any:
        """Post a question, or get what lies at a path; raises what the service refuses."""
        if question is None:
            reply = self._service.get(path)
        else:
            reply = self._service.post(
                path, json.dumps(question, allow_nan=False).encode(), "application/json"
            )
        if reply.status != 200:
            raise _refused(self._service.url, reply)
        return reply.content

    def _table(self, path: str) -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(self._ask(path))

    def _explained_gpus(self, question: Question) -> list[str]:
        """GPUs as asked for; `all` are the service's GPUs that have the precision."""
        names = _names(question.gpus)
        if not any(name.strip().casefold() == "all" for name in names):
            return names
        having = (
            known for known in self._ask("/v1/gpus") if question.precision in (None, *known["precisions"])
        )
        return [known["gpu"]["name"] for known in having] or names


def check_upload(url: str, key: str | None = None) -> None:
    """Find out before minutes of measuring whether the table could be uploaded.

    Raises
    ------
    SchemaError
        If `url` is not an address, or there is no key.
    ServiceError
        If no service answers there.
    """
    service = Service(url, key, attempts=2)
    if not service.has_key:
        raise SchemaError(
            f"there is no API key to upload with. Set {KEY_VARIABLE}; the owner of the service makes keys with "
            "`epochcast keys add`."
        )
    reply = service.get("/healthz")
    if reply.status != 200:
        raise ServiceError(
            f"{service.url} answers with HTTP status {reply.status}: is it an epochcast service?"
        )


def _options_to_send(question: Question) -> dict[str, Any]:
    """The options that differ from the defaults, which a service shares; SchemaError for local ones."""
    given = _different(question)
    for name, known in options_of(Question).items():
        if name == "input" and name in given:
            raise SchemaError(
                "input cannot be sent to a service, which reads no files. Pass what it holds: "
                "samples_per_worker_second, the rate of one worker, and workers."
            )
        if name in given and not known.remote:
            raise SchemaError(
                f"{name} cannot be sent to a service, which answers with its own. Leave it out, or ask locally."
            )
    given.pop("image_size", None)  # goes with the CNN
    if "anchors" in given:
        given["anchors"] = [_anchor(anchor) for anchor in given["anchors"]]
    if "measurements" in given:
        given["measurements"] = _measurement_columns(given["measurements"])
    sizes = {} if question.batch_sizes is None else {"batch_sizes": question.batch_sizes}
    return sizes | given


def _different(question: Question | Plan) -> dict[str, Any]:
    """Options that are not the default."""
    known = options_of(type(question))
    given = {name: getattr(question, name) for name in known}
    return {
        name: value
        for name, value in given.items()
        if value is not known[name].default and not (isinstance(value, tuple) and not value)
    }


def _with_lists(options: dict[str, Any]) -> dict[str, Any]:
    """Precision and memory format as the lists that predictions take."""
    lists = {"precision": "precisions", "memory_format": "memory_formats"}
    return {lists.get(name, name): [value] if name in lists else value for name, value in options.items()}


def _anchor(anchor: object) -> dict[str, Any]:
    fields_given = asdict(anchor) if is_dataclass(anchor) and not isinstance(anchor, type) else dict(anchor)  # type: ignore[call-overload]
    return {
        name: ANCHOR_FIELDS[name].checked(value) if name in ANCHOR_FIELDS else value
        for name, value in fields_given.items()
        if name != "of_table" and value not in (None, "")
    }


def _names(gpus: object) -> list[str]:
    """What a service calls the GPUs of a question."""
    return [gpu if isinstance(gpu, str) else str(getattr(gpu, "name", gpu)) for gpu in as_list(gpus)]


def _parts(names: list[str], size: int) -> list[list[str]]:
    """At most `size` names in each part; no names are one empty part, which the service refuses."""
    return [names[start : start + size] for start in range(0, max(1, len(names)), size)]


def _cnn_to_send(cnn: object, question: Question) -> dict[str, Any]:
    """The name of a zoo CNN as it is, everything else as its layers."""
    from predictor.cnns.zoo import zoo_names

    if isinstance(cnn, str) and (
        cnn in zoo_names() or not (cnn.casefold().endswith((".csv", ".onnx")) or ":" in cnn)
    ):
        return {"cnn": cnn} | ({"image_size": question.image_size} if question.image_size is not None else {})
    from predictor.cnns.resolve import resolve_cnn

    source = fspath(cnn) if isinstance(cnn, PathLike) else cnn
    return {"layer_table": resolve_cnn(source, question.image_size_of(source)).document()}


def _measurements(table: "pd.DataFrame | str | PathLike[str]") -> "pd.DataFrame":
    """A checked measurement table."""
    from predictor.measurements.table import check_measurements, read_measurements

    if isinstance(table, str | PathLike):
        return read_measurements(table)
    return check_measurements(table, "the measurements given")


def _measurement_columns(table: "pd.DataFrame | str | PathLike[str]") -> dict[str, list[Any]]:
    """The table column by column, without empty columns; SchemaError if it is too long for a question."""
    frame = _measurements(table)
    if len(frame) > _MOST_MEASUREMENTS:
        raise SchemaError(
            f"the measurements have {len(frame):,} rows; a service takes {_MOST_MEASUREMENTS:,} with a question. "
            "Leave out those of other GPUs and modes, or store all with `epochcast data push FILE URL` and ask "
            "`/v1/calibrations` with `stored`."
        )
    known = _known_columns(frame).astype(object)
    return {str(name): known[name].where(known[name].notna(), None).tolist() for name in known}


def _known_columns(frame: "pd.DataFrame") -> "pd.DataFrame":
    from predictor.measurements.schema import COLUMNS as SCHEMA

    return frame[[entry.name for entry in SCHEMA]].dropna(axis="columns", how="all")


def _uploads(frame: "pd.DataFrame") -> Iterator[bytes]:
    """The table as CSV, some rows at a time."""
    from predictor.measurements.schema import COLUMNS as SCHEMA

    known = _known_columns(frame)
    whole = [entry.name for entry in SCHEMA if entry.form == "count" and entry.name in known]
    known = known.astype(dict.fromkeys(whole, "Int64"))
    for start in range(0, len(known), _ROWS_OF_AN_UPLOAD):
        yield known.iloc[start : start + _ROWS_OF_AN_UPLOAD].to_csv(index=False).encode()


def _refused(url: str, reply: Reply) -> EpochcastError:
    """The error that the service names, with its message; ServiceError where it names none."""
    problem = reply.content if isinstance(reply.content, dict) else {}
    kind = getattr(predictor.errors, str(problem.get("error", "")), None)
    message = str(problem.get("detail") or f"{url} answers with HTTP status {reply.status}.")
    if isinstance(kind, type) and issubclass(kind, EpochcastError):
        return kind(message)
    if reply.status in (404, 405):
        message = f"{url} has no such address: is it an epochcast service, and of this version?"
    return ServiceError(message)


def _reason(reply: Reply) -> str:
    if isinstance(reply.content, dict):
        return str(reply.content.get("detail") or reply.content.get("title") or reply.content)
    return f"it answers with HTTP status {reply.status}."


def _explanation(document: Mapping[str, Any]) -> Explanation:
    _check_version({field.name for field in fields(Explanation)}, document)
    law = document["small_batch_law"]
    parts = {
        "small_batch_law": None if law is None else _made(SmallBatchLaw, law),
        "parts": tuple(_made(PartEffect, part) for part in document["parts"]),
        "switches": tuple(_made(Switch, part) for part in document["switches"]),
        "other_modes": tuple(_made(OtherMode, part) for part in document["other_modes"]),
    }
    numbers = {name: _numbers(value) for name, value in document.items() if name in TIMES}
    return Explanation(
        **{name: _as_in_core(name, value) for name, value in document.items()} | numbers | parts
    )


def _numbers(values: Sequence[float | None]) -> tuple[float, ...]:
    """Numbers as the core has them: NaN for what a method does not tell."""
    return tuple(math.nan if value is None else value for value in values)


def _verdict(document: Mapping[str, Any]) -> Verdict:
    """The verdict of a comparison; its choices are objects, too."""
    _check_version({field.name for field in fields(Verdict)}, document)
    parts = {
        name: _made(Choice, value) if isinstance(value, dict) else _tuples(value)
        for name, value in document.items()
    }
    hints = tuple(Note(Priority(note["priority"]), note["text"]) for note in document["hints"])
    return Verdict(**parts | {"hints": hints})


def _made(kind: type[Any], document: Mapping[str, Any]) -> Any:
    """An object of the core from its fields."""
    _check_version({field.name for field in fields(kind)}, document)
    return kind(**{name: _as_in_core(name, value) for name, value in document.items()})


def _as_in_core(name: str, value: Any) -> Any:
    """The value of a field as the core has it."""
    if name == "extrapolates":
        return _reasons(value)
    return EnergyBasis(**value) if name == "energy_basis" else _tuples(value)


def _reasons(value: Any) -> Any:
    """Reasons, in as many lists as they come; True and False are no reasons."""
    if isinstance(value, list):
        return tuple(map(_reasons, value))
    return Reason(**value) if isinstance(value, dict) else value


def _tuples(value: Any) -> Any:
    """Lists as tuples, as the core has them."""
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return value


def _check_version(names: set[str], document: Mapping[str, Any]) -> None:
    """Refuse the answer of a service whose fields are not those of this version; ServiceError."""
    different = set(document) ^ names
    if different:
        raise ServiceError(
            "the service is of another version than this epochcast: they differ in the fields "
            f"{', '.join(sorted(different))}. Update one of them."
        )
