"""Refits the ratios of models/ratios.json on the project's own tables, beside the shipped ones: a step of `make model`.

Run it as `python benchmarks/fit_ratios.py [--out FILE]`.
"""

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import packed
from epochs import fit_epochs
from power_fit import POWER, own_readings
from ratios_fit import (
    CHAINER,
    COMPILE,
    DATA_PARALLEL,
    REPLICAS,
    chainer_pairs,
    compiled_pairs,
    own_tables,
    replicas_pairs,
    sync_norm_ms,
    team_pairs,
)

from predictor.files import data_file, replace_file
from predictor.models.ratios import FILE, Ratios, read_ratios
from predictor.models.served import Model


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file to write; without it, nothing is written")
    options = parser.parse_args(arguments)
    shipped, entries = read_ratios(data_file(FILE)), fitted()
    for name, ratios in entries.items():
        before = _numbers(shipped[name])
        for number, value in _numbers(ratios).items():
            print(f"{name:14} {number:16} shipped {before.get(number, math.nan):8.4g}   fitted {value:8.4g}")
    if options.out:
        text = json.dumps({name: ratios.to_json() for name, ratios in entries.items()}, indent=1)
        replace_file(options.out, text + "\n")
    return 0


def _numbers(ratios: Ratios) -> dict[str, float]:
    return {**ratios.numbers, "spread": ratios.spread, "host_spread": ratios.host_spread}


def fitted() -> dict[str, Ratios]:
    """Every entry of the file, fitted on the measurements of this checkout."""
    model = Model.load()
    data_parallel = DATA_PARALLEL.shipped(team_pairs(own_tables("ddp")))
    norms = {"sync_norm_ms": sync_norm_ms(own_tables("ddp_synchronised"))}
    return {
        "compile": COMPILE.shipped(compiled_pairs(own_tables("compiled"), model)),
        "chainer": CHAINER.shipped(chainer_pairs(model)),
        "data_parallel": replace(data_parallel, numbers={**data_parallel.numbers, **norms}),
        "replicas": REPLICAS.shipped(replicas_pairs(model)),
        **fit_epochs(),
        packed.ENTRY: packed.shipped_ratios(),
        "power": POWER.shipped(own_readings()),
    }


if __name__ == "__main__":
    sys.exit(main())
