# pyright: standard
"""Five right calls of the public functions and five wrong ones, for type checkers: nothing here is run.

mypy --strict (`make lint`) passes the right ones, and says so where a wrong one is none; `test_typed` asks pyright.
"""

import pandas as pd

import epochcast


def calls() -> None:
    """Never called."""
    answer: pd.DataFrame = epochcast.predict(
        "resnet50", gpu=["T4", "H200"], batch_size=[16, 64], precision="tf32"
    )
    ranking: pd.DataFrame = epochcast.compare(
        epochcast.NetBuilder("mine", 32).table(), epochs=10, samples=500
    )
    made_of: pd.DataFrame = epochcast.explain(["vgg16", "mine.onnx"], "H200", 64, capture="compile")
    largest: int = epochcast.largest_batch_size("resnet50", "T4", optimizer="adam")
    for batch in epochcast.watch([1, 2], "resnet18", epochs=3, usd_per_hour=2.0):
        print(batch, answer, ranking, made_of, largest)
    epochcast.predict("resnet50", gpu=3)  # type: ignore[arg-type]
    epochcast.predict("resnet50", "T4", batchsize=4)  # type: ignore[call-arg]
    epochcast.compare("resnet50", precision="fp31", samples=100)  # type: ignore[arg-type]
    epochcast.explain("resnet50", "T4", batch_size=4.5)  # type: ignore[arg-type]
    epochcast.largest_batch_size(17, "T4")  # type: ignore[arg-type]
