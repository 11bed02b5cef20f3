"""`epochcast fit-memory`: the cheapest way to train a CNN in the memory that there is."""

from dataclasses import asdict
from typing import Annotated, Any

from epochcast.api import fit_memory
from epochcast.commands import options as o
from epochcast.tables import Format, print_notes, print_records
from predictor.answers.question import Plan, Question
from predictor.errors import SchemaError


@o.with_options(Plan, Question, answer="compare")
def fit_memory_command(
    cnn: o.Cnn,
    gpu: Annotated[list[str] | None, o.gpu_option("every GPU for rent")] = None,
    batch_size: list[str] | None = o.BATCH_SIZES,
    memory_gib: float | None = o.option(
        "Memory that may be used on each GPU.", "all that it has", metavar="GIB"
    ),
    allow: list[str] | None = o.option(
        "What may change where nothing else holds the limits: optimizer, image_size; repeat it.",
        metavar="WORD",
    ),
    code: bool = o.option(
        "Print the plan's lines of PyTorch, and nothing else.", default=False, flag="--code"
    ),
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Find the cheapest way to train a CNN in the memory of a GPU, and the best without each concession."""
    if output is Format.csv or (code and output is Format.json):
        raise SchemaError(f"--format {output.value} does not go here. Pass --json or --code, or neither.")
    limits: dict[str, Any] = {"memory_gib": memory_gib, "allow": allow or ()}
    plans = fit_memory(o.cnn_or_layers(cnn, options), gpu or None, batch_size or None, **limits, **options)
    if output is Format.json:
        about = {"sentence": plans.sentence, "without": asdict(plans)["without"]}
        print_records([asdict(plans.best)], output, (), **about)
    elif code:
        print(plans.best.code)
    else:
        print_notes([plans.sentence], style="bold")
        print_notes(plans.lines())
