"""The functions of `import epochcast`: the core's answers as pandas data frames.

The commands call the same functions of the core, and `epochcast` loads this module when one is first used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from itertools import compress
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from epochcast.signatures import takes_options
from predictor.answers.question import Plan, Question, named
from predictor.checks import as_list, batch_sizes_of, of_kind, whole_number
from predictor.errors import OutOfRangeError, SchemaError

if TYPE_CHECKING:
    import pandas as pd

    from epochcast.arguments import BatchSizes, Cnn, Cnns, Gpus
    from epochcast.frames import AnswerFrame
    from epochcast.typed_options import (
        CompareOptions,
        ExplainOptions,
        MemoryOptions,
        ParallelOptions,
        PredictOptions,
    )
    from predictor.answers.check import Checkup
    from predictor.answers.diff import Difference
    from predictor.answers.explain import Explanation
    from predictor.answers.fit_memory import MemoryPlans
    from predictor.catalogue.devices import Gpu

    Explanations = tuple[list[Explanation], str]

USUAL_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Batch sizes that are explained if none is given."""

_OF_A_MODE = ("precision", "memory_format", "framework", "capture", "autotune", "optimizer")
_OF_TABLES = ("image_size", "samples", "data_set", *_OF_A_MODE)

_MEASURED = (
    "Measured: times are medians of the table's rows; what bounds the GPU follows from the arithmetic of the layers, "
    "weighted by the times of the table's operators where it has them. Nothing is predicted."
)


@takes_options(Question, answer="predict")
def predict(
    cnn: "Cnns", gpu: "Gpus", batch_size: "BatchSizes | None" = None, **options: "Unpack[PredictOptions]"
) -> "AnswerFrame":
    """Time of an iteration and an epoch, with cost and memory, for every CNN, GPU and batch size.

    Parameters
    ----------
    cnn : str, path, LayerTable, PyTorch module, Keras model, Chainer chain, or a list of them
        A zoo name (`epochcast cnn list`), a layer-table CSV, an ONNX or Keras file, or the object itself.
    gpu : str or list of str
        Any name that drivers and people write; ``"all"`` for the whole catalogue.
    batch_size : int, str, or a list of them, optional
        Without it each GPU has up to four rows: the largest power of two up to 256 that fits on most GPUs, the
        smallest within 5 % of the fastest, which `best_batch` marks, the fastest, and the largest that fits, of all
        powers of two and the largest.
    **options
        Those of `predictor.answers.question.Question`.

    Returns
    -------
    AnswerFrame
        A data frame that shows its `sentence` and the command's table, and draws itself by ``plot()``: a row per CNN,
        GPU and batch size with the columns of `epochcast.PredictionRow`; times in
        milliseconds and seconds, money in US$ per epoch. ``attrs["covers"]`` says what the answer covers.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense; the message names the next step.

    Examples
    --------
    >>> import epochcast
    >>> gpus = ["T4", "V100-SXM2-16GB"]
    >>> answer = epochcast.predict("vgg_cifar", gpu=gpus, batch_size=128, data_set="cifar100")
    >>> answer[["gpu", "batch_size", "iterations_per_epoch"]]
                          gpu  batch_size  iterations_per_epoch
    0                Tesla T4         128                   391
    1    Tesla V100-SXM2-16GB         128                   391
    >>> t4, v100 = answer["epoch_time_s"]
    >>> bool(v100 < t4)
    True
    """
    from epochcast.frames import prediction_frame
    from predictor.answers.answer import answer

    question = Question.of(cnn, gpu, batch_size, options)
    return prediction_frame(answer(question), question)


@takes_options(Plan, Question, answer="compare")
def compare(
    cnn: "Cnns",
    gpu: "Gpus | None" = None,
    batch_size: "BatchSizes | None" = None,
    **options: "Unpack[CompareOptions]",
) -> "AnswerFrame":
    """Which GPU to rent: time and cost of training one CNN on each GPU, ranked, with a verdict.

    Parameters
    ----------
    cnn, gpu
        As for `predict`. Without `gpu`: every GPU with an offer.
        `data_set` or `samples` is needed.
    batch_size : int, str, or a list of them, optional
        Each GPU keeps its best; without it all are compared at the largest power of two up to 256 that fits on most of
        them, those that do not hold it at the largest power of two that they hold.
    **options
        Those of `predictor.answers.question.Question` and `Plan`.

    Returns
    -------
    AnswerFrame
        Shown as that of `predict`. Best first, with the columns of `epochcast.ComparisonRow`; what holds budget and
        deadline comes before what does not. `verdict` is a `epochcast.Verdict`: one sentence, and as data what to
        rent, what is cheapest, fastest and safest; ``attrs["covers"]`` as for `predict`.

    Examples
    --------
    >>> import epochcast
    >>> ranking = epochcast.compare("resnet50", ["T4", "V100-SXM2-16GB"], data_set="imagenet", epochs=90)
    >>> sorted(ranking["rank"])
    [1, 2]
    >>> ranking["total_cost_usd"].is_monotonic_increasing
    True
    >>> print(ranking.sentence)
    Rent 1x T4 at aws g4dn.xlarge: ...
    """
    from epochcast.frames import comparison_frame
    from predictor.answers.compare import compare as compare_gpus

    plan, options_of_question = Plan.of(options)
    question = Question.of(cnn, gpu, batch_size, options_of_question)
    return comparison_frame(compare_gpus(question, plan), question, plan)


@takes_options(Question, answer="memory")
def largest_batch_size(cnn: "Cnn", gpu: "str | Gpu", **options: "Unpack[MemoryOptions]") -> int:
    """The largest mini-batch with which a CNN can be trained on a GPU, by the estimate of peak memory.

    Parameters
    ----------
    cnn, gpu
        One CNN and one GPU, as for `predict`.
    **options
        Those of `predictor.answers.question.Question`.

    Returns
    -------
    int
        At most 65,536. A tenth of what the driver shows is left free: of such sizes, 98 % fit by measured peaks
        (`predictor.operators.memory.USABLE_SHARE`).

    Raises
    ------
    OutOfRangeError
        If not even one image fits.
    SchemaError, UnknownCnnError, UnknownGpuError
        If the question makes no sense.

    Examples
    --------
    >>> import epochcast
    >>> epochcast.largest_batch_size("resnet50", "T4") < epochcast.largest_batch_size("resnet50", "H200")
    True
    """
    from predictor.answers.grid import NOT_ONE_IMAGE, largest_local_batch_sizes
    from predictor.answers.resolved import ResolvedQuestion

    question = ResolvedQuestion.of(Question.of(cnn, gpu, None, options), "memory")
    tables, devices = question.tables, question.devices
    if len(tables) != 1 or len(devices) != 1 or question.left_out:
        raise SchemaError(
            "largest_batch_size is of one CNN on one GPU. Ask once for each GPU, or predict without one."
        )
    [largest] = largest_local_batch_sizes(tables[0], devices, per_gpu=question.team.trainings)
    if largest is None:
        raise OutOfRangeError(NOT_ONE_IMAGE)
    return largest


@takes_options(Question, answer="explain")
def explain(
    what: "Cnns | pd.DataFrame | Sequence[Cnn | pd.DataFrame]",
    gpu: "Gpus | None" = None,
    batch_size: "BatchSizes | None" = None,
    **options: "Unpack[ExplainOptions]",
) -> "AnswerFrame":
    """What the time of an iteration is made of, what bounds it, and what another mode would give.

    Parameters
    ----------
    what : str, path, LayerTable, DataFrame, PyTorch module, Keras model, Chainer chain, or a list of them
        CNNs as for `predict`; or measurement tables, for which nothing is predicted, with the names of their CNNs to
        explain (all by default).
    gpu, batch_size
        As for `predict`; a CNN needs `gpu`, and batch sizes are 1, 2, 4, ... 512 by default, or that of a recorded
        step. Of a table: all by default. Of the options it takes `image_size`, `samples` or `data_set`, and those of
        the mode.
    **options
        Those of `predictor.answers.question.Question`.

    Returns
    -------
    AnswerFrame
        Shown as the command shows it. A row per CNN, GPU, mode and batch size: times in ms, `bound`, a column
        ``<class>_ms`` for each class of operators, ``<bound>_bound_ms`` for each bound, ``<pass>_pass_ms`` for each
        pass, which each add up to `gpu_time_ms`. `rows` holds all else (`epochcast.Explanation`), ``attrs["covers"]``
        what the answer covers.

    Raises
    ------
    DataError, SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense; the message names the next step.

    Examples
    --------
    >>> import epochcast
    >>> answer = epochcast.explain("resnet50", gpu="H200", batch_size=[1, 256], precision="tf32")
    >>> answer[["batch_size", "bound"]]
       batch_size   bound
    0           1    host
    1         256  memory
    >>> [explanation] = answer.rows
    >>> other = explanation.other_modes[-1]
    >>> other.precision, other.memory_format, other.factor[1] < 1
    ('amp_bf16', 'channels_last', True)
    """
    import pandas as pd

    from epochcast.frames import explanation_frame
    from predictor.answers.explain import explanation_rows, row_columns

    explained, scope = explanations(what, gpu, batch_size, options)
    rows = [row for explanation in explained for row in explanation_rows(explanation)]
    frame = pd.DataFrame(rows, columns=row_columns(explained))
    frame.attrs |= {"explanations": explained, "covers": scope}
    return explanation_frame(frame, explained, scope, what)


@takes_options(Question, answer="predict")
def check(
    cnn: "Cnn",
    gpu: "str | Gpu",
    batch_size: "BatchSizes | None" = None,
    *,
    images_per_s: float | None = None,
    iteration_time_ms: float | None = None,
    epoch_time_s: float | None = None,
    log: str | PathLike[str] | None = None,
    waiting_share: float | None = None,
    epochs: int = 1,
    **options: "Unpack[PredictOptions]",
) -> "Checkup":
    """Say whether a training's speed is normal, and what explains it best if not.

    Parameters
    ----------
    cnn, gpu, batch_size
        One CNN and GPU, as for `predict`, and a batch size, by default the usual one: the largest power of two up to
        256 that fits. Options as the training is believed to run.
    images_per_s, iteration_time_ms, epoch_time_s : float, optional
        The speed, one of the three; an epoch needs its samples.
    log : path, optional
        Or what the training printed (`predictor.measurements.training_log`), with switches that PyTorch warned of.
    waiting_share : float, optional
        Share of the time that the loop waits for its loader; a log may tell it.
    epochs : int
        Of the training, for what mending saves.
    **options
        Those of `predictor.answers.question.Question`.

    Returns
    -------
    Checkup
        `verdict` (``normal``, ``slow``, ``fast``, ``unsure``), the normal interval, and `causes`, the likeliest first.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If no speed is given or several are, or the question makes no sense.

    Examples
    --------
    >>> import epochcast
    >>> found = epochcast.check("resnet50", "T4", 64, iteration_time_ms=2000, waiting_share=0.6)
    >>> found.verdict, found.causes[0].name
    ('slow', 'loading')
    """
    from predictor.answers.check import Speed
    from predictor.answers.check import check as check_speed

    names = ("images_per_s", "iteration_time_ms", "epoch_time_s")
    speeds: dict[str, Any] = dict(zip(names, (images_per_s, iteration_time_ms, epoch_time_s), strict=True))
    shown: dict[str, Any] = {}
    if log is not None:
        from pathlib import Path

        from predictor.measurements.training_log import read_training_log

        if any(value is not None for value in speeds.values()):
            raise SchemaError("a log and a speed are given. Pass one of them.")
        path = of_kind("log", log, (str, PathLike), "the path of what a training printed")
        logged = read_training_log(Path(path))
        speeds[logged.name] = logged.value
        shown = dict.fromkeys(logged.switches, True)
        waiting_share = logged.waiting_share if waiting_share is None else waiting_share
    speed = Speed(**speeds, waiting_share=waiting_share)
    question = Question.of(cnn, gpu, batch_size, shown | options)
    return check_speed(question, speed, whole_number("epochs", epochs))


@takes_options(Plan, Question, answer="compare")
def fit_memory(
    cnn: "Cnn",
    gpu: "Gpus | None" = None,
    batch_size: "BatchSizes | None" = None,
    *,
    memory_gib: float | None = None,
    allow: "str | Sequence[str]" = (),
    **options: "Unpack[CompareOptions]",
) -> "MemoryPlans":
    """Find the cheapest way to train a CNN at a mini-batch in the memory of a GPU, within budget and deadline.

    Parameters
    ----------
    cnn, gpu
        As for `compare`; without `data_set` or `samples` plans are of an iteration, without cost.
    batch_size : int
        Images of an iteration, which stay; a recorded step has its own.
    memory_gib : float, optional
        Memory that may be used on each GPU; all that its driver shows by default. A tenth of it is left free.
    allow : str or sequence of str
        ``optimizer``, ``image_size``: what may change where nothing else holds the limits.
    **options
        Those of `predictor.answers.question.Question` and `Plan`. What is given stays.

    Returns
    -------
    MemoryPlans
        `best` has its answer, the blocks that are recomputed, and the lines of PyTorch that do it; `without` the best
        plan without each of its concessions.

    Raises
    ------
    OutOfRangeError
        If nothing fits; the message says by how much.
    SchemaError, UnknownCnnError, UnknownGpuError
        If the question makes no sense.

    Examples
    --------
    >>> import epochcast
    >>> plans = epochcast.fit_memory("resnet50", "L4", 256, memory_gib=8, data_set="imagenet", epochs=90)
    >>> plans.best.parts, plans.best.concessions
    (2, ('precision', 'accumulation'))
    >>> plans.best.row.peak_memory_gib < 0.9 * 8
    True
    """
    from predictor.answers.fit_memory import fit_memory as fit

    plan, options_of_question = Plan.of(options)
    question = Question.of(cnn, gpu, batch_size, options_of_question)
    return fit(question, plan, memory_gib, [str(word) for word in as_list(allow)])


@takes_options(Question, answer="predict")
def diff(
    before: "Cnn",
    after: "Cnn",
    gpu: "Gpus",
    batch_size: "BatchSizes | None" = None,
    **options: "Unpack[PredictOptions]",
) -> "list[Difference]":
    """Say what a change of a CNN costs: its time, memory and the layers that make the difference.

    Parameters
    ----------
    before, after : str, path, LayerTable, PyTorch module, ...
        One CNN each, as for `predict`; recorded steps have their batch size.
    gpu
        As for `predict`.
    batch_size : int, str, or a list of them, optional
        By default the largest power of two up to 256 at which both CNNs fit on most GPUs.
    **options
        Those of `predictor.answers.question.Question`.

    Returns
    -------
    list of Difference
        One for each GPU and batch size. The interval of `ratio` is narrower than that of either CNN's time, since
        errors of what they share cancel.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense.

    Examples
    --------
    >>> import epochcast
    >>> [change] = epochcast.diff("vgg16", "vgg16_bn", "T4", 64)
    >>> change.low < change.ratio < change.high, change.layers[0].layer.startswith("batch_norm")
    (True, True)
    """
    from predictor.answers.diff import diff as diff_of

    return diff_of(*(Question.of(cnn, gpu, batch_size, options) for cnn in (before, after)))


@takes_options(Question, answer="parallel")
def parallel_ways(
    cnn: "Cnns", gpu: "Gpus", batch_size: "BatchSizes", **options: "Unpack[ParallelOptions]"
) -> "pd.DataFrame":
    """Ways to train one CNN on several GPUs: with a part of the mini-batch, the channels, the rows or the layers each.

    Parameters
    ----------
    cnn, gpu, batch_size
        As for `predict`; the batch size is that of all GPUs, `n_gpus` of which are needed.
    **options
        Those of `predictor.answers.question.Question`.

    Returns
    -------
    DataFrame
        A row per CNN, GPU, batch size and way, beside one GPU, with the columns of
        `epochcast.ParallelWay`. The mini-batch shared was measured; the other ways are arithmetic.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense.

    Examples
    --------
    >>> import epochcast
    >>> ways = epochcast.parallel_ways("resnet50", "H200", 256, n_gpus=4)
    >>> list(ways["way"])
    ['one', 'data', 'channels', 'rows', 'layers']
    >>> ways.loc[ways["ratio"].idxmin(), "way"]
    'data'
    """
    import pandas as pd

    from predictor.answers.parallel import ParallelWay
    from predictor.answers.parallel import parallel_ways as ways_of

    rows = [asdict(split) for split in ways_of(Question.of(cnn, gpu, batch_size, options))]
    return pd.DataFrame(rows, columns=[column.name for column in fields(ParallelWay)])


def explanations(
    subject: object, gpu: object, batch_size: Any, options: "Mapping[str, Any]"
) -> "Explanations":
    """The `Explanation`s behind the rows of `explain`, and a text on what they cover; errors are those of `explain`."""
    from predictor.answers.explain import explain as explained
    from predictor.answers.explain import explain_measurements, is_measurement_table

    subjects = as_list(subject)
    is_table = [is_measurement_table(entry) or type(entry).__name__ == "DataFrame" for entry in subjects]
    if not any(is_table):
        if gpu is None:
            raise SchemaError(
                f"{named('gpu')} is missing. Give a name such as 'H200'; `epochcast gpu list` shows them."
            )
        question = Question.of(subjects, gpu, batch_size, options)
        if question.batch_sizes is None:  # a recorded step has its own
            question = replace(question, batch_sizes=[question.parts * size for size in USUAL_BATCH_SIZES])
        return explained(question)
    from predictor.answers.resolved import ResolvedQuestion
    from predictor.measurements.table import canonical_gpu_name

    set_options = {name: value for name, value in options.items() if value not in (None, (), "auto", False)}
    for name in set_options:
        if name not in _OF_TABLES:
            raise SchemaError(
                f"{name} has no meaning for a measurement table, since nothing is predicted. Leave it out, or "
                "explain a CNN and pass the table as measurements."
            )
    cnns = [cnn for cnn, holds in zip(subjects, is_table, strict=True) if not holds]
    checked = Question.of(cnns, None, 1, set_options)
    only: dict[str, Any] = {
        "gpu": None if gpu is None else [canonical_gpu_name(str(name)) for name in as_list(gpu)],
        "image_size": checked.image_size,
        "batch_size": None if batch_size is None else batch_sizes_of(batch_size),
    }
    only |= {name: set_options[name] for name in _OF_A_MODE if name in set_options}
    tables, names = list(compress(subjects, is_table)), [str(cnn) for cnn in cnns]
    return explain_measurements(tables, names, ResolvedQuestion.of(checked).samples, **only), _MEASURED
