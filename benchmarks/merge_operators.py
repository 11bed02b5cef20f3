"""Adds operators of a measurement table to the fitted libraries, between two fits, which take hours.

`python benchmarks/merge_operators.py TABLE.csv.gz` writes the libraries of the shipped model; `--hold-out` writes
nothing, and prints the error of every third operator before and after the others are added. Trees and weights stay;
what the fit carries over to other precisions and cards of the chip (`predictor.models.layer_times`) is carried over.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from predictor.models.layer_times.estimator import _same_kernels, libraries_of
from predictor.models.layer_times.files import LayerModels
from predictor.models.layer_times.interpolation import family_of
from predictor.models.layer_times.ladder import cards_of_the_chip, with_volumes
from predictor.models.layer_times.library import OperatorLibrary, _name_and_kind
from predictor.models.layer_times.times import DeviceMode
from predictor.models.served import Model

DEFAULT = Path(__file__).parents[1] / "datasets/models/default.json"


def merged(library: OperatorLibrary, more: OperatorLibrary) -> OperatorLibrary:
    """The library with `more`, whose times are taken where both have some; its trees have seen none of them."""
    operators = tuple(sorted({*library.operators, *more.operators}, key=_name_and_kind))
    sizes = np.union1d(library.batch_sizes, more.batch_sizes)
    place = {operator: i for i, operator in enumerate(operators)}
    log_ms, host_ms = np.full((len(operators), sizes.size), np.nan), np.full(len(operators), np.nan)
    expected = None if library.expected is None else log_ms.copy()
    for source in (library, more):
        rows = [place[operator] for operator in source.operators]
        cells = np.ix_(rows, np.searchsorted(sizes, source.batch_sizes))
        log_ms[cells] = np.where(np.isfinite(source.log_ms), source.log_ms, log_ms[cells])
        host_ms[rows] = np.where(np.isfinite(source.host_ms), source.host_ms, host_ms[rows])
        if expected is not None and source is library:
            expected[cells] = library.expected
    carried = library.carried - {*more.operators} | more.carried
    return replace(
        library,
        operators=operators,
        batch_sizes=sizes,
        log_ms=log_ms,
        host_ms=host_ms,
        expected=expected,
        carried=carried,
    )


def part(
    library: OperatorLibrary, rows: list[int], mode: DeviceMode, carried: bool = False
) -> OperatorLibrary:
    """Some operators of a library, in another mode."""
    operators = tuple(library.operators[i] for i in rows)
    return OperatorLibrary(
        mode, operators, library.batch_sizes, library.log_ms[rows], library.host_ms[rows],
        carried=frozenset(operators if carried else ()),
    )  # fmt: skip


def additions(table: pd.DataFrame) -> Iterator[OperatorLibrary]:
    """The table's operators by mode, and those of TF32 that run the same kernels in fp32."""
    for mode, library in libraries_of(table).items():
        yield library
        for other in (mode._replace(precision="fp32"), mode._replace(memory_format="nchw")):
            found = enumerate(library.operators)
            rows = [i for i, each in found if (other, each) in _same_kernels(mode, each)]
            if rows and other != mode:
                yield part(library, rows, other)


def with_table(layers: LayerModels, table: pd.DataFrame) -> LayerModels:
    """Layer models with a table's operators, on the card that measured them and on others of its chip."""
    changed: dict[DeviceMode, OperatorLibrary] = {}

    def add(more: OperatorLibrary) -> None:
        known = changed.get(more.mode) or layers.measured_library(more.mode)
        if known is not None:
            changed[more.mode] = merged(known, more)

    for more in additions(table):
        add(more)
        for card in cards_of_the_chip(more.mode):
            known = layers.measured_library(card)
            if known is not None:
                new = with_volumes({more.mode: more, card: replace(known, carried=frozenset())})[card]
                add(
                    part(
                        new,
                        [i for i, each in enumerate(new.operators) if each in new.carried],
                        card,
                        carried=True,
                    )
                )
    models = {mode: layers.measured(mode) for mode in changed}
    return layers.with_more(replace(model, library=changed[mode]) for mode, model in models.items() if model)


def errors(layers: LayerModels, table: pd.DataFrame) -> Mapping[str, list[float]]:
    """ln(answered / measured) by family and mode."""
    found: dict[str, list[float]] = {}
    for mode, library in libraries_of(table).items():
        source = layers.find(mode)
        if source is None:
            continue
        said = np.log(source.library.times(library.operators, library.batch_sizes).gpu_ms) - library.log_ms
        for operator, row in zip(library.operators, said, strict=True):
            name = f"{family_of(operator)}, {mode.precision} {mode.memory_format}"
            found.setdefault(name, []).extend(row[np.isfinite(row)].tolist())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--hold-out", action="store_true")
    options = parser.parse_args()
    table, model = pd.read_csv(options.table), Model.load(DEFAULT)
    if not options.hold_out:
        replace(model, layers=with_table(model.layers, table)).save(DEFAULT)
        return
    names = sorted(set(table["cnn"]))
    held = table["cnn"].isin(names[::3])
    before = errors(model.layers, table[held])
    after = errors(with_table(model.layers, table[~held]), table[held])
    for name, found in sorted(before.items()):
        numbers = (float(np.mean(np.abs(each))) for each in (found, after[name]))
        print(f"{name:45} {len(found):4} times, mean |ln|: {' -> '.join(f'{each:.2f}' for each in numbers)}")


if __name__ == "__main__":
    main()
