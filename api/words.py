"""Texts of the service that are data: `words.json`.

`titles`: of each status. `given`: what pydantic says of Python's types, in the words of JSON; `plain`: other beginnings
of what it says. `in_rest`: next steps of the core, and those of who asks a service. `next_steps`: what to do, where the
name of a field and the kind of error say it. `tags`: groups of routes. `unused_settings`: as of `api.hosts`.
`no_cnn_or_two`: what no question is. `measurements`: an upload, a search and a deletion, with examples. `fields`: what
fields of documents are; `words`: which words some of them hold. `media_types`: of files, by their ending.
`security_headers`: of every answer. `answers`: what each question asks for (`predictor.answers.options.ANSWERS`).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core.core_schema import CoreSchema, custom_error_schema

WORDS: dict[str, Any] = json.loads(Path(__file__).with_name("words.json").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Range:
    """The valid range of an int or float, all of which its refusal says; `below` leaves the upper bound out."""

    low: float
    high: float
    below: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        low, high = (f"{end:,}" if source is int else f"{end:,.10g}" for end in (self.low, self.high))
        kind, to = "whole number" if source is int else "number", "to below" if self.below else "to"
        number: Any = {**handler(source), "ge": self.low, "lt" if self.below else "le": self.high}
        text = f"Give a {kind} from {low} {to} {high}"
        return custom_error_schema(number, "out_of_range", custom_error_message=text)


def described(name: str, default: Any = ...) -> Any:
    """A field of a pydantic model, as ``Model.field``, with its description."""
    return Field(default, description=WORDS["fields"][name])
