"""Measurement tables of `import epochcast`: measure, read and describe them, fit models on them and judge these."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from epochcast.profiling import ProfileRequest, request_for, run_profile
from epochcast.signatures import takes_options
from predictor.checks import as_list, of_kind
from predictor.errors import BackendUnavailableError, SchemaError

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Engine

    from epochcast.typed_options import ProfileOptions
    from predictor.models.served import Model

    Table = pd.DataFrame | str | PathLike[str]
    Tables = Table | Sequence[str | PathLike[str]]
    Words = Sequence[str] | None


def load_measurements(path: str | PathLike[str], source: str | None = None) -> "pd.DataFrame":
    """Read a measurement table and check it, or bring published measurements into its form.

    Parameters
    ----------
    path : path
        A CSV or Parquet file with at least ``gpu, cnn, image_size, batch_size, precision, iteration_time_ms``.
    source : str, optional
        Name of an importer of published data (`epochcast data import --help`), if `path` is in its form.

    Raises
    ------
    DataError
        If the file does not exist or is not what its suffix says, or no importer is called `source`.
    SchemaError
        If a column is missing, a time is 0 or NaN, or the table is of another format version.
    UnknownGpuError
        If a GPU's name is unknown or fits several GPUs.

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
    of_kind("path", path, (str, PathLike), "the path of a table")
    if source is not None:
        from predictor.measurements.published import import_measurements

        return import_measurements(source, path)[0]
    from predictor.measurements.table import read_measurements

    return read_measurements(path)


def feature_table(measurements: "Tables | None" = None) -> "pd.DataFrame":
    """Measured iterations joined with specifications of their GPUs and counts of their CNNs' layers.

    Parameters
    ----------
    measurements : DataFrame, path or list of path, optional
        Measurement tables, whose proxies and CNNs are kept; by default the project's own, in a checkout.

    Returns
    -------
    DataFrame
        A row for each measured iteration; ``epochcast table --columns`` lists the columns with their units.

    Raises
    ------
    SchemaError
        If a table cannot be read, or holds no proxy and no CNN.

    Examples
    --------
    >>> import epochcast, pandas as pd
    >>> row = {"gpu": "Tesla T4", "cnn": "16_128_128", "image_size": 16, "batch_size": 32, "precision": "fp32"}
    >>> table = epochcast.feature_table(pd.DataFrame([row | {"iteration_time_ms": 3.1, "kind": "proxy"}]))
    >>> table[["in_height", "in_channels", "out_channels", "cuda_cores", "n_16_128_128"]].iloc[0].tolist()
    [16.0, 128.0, 128.0, 2560.0, 1.0]
    """
    from predictor.measurements.features import described
    from predictor.measurements.features import feature_table as with_layers
    from predictor.models.fit import own_measurements

    own = ("proxies", "cnns", "targets")
    rows = own_measurements(own) if measurements is None else _one_table(measurements)
    cnn_rows = rows[rows["kind"].fillna("target").isin(("proxy", "target"))].reset_index(drop=True)
    if cnn_rows.empty:
        message = "the table holds no proxy and no CNN. Measure some: `epochcast profile --preset founding`."
        raise SchemaError(message)
    return described(with_layers(cnn_rows))


def evaluate(
    measurements: "Tables | None" = None,
    published: str | PathLike[str] | None = None,
    scenarios: Sequence[str] | None = None,
    predictors: Sequence[str] | None = None,
    seed: int = 0,
    n_jobs: int = 1,
) -> "pd.DataFrame":
    """Errors of every predictor on measurements that its fit never saw, per scenario.

    Parameters
    ----------
    measurements : DataFrame, path or list of path, optional
        Measurement tables; by default the published measurements.
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
    measurements: "Tables | None" = None,
    published: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    accuracy: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    store: str | None = None,
    methods_only: bool = False,
    methods: Sequence[str] | None = None,
) -> "Model":
    """Fit the served model on a measurement table or the published measurements; save it if `out` is given.

    Parameters
    ----------
    measurements : DataFrame, path or list of path, optional
        Measurement tables; at least ten rows of whole CNNs.
    published : path, optional
        Folder of the published measurements, on which the shipped model is fitted again.
    out : path, optional
        The JSON file to write.
    accuracy : path or list of path, optional
        `summary.csv` of evaluations, whose figures are written to the model's card, and to its named methods; to these
        only if `methods` are fitted.
    store : str, optional
        URL of a measurement store, whose uploaded measurements are fitted together with the others, or on their own.
    methods_only : bool
        Fit only the named methods (``gpu-specs``, ``proxy-times``, ``flops-ratio``) of the model in `out` again, and
        leave the rest of it.
    methods : list of str, optional
        Fit only these named methods on the measurements, proxies among them; the rest is the shipped model. Those that
        lack rows are left out with a warning, the others judged in the study's three scalings, unless `accuracy` has
        their errors.

    Returns
    -------
    Model
        Pass it, or the path of `out`, as `model` to `predict` and `compare`.

    Raises
    ------
    SchemaError
        If there is nothing to fit on, both `measurements` and `published` are given, or no method can be fitted.

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
    import pandas as pd

    from predictor.models.fit import TrainingData, accuracy_of, fit_default, fit_measurements
    from predictor.models.named import errors_of, fit_named, rows_of_measurements
    from predictor.models.served import Model

    summaries: list[Any] = [] if accuracy is None else as_list(accuracy)
    frames = [] if measurements is None else [_one_table(measurements)]
    if methods:
        if measurements is None:
            message = "methods are fitted on measurements of your own. Pass a table with proxies and CNNs."
            raise SchemaError(message)
        from predictor.evaluation.run import evaluate as run_evaluation
        from predictor.evaluation.scenarios import DEFAULT, SCALINGS

        rows = rows_of_measurements(frames[0])
        fitted = fit_named(methods, rows)
        if not summaries:  # in the study's three scalings, as far as a feature table tells them
            tasks = [*SCALINGS.values()], [*fitted.fitted, DEFAULT]
            summaries = [run_evaluation(rows, *tasks).table()]
        model = replace(Model.load(), methods=errors_of(summaries, fitted))
    elif methods_only:
        if out is None:
            message = "methods_only needs out, the model file whose methods are fitted. Pass its path."
            raise SchemaError(message)
        model = Model.load(out)
        data = TrainingData.of_table(frames[0]) if frames else TrainingData.of_default(published)
        fitted, columns = data.methods(), ["scenario", "predictor", "n", "mape", "p90"]
        own_errors = pd.DataFrame(model.card.get("accuracy", []), columns=columns)
        model = replace(model, methods=errors_of([own_errors, *summaries], fitted) if summaries else fitted)
    else:
        if store is not None:
            engine = open_store(store)
            try:
                from api.store.measurements import stored_frame

                frames.append(stored_frame(engine))  # DataError if it has none
            finally:
                engine.dispose()
        own = pd.concat(frames, ignore_index=True) if frames else None
        model = fit_default(published, uploaded=own) if published or own is None else fit_measurements(own)
        if summaries:
            model.card["accuracy"] = [entry for summary in summaries for entry in accuracy_of(summary)]
            model = replace(model, methods=errors_of(summaries, model.named_methods()))
    if out is not None:
        model.save(out)
    return model


@takes_options(ProfileRequest, answer="profile")
def profile(
    out: str | PathLike[str], preset: str | None = None, **options: "Unpack[ProfileOptions]"
) -> "pd.DataFrame":
    """Measure this machine, as `epochcast profile` does, and return the table that was written.

    Parameters
    ----------
    out : path
        The table, ``.csv``, ``.csv.gz`` or ``.parquet``; rows that it has already are not measured again.
    preset : str, optional
        What to measure: ``quick``, ``library``, ``targets``, ``cnn:NAME``, ...; see docs/instrument.md. By default
        ``quick``; on a CPU ``cnn:resnet18@32``, at batch size 32 unless `batch_sizes` says otherwise.
    **options
        Those of `epochcast.profiling.ProfileRequest`.

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
    from predictor.measurements.table import read_measurements

    profile_request = ProfileRequest.of({"preset": preset, **options})
    outcome = run_profile(request_for(profile_request, out)[0], profile_request.scheduler)
    frame = read_measurements(outcome.out)
    frame.attrs["outcome"] = asdict(outcome)
    return frame


def evaluation(
    measurements: "Tables | None",
    published: Any,
    scenarios: "Words",
    predictors: "Words",
    seed: int,
    n_jobs: int,
) -> Any:
    """Run the evaluation; the command reports from this `predictor.evaluation.run.EvaluationResult`."""
    from predictor.evaluation.run import evaluate as run_evaluation
    from predictor.measurements.features import feature_table
    from predictor.measurements.groups import is_compiled
    from predictor.models.fit import TrainingData

    if measurements is None:
        features = TrainingData.of_default(published).features
    else:
        measured = _one_table(measurements)
        features = feature_table(measured[~is_compiled(measured)].reset_index(drop=True))
    return run_evaluation(features, scenarios, predictors, seed, n_jobs)


def open_store(url: str, *, new: bool = True) -> "Engine":
    """Open a measurement store; make it where none is, if it may be `new`.

    SchemaError and StoreError as `api.store.engine.open_store`; BackendUnavailableError if SQLAlchemy, Alembic or the
    database's driver is not installed.
    """
    try:
        from api.store.engine import open_store as open_by_url

        return open_by_url(url, new=new)
    except ModuleNotFoundError as error:
        extra = "postgresql" if error.name == "psycopg" else "api"
        raise BackendUnavailableError(
            f"{error.name} is not installed, which the measurement store needs: pip install 'epochcast[{extra}]'."
        ) from None


def _one_table(measurements: "Tables") -> "pd.DataFrame":
    """One checked table of all rows."""
    import pandas as pd

    from predictor.measurements.table import check_measurements

    about = "a table, its path, or a list of them"
    is_one = isinstance(measurements, pd.DataFrame | str | PathLike)
    tables = [measurements] if is_one else list(of_kind("measurements", measurements, Iterable, about))
    if not tables:
        raise SchemaError("no measurements are given. Pass a table, its path, or a list of them.")
    checked = [
        load_measurements(table)
        if isinstance(table, str | PathLike)
        else check_measurements(
            of_kind("measurements", table, pd.DataFrame, about), "the table of measurements"
        )
        for table in tables
    ]
    return checked[0] if is_one else pd.concat(checked, ignore_index=True)
