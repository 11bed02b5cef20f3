"""`epochcast cnn`: the zoo, and any CNN's layer table."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.tables import Column, Format, Record, print_as, print_records, print_table, table_columns
from predictor.answers.notes import number

if TYPE_CHECKING:
    from predictor.cnns.layer_table import LayerTable

app = typer.Typer(help="CNNs: the zoo, and layer tables.", no_args_is_help=True)


@app.command("list")
@o.with_json
def list_command(output: o.OutputFormat = Format.table) -> None:
    """List the CNNs that need no framework, with what one image costs at their usual size."""
    from predictor.cnns.zoo import ZOO, zoo_cnn, zoo_names
    from predictor.operators.work import cnn_flops

    records = [
        {
            "cnn": name,
            "image_size": ZOO[name].usual_image_size,
            "minimum_image_size": ZOO[name].minimum_image_size,
            "layers": len(table := zoo_cnn(name)),
            "parameters": table.parameters,
            "forward_flops_per_image": cnn_flops(table, 1, ("forward",)),
            "training_flops_per_image": cnn_flops(table, 1),
            "layer_table_digest": table.digest,
        }
        for name in zoo_names()
    ]
    print_as(output, records, table_columns("cnn list"), f"{len(records)} CNNs")


@app.command("show")
@o.with_json
def show_command(
    cnn: Annotated[str, typer.Argument(help=f"{o.CNN_HELP}.", autocompletion=o.complete_cnn)],
    image_size: int | None = o.IMAGE_SIZE,
    batch_size: int = o.option("Images per mini-batch.", default=1, flag="--batch-size -b"),
    output: o.OutputFormat = Format.table,
) -> None:
    """Show a CNN's layers, with their work in a forward pass and in a whole iteration."""
    from dataclasses import asdict

    from predictor.checks import MAX_BATCH_SIZE, whole_number
    from predictor.cnns.resolve import resolve_cnn
    from predictor.operators.work import PASSES, arithmetic_intensity, layer_bytes, layer_flops

    size = whole_number("--batch-size", batch_size, high=MAX_BATCH_SIZE)
    table = resolve_cnn(o.cnn_or_layers(cnn, {"image_size": image_size}), image_size)
    work = [
        {
            "forward_flops": layer_flops(layer, "forward", size),
            "training_flops": sum(layer_flops(layer, pass_, size) for pass_ in PASSES),
            "training_bytes": sum(layer_bytes(layer, pass_, size) for pass_ in PASSES),
            "forward_arithmetic_intensity": arithmetic_intensity(layer, "forward", size),
        }
        for layer in table
    ]
    if output is Format.csv:
        records = [row | more for row, more in zip(table.csv_rows(), work, strict=True)]
        print_records(records, output, records[0])
        return
    records = [asdict(layer) | more for layer, more in zip(table, work, strict=True)]
    if output is Format.json:
        about = {"cnn": table.cnn, "image_size": table.image_size, "batch_size": size, "step": table.step}
        print_records(records, output, records[0], **about, warnings=table.warnings)
        return
    layers = f"{len(table)} layers, {table.parameters:,} parameters"
    title = f"{table.cnn}, {table.image_in_words}, batch {size}: {layers}"
    print_table(records, _LAYER_COLUMNS, title, _notes(table, records, size))


def _notes(table: "LayerTable", records: list[dict[str, Any]], batch_size: int) -> list[str]:
    """Work of an iteration; what frozen parts save, and recomputed and repeated ones cost; warnings."""
    from predictor.operators.work import cnn_flops

    flops = sum(record["training_flops"] for record in records)
    forward = sum(record["forward_flops"] for record in records)
    moved = sum(record["training_bytes"] for record in records)
    notes = [
        f"Forward {number(forward / 1e9)} GFLOP (a multiply-add counts as 2), training "
        f"{number(flops / 1e9)} GFLOP and {number(moved / 1e9)} GB read and written in fp32."
    ]
    trained = table.trained_whole()
    if trained is not table:
        usual = cnn_flops(trained, 1)
        notes.append(
            f"Trained whole, with every layer once, an image takes {number(usual / 1e9)} GFLOP: frozen, recomputed and "
            f"repeated parts make it {number(flops / batch_size / usual)} x."
        )
    return [*notes, *(f"Beware: {warning}" for warning in table.warnings)]


def _passes(record: Record) -> str:
    """Passes of a layer that does not run as where all is trained."""
    if record["forwards"] is None:
        return ""
    gradients = record["input_gradients"] + record["weight_gradients"]
    return f"{record['forwards']} forward, {gradients} back{', again' * bool(record['recomputed'])}"


def _shape(record: Record, side: str) -> str:
    sizes = [record[f"{side}_{axis}"] for axis in ("channels", "height", "width")]
    if None in sizes:
        return ""
    shape = f"{sizes[0]}x{_sides(record, side)}"
    return shape if record["repeats"] == 1 else f"{record['repeats']} of {shape}"


def _pair(record: Record, field: str) -> str:
    return "" if record[f"{field}_height"] is None else _sides(record, field)


def _sides(record: Record, field: str) -> str:
    """Height and width; of a volume, whose height column holds its depth, too, all three sides."""
    depth, height, width = (record[f"{field}_{axis}"] for axis in ("depth", "height", "width"))
    return f"{depth}x{height // depth}x{width}" if depth else f"{height}x{width}"


_LAYER_COLUMNS = (
    Column("#", lambda r: str(r["index"])),
    Column("name", lambda r: r["name"], left=True, rank=2),
    Column("type", lambda r: r["kind"] or r["type"], left=True),
    Column("in", lambda r: _shape(r, "in"), left=True),
    Column("out", lambda r: _shape(r, "out"), left=True),
    Column("kernel", lambda r: _pair(r, "kernel"), left=True),
    Column("stride", lambda r: _pair(r, "stride"), left=True, rank=1),
    Column("groups", lambda r: str(r["groups"]) if (r["groups"] or 1) > 1 else "", rank=1),
    Column("parameters", lambda r: f"{r['parameters']:,}" if r["parameters"] else "", rank=1),
    Column("passes", _passes, left=True, rank=1),
    Column("MFLOP", lambda r: number(r["training_flops"] / 1e6)),
    Column("MB", lambda r: number(r["training_bytes"] / 1e6)),
    Column("FLOP/byte", lambda r: number(r["forward_arithmetic_intensity"]), rank=3),
)
