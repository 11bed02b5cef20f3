"""Help of commands with many options: those that people use first, and the rest by ``--help-all``."""

from typing import Any

import typer
from typer.core import TyperCommand

_FOR_ALL = "gpu batch_size data_set precision as_json"
_FIRST = {
    "compare": "epochs budget_usd deadline_h rank_by n_gpus spot verbose",
    "predict": "image_size n_gpus workers spot out plot verbose",
    "explain": "image_size memory_format capture optimizer host method verbose",
    "check": "log images_per_s iteration_time_ms epoch_time_s waiting_share workers epochs",
    "fit-memory": "memory_gib allow code image_size epochs optimizer n_gpus",
    "diff": "fail_over markdown image_size memory_format optimizer n_gpus host",
}
_ALL = "epochcast.help_all"


class ShortHelp(TyperCommand):
    """A command whose ``--help`` shows twelve options, and whose ``--help-all`` shows every option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--help-all`` as help of all options."""
        if "--help-all" in args:
            ctx.meta[_ALL], args = True, ["--help"]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without the options that people use less."""
        first = f"{_FOR_ALL} {_FIRST.get(self.name or '', '')}".split()
        params: list[Any] = self.params if self.name in _FIRST and _ALL not in ctx.meta else []
        options = [param for param in params if param.param_type_name == "option" and not param.hidden]
        rest = [option for option in options if option.name not in first]
        for option in rest:
            option.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for option in rest:
                option.hidden = False
        if rest:
            typer.echo(f" --help-all lists {len(rest)} more options.\n")
