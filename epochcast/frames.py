"""The Python face: the core's answers as pandas data frames.

Loaded lazily by `epochcast`; calls predict, compare, explain, evaluation, fitting and measurements of the core. The
commands give the same numbers, since both call the same functions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any

from predictor.errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.served import Model

__all__ = ["compare", "evaluate", "explain", "fit", "load_measurements", "predict", "profile"]


def predict(
    cnn: object, gpu: object, batch_size: int | str | Iterable[object], **options: Any
) -> "pd.DataFrame":
    """Time of an iteration and an epoch, with cost and memory, for every CNN, GPU and batch size.

    Parameters
    ----------
    cnn : str, path, LayerTable, PyTorch module, Chainer chain, or a list of them
        A zoo name (`epochcast cnn list`), a layer-table CSV, an ONNX file, or the object itself.
    gpu : str or list of str
        Any name that drivers and people write; ``"all"`` for the whole catalogue.
    batch_size : int, str, or a list of them
    **options
        The other fields of `predictor.answers.question.Question`, such as `data_set`, `samples`, `precision`, `anchors`
        and `measurements`.

    Returns
    -------
    DataFrame
        A row per CNN, GPU and batch size with the columns of `predictor.answers.predict.PredictionRow`; times in
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
    from predictor.answers.predict import answer
    from predictor.answers.question import Question

    return answer(Question.of(cnn, gpu, batch_size, options)).frame()


def compare(
    cnn: object, batch_size: int | str | Iterable[object], gpu: object = None, **options: Any
) -> "pd.DataFrame":
    """Time and cost of training one CNN on every GPU for rent, ranked, with the Pareto front marked.

    Parameters
    ----------
    cnn, batch_size, gpu
        As for `predict`; each GPU keeps its best batch size. Without `gpu`: every GPU that has an offer.
    **options
        The fields of `predictor.answers.question.Plan` (`epochs`, `budget_usd`, `deadline_h`, ...), and those of
        `predict`; `samples` or `data_set` is needed.

    Returns
    -------
    DataFrame
        Best first, with the columns of `predictor.answers.compare.ComparisonRow`; `attrs["covers"]` as for `predict`.

    Examples
    --------
    >>> import epochcast
    >>> ranking = epochcast.compare("resnet50", 64, ["T4", "V100-SXM2-16GB"], data_set="imagenet", epochs=90)
    >>> sorted(ranking["rank"])
    [1, 2]
    >>> ranking["total_cost_usd"].is_monotonic_increasing
    True
    """
    from predictor.answers.compare import compare as compare_gpus
    from predictor.answers.question import Plan, Question

    plan, others = Plan.of(options)
    return compare_gpus(Question.of(cnn, gpu, batch_size, others), plan).frame()


def explain(
    what: object, gpu: object = None, batch_size: int | str | Iterable[object] | None = None, **options: Any
) -> "pd.DataFrame":
    """What the time of an iteration is made of, what bounds it, and what another mode would give.

    Parameters
    ----------
    what : str, path, LayerTable, DataFrame, PyTorch module, Chainer chain, or a list of them
        CNNs as for `predict`; or measurement tables, of which nothing is predicted, with the names of those of their
        CNNs that are wanted (all by default).
    gpu, batch_size
        As for `predict`; 1, 2, 4, ... 512 by default. Of a table: all by default.
    **options
        `image_size`, `samples` or `data_set` (for the law's constant), `precision`, `memory_format`, `framework`,
        `capture`; for CNNs also `autotune`, `optimizer`, `anchors`, `measurements`, `method`, `host`, `model`: see
        `predictor.answers.explain.explain` and `predictor.answers.explain_measured.explain_measurements`.

    Returns
    -------
    DataFrame
        A row per CNN, GPU, mode and batch size: times in ms, `bound`, a column ``<class>_ms`` for each class of
        operators, which add up to `gpu_time_ms`, and ``<bound>_bound_ms``, which do so, too. ``attrs["explanations"]``
        holds all else (`predictor.answers.explain.Explanation`), ``attrs["covers"]`` what the answer covers.

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
    >>> [explanation] = answer.attrs["explanations"]
    >>> other = explanation.other_modes[-1]
    >>> other.precision, other.memory_format, other.factor[1] < 1
    ('amp_bf16', 'channels_last', True)
    """
    from epochcast.explaining import ExplainRequest, explained, explanation_frame

    return explanation_frame(*explained(ExplainRequest(what, gpu, batch_size, options)))


def load_measurements(path: str | PathLike[str], source: str | None = None) -> "pd.DataFrame":
    """Read a measurement table and check it, or bring published measurements into its form.

    Parameters
    ----------
    path : path
        A CSV with at least ``gpu, cnn, image_size, batch_size, precision, iteration_time_ms``.
    source : str, optional
        Name of an importer of published data (`epochcast data import --help`), if `path` is in its form.

    Raises
    ------
    SchemaError
        If a column is missing, a time is 0 or NaN, or the table is of another format version.

    Examples
    --------
    >>> import epochcast, tempfile, pathlib
    >>> table = pathlib.Path(tempfile.mkdtemp()) / "mine.csv"
    >>> columns = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms"
    >>> lines = [columns, "Tesla T4,resnet50,224,32,fp32,310.5"]
    >>> _ = table.write_text(chr(10).join(lines))
    >>> float(epochcast.load_measurements(table)["iteration_time_ms"].iloc[0])
    310.5
    """
    if source is not None:
        from predictor.measurements.published import import_measurements

        return import_measurements(source, path)[0]
    from predictor.measurements.table import read_measurements

    return read_measurements(path)


def evaluate(
    measurements: "pd.DataFrame | str | PathLike[str] | None" = None,
    published: str | PathLike[str] | None = None,
    scenarios: Sequence[str] | None = None,
    predictors: Sequence[str] | None = None,
    seed: int = 0,
    n_jobs: int = 1,
) -> "pd.DataFrame":
    """Errors of every predictor on measurements that its fit never saw, per scenario.

    Parameters
    ----------
    measurements : DataFrame or path, optional
        A measurement table; by default the published measurements.
    published : path, optional
        Folder of the published measurements; `$EPOCHCAST_PUBLISHED_DATA` if not given.
    scenarios, predictors : list of str, optional
        All that apply by default.
    seed, n_jobs : int
        The same seed gives the same digits, whatever the number of processes.

    Returns
    -------
    DataFrame
        `scenario, predictor, mape, median, p90, n, ...`; errors are fractions.

    Examples
    --------
    >>> import epochcast
    >>> epochcast.evaluate(scenarios=["unseen-gpu"], published="/no/such/folder")
    Traceback (most recent call last):
        ...
    predictor.errors.DataError: /no/such/folder is not a folder. ...
    """
    table: pd.DataFrame = evaluation(measurements, published, scenarios, predictors, seed, n_jobs).table()
    return table


def fit(
    measurements: "pd.DataFrame | str | PathLike[str] | None" = None,
    published: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    accuracy: str | PathLike[str] | None = None,
    store: str | None = None,
) -> "Model":
    """Fit the served model on a measurement table or the published measurements; save it if `out` is given.

    `accuracy` is the `summary.csv` of an evaluation, whose figures then stand on the model's card. `store` is the
    URL of a measurement store: what was uploaded to it is fitted as well, or alone.

    Returns
    -------
    Model
        Pass it, or the path of `out`, as `model` to `predict` and `compare`.

    Examples
    --------
    >>> import epochcast
    >>> epochcast.fit()
    Traceback (most recent call last):
        ...
    predictor.errors.SchemaError: fit needs measurements, ...
    """
    if measurements is None and published is None and store is None:
        raise SchemaError("fit needs measurements, a folder of published ones, or a store. Pass one of them.")
    if measurements is not None and published is not None:
        raise SchemaError("fit has both measurements and a folder of published ones. Pass one of the two.")
    from predictor.models.fit import accuracy_of, fit_default, fit_measurements

    own = _own(measurements, store)
    model = fit_default(published, uploaded=own) if published or own is None else fit_measurements(own)
    if accuracy is not None:
        model.card["accuracy"] = accuracy_of(accuracy)
    if out is not None:
        model.save(out)
    return model


def profile(out: str | PathLike[str], preset: str = "quick", **options: Any) -> "pd.DataFrame":
    """Measure this machine, as `epochcast profile` does, and return the table that was written.

    Parameters
    ----------
    out : path
        The table, ``.csv`` or ``.csv.gz``; what it has already is not measured again.
    preset : str
        What to measure: ``quick``, ``library``, ``targets``, ``cnn:NAME``, ...; see docs/instrument.md.
    **options
        `framework`, `precisions`, `memory_formats`, `capture`, `autotune`, `batch_sizes`, `device`, `gpus`,
        `budget`, `longest`, `limit`, `allow_noise`, `refine`: see `epochcast.profiling.ProfileRequest`.

    Returns
    -------
    DataFrame
        As `load_measurements`. ``attrs["outcome"]`` says what is left, what ended early and what failed.

    Raises
    ------
    BackendUnavailableError
        If the framework is not installed, or there is no such device.
    NoisyMeasurementError
        If something else uses the device, and `allow_noise` is False.

    Examples
    --------
    >>> import epochcast
    >>> epochcast.profile("mine.csv", preset="quickly")
    Traceback (most recent call last):
        ...
    predictor.errors.SchemaError: no preset is called 'quickly'. Nearest: 'quick'...
    """
    from epochcast.profiling import ProfileRequest, request_for
    from predictor.measurements.table import read_measurements
    from proxy_cnns.runs import profile as run

    outcome = run(request_for(ProfileRequest(preset, **options), out)[0])
    frame = read_measurements(outcome.out)
    frame.attrs["outcome"] = asdict(outcome)
    return frame


def evaluation(
    measurements: "pd.DataFrame | str | PathLike[str] | None",
    published: str | PathLike[str] | None,
    scenarios: Sequence[str] | None,
    predictors: Sequence[str] | None,
    seed: int,
    n_jobs: int,
) -> Any:
    """Run the evaluation; the command reports from this `predictor.evaluation.run.EvaluationResult`."""
    from predictor.evaluation.run import evaluate as run_evaluation
    from predictor.files import published_data_root
    from predictor.measurements.features import feature_table
    from predictor.measurements.published import published_features

    if measurements is None:
        features = published_features(published_data_root(published), seed=seed)
    else:
        features = feature_table(_measured(measurements))
    return run_evaluation(features, scenarios, predictors, seed, n_jobs)


def _own(
    measurements: "pd.DataFrame | str | PathLike[str] | None", store: str | None
) -> "pd.DataFrame | None":
    """Join the table given and the store's, whichever there are."""
    import pandas as pd

    frames = [] if measurements is None else [_measured(measurements)]
    if store is not None:
        from epochcast.stores import uploaded_measurements

        frames.append(uploaded_measurements(store))
    return pd.concat(frames, ignore_index=True) if frames else None


def _measured(measurements: "pd.DataFrame | str | PathLike[str]") -> "pd.DataFrame":
    if isinstance(measurements, str | PathLike):
        return load_measurements(measurements)
    from predictor.measurements.table import check_measurements

    return check_measurements(measurements, "the table of measurements")
