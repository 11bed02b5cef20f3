"""What several commands take: options, those of a question derived from its declaration, and CNNs in Python files."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.project import with_defaults
from epochcast.tables import Format
from predictor.answers.options import KINDS, Option, named_by_flags, options_of, renewed
from predictor.answers.question import ANCHOR_FIELDS, OPTIONS, RETIRED, Plan, Question, check_names
from predictor.checks import as_list
from predictor.errors import SchemaError

if TYPE_CHECKING:
    from predictor.cnns.layer_table import LayerTable

CNN_HELP = (
    "a zoo name, a layer-table CSV, an ONNX or Keras file, timm:NAME, torchvision:NAME, hf:FOLDER, or "
    "FILE.py:make_model, which is run; each with @SIZE for images of SIZE pixels"
)


def complete_cnn() -> list[str]:
    """CNNs of the zoo; the shell keeps those that begin as typed."""
    from predictor.cnns.zoo import zoo_names

    return zoo_names()


def complete_gpu() -> list[str]:
    """What completes ``--gpu``: ``all``, then every GPU as one word."""
    from predictor.catalogue.devices import all_gpus, short_name

    return ["all", *(short_name(gpu.name).replace(" ", "-") for gpu in all_gpus())]


def option(text: str, usual: str | None = None, *, default: Any = None, flag: str = "", **more: Any) -> Any:
    """A typer.Option: `usual` says what holds without it; `flag`: its names, if not typer's; `more`: typer's own."""
    shown = usual or default is not None
    return typer.Option(default, *flag.split(), help=text, show_default=shown, **more)


def argument(text: str, usual: str | None = None, **more: Any) -> Any:
    """A typer.Argument that may be left out: `usual` says what holds without it; `more`: typer's own."""
    return typer.Argument(None, help=text, show_default=usual or False, **more)


def gpu_option(usual: str | None = None, more: str = "; repeat it") -> Any:
    """The option of a command's GPUs; `usual` says which they are by default, `more` how to name several."""
    return typer.Option(
        "--gpu", "-g", help=f"GPU by any of its names{more}.", show_default=usual or True, autocompletion=complete_gpu
    )  # fmt: skip


def batch_size_option(usual: str) -> Any:
    """The option of a command's batch sizes; `usual` says which they are by default."""
    text = "Mini-batch size; repeat it, or write 32,64."
    return option(text, usual, flag="--batch-size -b", metavar="N")


Cnn = Annotated[
    str, typer.Argument(help=f"The CNN: {CNN_HELP}.", show_default=False, autocompletion=complete_cnn)
]
BATCH_SIZES = batch_size_option("what fits is searched")
SCHEDULER = option(
    "Work on the Dask cluster of this scheduler, such as tcp://10.0.0.5:8786; needs epochcast\\[fleet].",
    metavar="ADDRESS",
)
IMAGE_SIZE = option("Side of the square images in pixels.", "the CNN's")
OFFERS = option("Your own price file, with the columns of offers.csv.", "the shipped prices")
_STORE = {"default": "sqlite:///epochcast.db", "envvar": "EPOCHCAST_STORE", "metavar": "URL"}
STORE = option("sqlite:///FILE, or postgresql://...", **_STORE)
VERBOSE = option(
    "Print every row, every reason, and what the answer covers.", default=False, flag="--verbose -v"
)
PLOT = option("Draw the answer into this .png or .svg; needs matplotlib.")
OUT = option("Write every row and column to this .csv, .csv.gz or .parquet, too; - prints CSV instead.")
OutputFormat = Annotated[Format, typer.Option("--format", help="What to print.")]

_ANCHOR = "anchor_"


def with_options(
    *kinds: type[Any], answer: str, usual: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command --json, and the options that these dataclasses declare; those given reach it as `options`.

    It takes those that `answer` reads, a word of `predictor.answers.options.ANSWERS` or ``profile``; `usual` is what to
    show as the default of an option instead of what it declares.
    """
    declared = {name: option for kind in kinds for name, option in options_of(kind, answer).items()}
    shown = usual or {}
    own_forms = [option for option in declared.values() if option.kind != "anchors"]
    derived = [_parameter(option, option.name, shown.get(option.name, "")) for option in own_forms]
    if "anchors" in declared:
        # The command line measures no other image size than the question's.
        names = [name for name in ANCHOR_FIELDS if name != "image_size"]
        derived += [_parameter(ANCHOR_FIELDS[name], _ANCHOR + name) for name in names]
    derived += [_parameter(option, option.name) for option in RETIRED.values() if answer in option.answers]
    # Options of a whole training are taken only to say which command reads them.
    elsewhere = {} if Plan in kinds else options_of(Plan)
    asked = [kind for kind in (Question, Plan) if kind in kinds]
    of_project = {name: declared[name] for kind in asked for name in options_of(kind, answer)}
    derived += [_parameter(option, option.name, hidden=True) for option in elsewhere.values()]

    def decorate(command_of_formats: Callable[..., None]) -> Callable[..., None]:
        command = with_json(command_of_formats)
        own = dict(inspect.signature(command).parameters)
        del own["options"]
        added = [parameter for parameter in derived if parameter.name not in own]

        @functools.wraps(command)
        def call(**values: Any) -> None:
            typed = {parameter.name: values.pop(parameter.name) for parameter in added}
            for parameter in added:
                texts = as_list(typed[parameter.name])
                if any(isinstance(text, str) and not text.strip() for text in texts):  # such as "$UNSET"
                    [about] = parameter.annotation.__metadata__
                    flag = about.default  # where typer keeps the first of its names
                    raise SchemaError(f"{flag} is empty. Pass a value, or leave it out.")
            options = {name: value for name, value in typed.items() if value not in (None, False, [])}
            anchor = {name: options.pop(name) for name in list(options) if name.startswith(_ANCHOR)}
            if anchor:
                options["anchors"] = [{name.removeprefix(_ANCHOR): value for name, value in anchor.items()}]
            with named_by_flags():  # as rows of a table do not
                options = renewed(options, OPTIONS)
                check_names(options.keys() & elsewhere.keys(), declared)
                for name, value in options.items():
                    declared[name].checked(value)
                with with_defaults(of_project, options) as (options, words):
                    if values.get("verbose") and words:
                        typer.echo(words, err=True)
                    command(**values, options=options)

        return _with_parameters(call, [*own.values(), *added])

    return decorate


def with_json(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that has --format the option --json, which means --format json."""

    @functools.wraps(command)
    def call(*, as_json: bool, **values: Any) -> None:
        if as_json and values["output"] not in (Format.table, Format.json):
            raise SchemaError(
                f"--json is --format json, and --format {values['output'].value} is given. Pass one of them."
            )
        command(**values | ({"output": Format.json} if as_json else {}))

    own = list(inspect.signature(command).parameters.values())
    at = next(i for i, parameter in enumerate(own) if parameter.name == "output") + 1
    about = Annotated[bool, typer.Option("--json", help="As --format json.")]
    flag = inspect.Parameter("as_json", own[at - 1].kind, default=False, annotation=about)
    return _with_parameters(call, [*own[:at], flag, *own[at:]])


def _with_parameters(call: Any, parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """The function with the signature that typer makes options of."""
    call.__signature__ = inspect.Signature(parameters)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command: Callable[..., None] = call
    return command


def _parameter(option: Option, name: str, shown: str = "", hidden: bool = False) -> inspect.Parameter:
    def words() -> list[str]:
        from predictor.catalogue.data_sets import training_sets

        return list(option.choices or training_sets())

    default = option.usual or ("" if option.default in (None, 0) else str(option.default))
    of_value: dict[str, Any] = {
        "metavar": KINDS[option.kind].metavar,
        "show_default": shown or default or False,
        "autocompletion": words if option.choices or option.name == "data_set" else None,
    }
    is_flag = option.kind == "flag"
    more = {"rich_help_panel": option.panel or None, "hidden": hidden or bool(option.now)} | (
        {} if is_flag else of_value
    )
    about = typer.Option(*option.flags, help=option.help, **more)
    # The question checks values, with its own messages.
    of_text: Any = list[str] | None if option.kind in ("words", "sizes", "names") else str | None
    annotation: Any = Annotated[bool if is_flag else of_text, about]
    absent = False if is_flag else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=absent, annotation=annotation)


def cnn_or_layers(cnn: str, options: Mapping[str, Any]) -> "str | LayerTable":
    """The layers of a CNN that a Python file makes (``FILE.py:make_model[@SIZE]``); every other text as it is.

    The file is run on this machine; the core and a service get only the layers. Images are as large as the text says
    after @, else `image_size` of the options, else those of the data set, else 224 pixels. SchemaError if there is no
    such file or function, it fails, or two image sizes are given; BackendUnavailableError without PyTorch or Chainer.
    """
    if ".py" not in cnn:  # a name, whose answer does not need what runs files
        return cnn
    from predictor.answers.resolved import ResolvedQuestion
    from proxy_cnns.user_cnns import named_table, names_a_file

    if not names_a_file(cnn):
        return cnn
    question = Question.of(None, None, 1, {name: options.get(name) for name in ("image_size", "data_set")})
    return named_table(cnn, question.image_size, ResolvedQuestion.of(question).image_size_of(None))


def write_figure(figure: Any, path: Path) -> None:
    """Save a matplotlib figure, and say so on stderr; SchemaError for a suffix that it cannot write."""
    suffixes = figure.canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in suffixes:
        raise SchemaError(
            f"--plot {path}: its suffix must be one of {', '.join(f'.{suffix}' for suffix in suffixes)}."
        )
    figure.savefig(path)
    typer.echo(f"Wrote {path}.", err=True)
