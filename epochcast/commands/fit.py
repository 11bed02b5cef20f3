"""`epochcast fit`: fits a model on your own measurements, or the shipped one again."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from epochcast.commands import options as o
from epochcast.tables import Column, Format, Record, counted, print_records, print_table
from predictor.files import check_replaceable

if TYPE_CHECKING:
    from predictor.models.named import Methods


@o.with_json
def fit_command(
    measurements: list[Path] | None = o.argument("Measurement tables, .csv, .csv.gz or .parquet."),
    published: Path | None = o.option("Or a folder of published measurements."),
    out: Path | None = o.option("JSON file to write."),
    accuracy: list[Path] | None = o.option(
        "summary.csv of `evaluate --out`, whose figures go on the model's card; repeatable."
    ),
    store: str | None = o.option(
        "Fit on measurements uploaded to this store, also without a table: sqlite:///FILE or postgresql://...",
        metavar="URL",
    ),
    methods_only: bool = o.option(
        "Fit gpu-specs, proxy-times and flops-ratio of the model in --out; keep the rest of it.",
        default=False,
        flag="--methods-only",
    ),
    method: list[str] | None = o.option(
        "Fit only this method, gpu-specs or proxy-times, beside the shipped model; repeat it."
    ),
    output: o.OutputFormat = Format.table,
) -> None:
    """Fit the model that predict and compare use, and write it as JSON for their --model."""
    from epochcast.measured import fit
    from predictor.errors import SchemaError

    if out is None:
        raise SchemaError("--out is missing. Try: epochcast fit measurements.csv --out model.json")
    check_replaceable(out)
    model = fit(measurements or None, published, out, accuracy or None, store, methods_only, method or None)
    if method and output is Format.table:
        _print_methods(model.named_methods(), out)
        return
    card = [{"field": key, "value": value} for key, value in {"file": str(out), **model.card}.items()]
    if output is Format.table:
        columns = [Column("field", lambda r: r["field"], left=True), Column("value", _text, left=True)]
        hidden = {"provenance", "accuracy", *["single_layers"] * (model.card.get("single_layers") == 0)}
        lines = (line for line in card if line["field"] not in hidden)
        print_table([line for line in lines if _text(line) not in ("", "None")], columns)
        if names := model.layers.modes():
            typer.echo(f"Operator libraries in {out.with_name(f'{out.stem}_operators')}: {', '.join(names)}.")
        if fitted := model.named_methods().fitted:
            typer.echo(f"Methods in {out.with_name(f'{out.stem}_methods.json.gz')}: {', '.join(fitted)}.")
    else:
        print_records(card, output, ("field", "value"))


def _print_methods(methods: "Methods", out: Path) -> None:
    """What was fitted, and how far each method is off in each scaling."""
    for name, predictor in methods.fitted.items():
        typer.echo(f"{name}: {predictor.trained_on_}.")
        errors = methods.errors.get(name, ())
        for error in errors:
            typer.echo(f"  misses {error}: {counted(error.n, 'row')} that no fit saw.")
        if not errors:
            typer.echo(
                "  The rows do not tell how far it is off: it takes CNNs at three batch sizes, or on two GPUs."
            )
    named = next(iter(methods.fitted))
    typer.echo(
        f"Next: epochcast predict CNN --gpu GPU --method {named} --model {out}, or epochcast serve --model {out}"
    )


def _text(line: Record) -> str:
    value = line["value"]
    if isinstance(value, dict):
        return ", ".join(f"{key} {entry}" for key, entry in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
