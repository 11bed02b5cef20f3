"""`python -m predictor.zoo [FOLDER]` rewrites the layer tables in datasets/cnns after a change of the zoo."""

import sys
from pathlib import Path

from predictor.data_files import data_root
from predictor.sources.csv_table import write_layer_table_csv
from predictor.zoo import zoo_cnn, zoo_names

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Write one CSV for each CNN, at its usual image size, into the folder given or datasets/cnns."""
    folder = Path(arguments[0]) if arguments else data_root() / "cnns"
    folder.mkdir(parents=True, exist_ok=True)
    for name in zoo_names():
        write_layer_table_csv(zoo_cnn(name), folder / f"{name}.csv")
    print(f"{len(zoo_names())} layer tables written to {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
