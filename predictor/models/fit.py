"""Fits the served model: the shipped default from published measurements, or a model on a user's own table."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from predictor.errors import DataError
from predictor.measurements.groups import is_compiled
from predictor.measurements.shortest import check_rows_not_too_short
from predictor.measurements.table import check_measurements, disturbed_rows, noise_of
from predictor.models.epochs import fit_epoch_overhead
from predictor.models.layer_times.files import LayerModels
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.model import LayerModel
from predictor.models.named import Methods, fit_methods, read_summary
from predictor.models.registry import METHODS
from predictor.models.served import Model

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.layer_times.law import SummingLaw
    from predictor.models.roofline.model import Roofline

HELD_OUT = "_held_out_targets.csv.gz"
"""Ends the names of our own tables that no fit reads, so that a model can be judged on them."""


def fit_layer_models(measurements: pd.DataFrame, earlier: LayerModels | None = None) -> list[LayerModel]:
    """Layer models of every GPU and mode whose operators a measurement table has; none if it has no operators.

    `measurements`: a checked measurement table; weights are fitted on its targets, which are CNNs of the zoo.
    `earlier`: models whose operators the table corrects and completes, and whose weights are priors, if need be those
    of another GPU or mode.
    """
    from predictor.measurements.features import feature_table
    from predictor.models.layer_times.estimator import LayerTimes, libraries_of

    operators = measurements[measurements["kind"] == "operator"]
    targets = measurements[(measurements["kind"].fillna("target") == "target") & _trained(measurements)]
    if "source" in targets and len(operators):
        same = targets[targets["source"].isin(operators["source"].unique())]
        targets = same if len(same) else targets  # iterations of other sources include other work
    libraries = libraries_of(operators)
    earlier = earlier or LayerModels()
    if not libraries:
        return []
    features = feature_table(targets) if len(targets) else None
    laws = ((model, model.law) for model in LayerTimes().learn(libraries, features, earlier))
    alone = not earlier.modes()
    return [
        replace(model, law=_with_noise(law, operators, judged=alone and law.is_fitted)) for model, law in laws
    ]


def _with_noise(law: SummingLaw, operators: pd.DataFrame, *, judged: bool) -> SummingLaw:
    """The weights, with wider intervals and a note where measurements were disturbed or are not precise.

    Intervals `judged` on the same table's CNNs hold its noise already.
    """
    noise, disturbed = 0.0 if judged else noise_of(operators), disturbed_rows(operators)
    near, far = (math.hypot(spread, noise) for spread in (law.spread, law.spread_near))
    noted = f"{disturbed} of {len(operators)} measurements were disturbed by other work"
    trained_on = f"{law.trained_on}; {noted}" if disturbed else law.trained_on
    return replace(law, spread=near, spread_near=far, trained_on=trained_on)


def _trained(frame: pd.DataFrame) -> Any:
    """Rows of whole training iterations on one GPU, not compiled."""
    trained = ~is_compiled(frame)
    if "pass" in frame:
        trained &= (frame["pass"].fillna("training") == "training").to_numpy(dtype=bool)
    if "n_gpus" in frame:
        trained &= (frame["n_gpus"].fillna(1) == 1).to_numpy(dtype=bool)
    return trained


_LEAST_ROWS = 10
_OF_PROXIES = ("targets", "cnns", "proxies")
_VERSIONS = ("numpy", "scikit-learn", "scipy")


@dataclass(frozen=True, slots=True, eq=False)
class TrainingData:
    """Measurements that a model is fitted on: `epochcast fit` fits all, evaluations the same without some groups.

    `features` is the feature table of the law of specifications and of the named methods, `layers` the measurement
    table of operators and of the CNNs that weigh them, `proxies` that of methods which read proxies; `provenance` has
    the published data sets.
    """

    features: pd.DataFrame
    layers: pd.DataFrame
    proxies: pd.DataFrame
    provenance: list[dict[str, Any]]

    @classmethod
    def of_default(
        cls, published: str | PathLike[str] | None = None, uploaded: pd.DataFrame | None = None
    ) -> Self:
        """All that the shipped default is fitted on; arguments as of `fit_default`."""
        import pandas as pd

        from predictor.measurements.features import feature_table
        from predictor.measurements.published import published_features
        from predictor.measurements.published.sources import DATA_SETS

        more = [] if uploaded is None else [_checked(uploaded)]
        of_others = published_features(published)  # first: it says at once if they are missing
        own = own_measurements()
        # Sources that measured operators, too, are left out: the weights of measured layers are fitted on these. They
        # are a thousand rows of one GPU, as many as the published rows of thirty GPUs. With them, intervals for unknown
        # GPUs grew from a factor of 2 to a factor of 3 to 4.
        measured = own.loc[_of_libraries(own), "source"].unique()
        without_instrument = own[~own["source"].isin(measured)].reset_index(drop=True)
        rows, layers = (pd.concat([table, *more], ignore_index=True) for table in (without_instrument, own))
        of_own = feature_table(_without_layers(rows)), feature_table(_sample_of_operators(own))
        provenance = [{"source": name, **asdict(table.provenance)} for name, table in DATA_SETS.items()]
        features = pd.concat([of_others, *of_own], ignore_index=True)
        return cls(features, layers, own_measurements(_OF_PROXIES), provenance)

    @classmethod
    def of_table(cls, frame: pd.DataFrame) -> Self:
        """Your own measurement table, CNNs by their zoo names; errors as of `check_measurements`."""
        from predictor.measurements.features import feature_table

        checked = _checked(frame)
        return cls(feature_table(_without_layers(checked)), checked, checked, [])

    def without(self, *, cnns: Collection[str] = (), chips: Collection[str] = ()) -> Self:
        """Training data without these CNNs, under all their names, and without rows measured on these chips."""
        from predictor.measurements.groups import chips_of, cnns_of

        labels = cnns_of(self.features)
        out = set(labels[self.features["cnn"].isin(cnns)])
        names = {*cnns, *self.features.loc[np.isin(labels, list(out)), "cnn"]}

        def kept(rows: pd.DataFrame) -> pd.DataFrame:
            gone = rows["cnn"].isin(names).to_numpy()
            return rows[~gone & ~np.isin(chips_of(rows), list(chips))].reset_index(drop=True)

        features, layers, proxies = map(kept, (self.features, self.layers, self.proxies))
        return replace(self, features=features, layers=layers, proxies=proxies)

    def law(self) -> Roofline:
        """The law of specifications, fitted from nothing."""
        from predictor.models.roofline.model import Roofline

        return Roofline().fit(self.features, self.features["iteration_time_ms"])

    def layer_models(self) -> LayerModels:
        """Layer models of every GPU and mode with operators; those of the default leave their host open."""
        models = fit_layer_models(self.layers)
        if self.provenance:
            models = [
                replace(model, library=replace(model.library, host=None))
                for model in models
                if isinstance(model.library, OperatorLibrary)  # all are: nothing is carried over yet
            ]
        return LayerModels().with_more(models)

    def methods(self) -> Methods:
        """The named methods."""
        return fit_methods(self.features, self.proxies)

    def model(self) -> Model:
        """The whole served model; a DataError if there are too few rows."""
        from predictor.models.roofline.rows import whole_iterations

        targets = whole_iterations(self.features)
        iterations = targets[targets["layer_table"].notna()]
        if len(iterations) < _LEAST_ROWS:
            raise DataError(
                f"{len(iterations)} rows of CNNs with known layers are too few to fit on: it takes {_LEAST_ROWS}. "
                "Name CNNs as the zoo does (`epochcast cnn list`), or give their layer tables."
            )
        estimator = self.law()
        if not estimator.law_.calibration.variances:
            raise DataError(
                "the table holds one CNN on one GPU, from which no error elsewhere can be estimated. "
                "Add measurements of another CNN or GPU."
            )
        return Model(
            roofline=estimator,
            layers=self.layer_models(),
            methods=self.methods(),
            epoch_ms_per_iteration=between_iterations(iterations),
            card=_card(self.features, iterations, self.provenance, estimator),
        )


def fit_default(published: str | PathLike[str] | None = None, uploaded: pd.DataFrame | None = None) -> Model:
    """Fit the default model on the published measurements, and on an uploaded table if given.

    `published`: as in `published_data_root`. `uploaded`: a measurement table of operators, which join the libraries,
    and of CNNs by their zoo names.
    """
    return TrainingData.of_default(published, uploaded).model()


def fit_measurements(frame: pd.DataFrame) -> Model:
    """Fit on your own measurement table; CNNs by their zoo names.

    SchemaError as of `check_measurements`, which also fills in missing columns; DataError if it holds no CNN on a GPU,
    or too few rows.
    """
    return TrainingData.of_table(frame).model()


def _checked(frame: pd.DataFrame) -> pd.DataFrame:
    """As `check_measurements`; OutOfRangeError for a time that is shorter than its GPU can compute."""
    checked = check_measurements(frame, "the table of measurements")
    check_rows_not_too_short(checked, "the table of measurements")
    return checked


def accuracy_of(summary: str | PathLike[str]) -> list[dict[str, Any]]:
    """Errors of the methods in an evaluation: one entry per scenario and predictor.

    SchemaError if the file is not the `summary.csv` of an evaluation.
    """
    table = read_summary(summary)
    served = table[table["predictor"].str.split().str[0].isin(METHODS) & (table["n"] > 0)].round(4)
    return [{str(k): None if v != v else v for k, v in row.items()} for row in served.to_dict("records")]


def own_measurements(kinds: Sequence[str] = ("targets", "operators")) -> pd.DataFrame:
    """The project's own measurements of these kinds, in `datasets/measurements`; CNNs of the zoo.

    Files whose names end in `HELD_OUT` are a test set: the model is judged on them and not fitted on them.
    """
    import pandas as pd

    from predictor.files import data_root
    from predictor.measurements.table import read_measurements

    folder = data_root() / "measurements"
    paths = [path for kind in kinds for path in sorted(folder.glob(f"*_{kind}.csv.gz"))]
    paths = [path for path in paths if not path.name.endswith(HELD_OUT)]
    if not any(path.name.endswith("_targets.csv.gz") for path in paths):
        raise DataError(f"{folder} has no *_targets.csv.gz. Fit the default in a checkout.")
    return pd.concat([read_measurements(path) for path in paths], ignore_index=True)


_SAMPLED_TYPES = (
    "conv2d", "activation", "batch_norm", "add", "concat", "avg_pool", "multiply", "max_pool", "linear", "permute",
    "dropout", "layer_norm", "group_norm", "matmul", "mean",
)  # fmt: skip
_OF_EACH_TYPE, _LEAST_MS = 20, 0.05  # shorter operators run from the L2 cache, as they do not in a CNN


def _sample_of_operators(own: pd.DataFrame) -> pd.DataFrame:
    """Operators of each type, GPU and mode: they tell the law of specifications how a GPU's time divides among kernels.

    Whole iterations cannot: every CNN has activations and batch norms in pairs.
    """
    chosen = own[
        _of_libraries(own)
        & (own["pass"] == "forward_backward")  # noqa: S105
        & ~own["autotune"].fillna(False).astype(bool)
        & own["type"].isin(_SAMPLED_TYPES)
        & (own["iteration_time_ms"] > _LEAST_MS)
    ]
    shuffled = chosen.sample(frac=1.0, random_state=0)
    kinds = ["gpu", "precision", "memory_format", "type"]
    return shuffled.groupby(kinds).head(_OF_EACH_TYPE).sort_index().reset_index(drop=True)


def _without_layers(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out operator libraries, CPUs, teams and compiled CNNs: the rest is CNNs on one GPU and single passes."""
    alone = (frame["n_gpus"].fillna(1) == 1) & (frame["kind"] != "all_reduce") & ~is_compiled(frame)
    kept = frame[~_of_libraries(frame) & (frame["device_kind"] != "cpu") & alone]
    if kept.empty:
        raise DataError(
            "the table holds no CNN on a GPU, which a fit needs. Operators need no fit: "
            "`epochcast predict --measurements FILE` uses them at once."
        )
    return kept.reset_index(drop=True)


def _of_libraries(frame: pd.DataFrame) -> pd.Series[bool]:
    return (frame["kind"] == "operator") & frame["n_tensors"].notna()


def between_iterations(iterations: pd.DataFrame) -> dict[str, float]:
    """Milliseconds between two iterations of an epoch by framework, from rows whose epoch was timed."""
    ms_by_framework: dict[str, float] = {}
    if not {"epoch_time_s", "framework"} <= set(iterations.columns):
        return ms_by_framework
    for framework, rows in iterations[iterations["epoch_time_s"].notna()].groupby("framework"):
        columns = ("epoch_time_s", "iteration_time_ms", "samples_per_epoch", "batch_size", "image_size")
        validated = rows["validation_samples"].fillna(0) if "validation_samples" in rows else 0
        epoch_s, time_ms, samples, batch_size, image_size = (rows[name] for name in columns)
        overhead = fit_epoch_overhead(epoch_s, time_ms, samples, batch_size, image_size, validated)
        ms_by_framework[str(framework)] = overhead[1]
    return ms_by_framework


def _card(
    features: pd.DataFrame, iterations: pd.DataFrame, provenance: list[dict[str, Any]], estimator: Roofline
) -> dict[str, Any]:
    from predictor.models.roofline.rows import single_passes

    passes = single_passes(features)
    error = np.abs(estimator.predict(iterations) / iterations["iteration_time_ms"].to_numpy(dtype=float) - 1)
    named = set(iterations["source"].dropna().astype(str)) if "source" in iterations else set()
    is_operator = passes["kind"] == "operator" if "kind" in passes else np.zeros(0)
    columns = ("gpu", "cnn", "image_size", "batch_size", "precision", "iteration_time_ms")
    hashed = [name for name in columns if name in features]
    return {
        "name": "roofline",
        "trained_on": estimator.trained_on_,
        "sources": sorted(named) or ["own measurements"],
        "provenance": provenance,
        "single_layers": int(is_operator.sum()),
        "forward_passes": int(is_operator.size - is_operator.sum()),
        "left_out_without_layers": estimator.n_without_structure_,
        "data_sha256": hashlib.sha256(features[hashed].to_csv(index=False).encode()).hexdigest(),
        "fitted_on": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in _VERSIONS},
        "in_sample_mape": round(float(error.mean()), 4),
    }
