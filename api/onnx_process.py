"""Reads an uploaded ONNX file in a process of its own, whose memory and time are bounded.

`python -m api.onnx_process` is that process: the file on its standard input, the
layer table as JSON on its standard output. Whatever a hostile file does to the C++ that parses it, the service lives.
Nothing of the file is executed or unpickled, and no other file is opened.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

from pydantic import ValidationError

from api.layer_tables import LayerTableIn, inline_table
from predictor.cnns.layer_table import LayerTable
from predictor.errors import EpochcastError, OutOfRangeError, SchemaError

_MEMORY_BYTES = 2**30  # address space; onnx and numpy take half of it before they read anything
_MOST_OUTPUT = 16 * 2**20
_MOST_NODES = 20_000
"""Operators of a file, its functions unfolded: some seconds of work, and twenty times those of the largest CNNs."""

_CLOCK_PER_CPU = 12
_REFUSED = 3
_OUT_OF_TIME = 24  # SIGXCPU on Linux and macOS
_ERRORS: dict[str, type[EpochcastError]] = {"OutOfRangeError": OutOfRangeError}


def read_onnx(content: bytes, name: str, image_size: int | None, cpu_s: int = 2) -> LayerTable:
    """Layer table of the CNN in an ONNX file, which messages and the table call `name`.

    `image_size` counts where the file leaves it open. Reading may take `cpu_s` of a processor, twelve times as long on
    the clock, since processors are shared. SchemaError or OutOfRangeError if the file cannot be read within the limits,
    or is for images of another size.
    """
    command = [sys.executable, "-m", "api.onnx_process", name, str(image_size or 0), str(cpu_s)]
    try:
        process = subprocess.run(  # noqa: S603 - our own program; the file goes to its standard input
            command, input=content, capture_output=True, timeout=_CLOCK_PER_CPU * cpu_s, env=_environment(),
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _too_long(name, cpu_s) from None
    if process.returncode == -_OUT_OF_TIME:
        raise _too_long(name, cpu_s)
    if process.returncode == _REFUSED:
        refusal = process.stderr.decode("utf-8", "replace").rpartition("\x1e")[2]
        kind, option, message = refusal.split("\x1f", 2)
        raise _ERRORS.get(kind, SchemaError)(message).about(option)
    if process.returncode or len(process.stdout) > _MOST_OUTPUT:
        raise SchemaError(f"{name} is damaged, or too large to read: reading it was stopped.")
    read = json.loads(process.stdout)
    shown = {"name": read["cnn"]} | {name: read[name] for name in ("image_size", "layers", "warnings")}
    try:
        table = inline_table(LayerTableIn.model_validate(shown))
    except ValidationError as error:  # numbers beyond the bounds of posted tables
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise SchemaError(f"{name} holds what no CNN does: {field}: {first['msg']}.") from None
    return replace(table, source="onnx")


def _too_long(name: str, cpu_s: int) -> SchemaError:
    return SchemaError(
        f"{name} takes longer than {cpu_s} s to read. Make its layer table yourself "
        "(`epochcast cnn show FILE --format json`) and send that."
    )


def _environment() -> dict[str, str]:
    """Environment of the process: one thread, and no settings of epochcast or PostgreSQL, which may hold passwords."""
    ours = ("EPOCHCAST_", "PG")  # they may hold passwords
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _main(name: str, image_size: int, cpu_s: int) -> int:
    _limit(cpu_s)
    from predictor.cnns.onnx_file import from_onnx

    try:
        content = sys.stdin.buffer.read()
        _check_nodes(content, name)
        table = from_onnx(f"{name}.onnx", image_size or None, content)
    except (EpochcastError, MemoryError, RecursionError) as error:
        own = isinstance(error, EpochcastError)
        message = str(error) if own else f"{name} is too large or too deep to read."
        option = getattr(error, "option", None) or "onnx"
        sys.stderr.write(f"\x1e{type(error).__name__}\x1f{option}\x1f{message}")
        return _REFUSED
    sys.stdout.write(json.dumps(asdict(table)))
    return 0


def _check_nodes(content: bytes, name: str) -> None:
    """SchemaError if a file has too many operators, before its functions are unfolded; a damaged file passes."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_model_from_string(content)
    except DecodeError:
        return
    functions = {(function.domain, function.name): function.node for function in model.functions}
    unfolded_counts: dict[tuple[str, str], int] = {}

    def unfolded(nodes: Any, above: tuple[tuple[str, str], ...] = ()) -> int:
        total = 0
        for node in nodes:
            called = (node.domain, node.op_type)
            if called in above:
                raise SchemaError(f"{name} has a function that calls itself: {node.op_type[:80]!r}.")
            if called in functions and called not in unfolded_counts:
                unfolded_counts[called] = unfolded(functions[called], (*above, called))
            inner = [attribute.g.node for attribute in node.attribute if attribute.HasField("g")]
            total += unfolded_counts.get(called, 1) + sum(unfolded(nodes, above) for nodes in inner)
        return total

    if unfolded(model.graph.node) > _MOST_NODES:
        raise SchemaError(
            f"{name} has more than {_MOST_NODES:,} operators, its functions unfolded; CNNs have some thousands. Make "
            "its layer table yourself (`epochcast cnn show FILE --format json`) and send that."
        )


def _limit(cpu_s: int) -> None:
    """Bound memory, time and files of this process, if the operating system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
