"""The reference of `import epochcast`: every public name, which mkdocstrings documents from its docstring."""

import epochcast

_INTRODUCTION = """# Python

`import epochcast` has these names. Everything loads when it is first used. A question that makes no sense raises an
`EpochcastError`, whose message says what would be right.
"""
_FIRST = (
    "compare", "predict", "largest_batch_size", "explain", "load_measurements", "profile", "fit", "evaluate",
)  # fmt: skip


def python_page() -> str:
    """The page in Markdown; what people use most stands first."""
    names = dict.fromkeys([*_FIRST, *epochcast.__all__])
    return "\n".join([_INTRODUCTION, *(f"::: {_home(name)}.{name}" for name in names), ""])


def _home(name: str) -> str:
    """The module that documents a name; those of the public face are documented as people write them."""
    module = str(getattr(epochcast, name).__module__)
    return "epochcast" if module.startswith("epochcast") else module
