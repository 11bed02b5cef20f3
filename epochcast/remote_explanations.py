"""What a service explains, as the core's explanations."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from epochcast.remote import answer_of, check_version, cnn_to_send, gpu_name, options_to_send
from epochcast.transport import Service
from predictor.answers.bounds import Switch
from predictor.answers.explain import Explanation, OtherMode, SmallBatchLaw
from predictor.answers.question import Question
from predictor.checks import as_list

__all__ = ["explain_remotely"]

_GPUS_OF_A_QUESTION = 8


def explain_remotely(service: Service, question: Question) -> tuple[list[Explanation], str]:
    """A service's explanations, and what they cover; errors as of `epochcast.remote.predict_remotely`."""
    sent = options_to_send(question)
    names = _names(service, question)
    found: list[Explanation] = []
    covers: dict[str, None] = {}
    for cnn in as_list(question.cnn):
        by_gpu: dict[str, Explanation] = {}  # several names may be one GPU's
        for some in _parts(names):
            answer = answer_of(
                service, "/v1/explanations", sent | cnn_to_send(cnn, question) | {"gpus": some}
            )
            by_gpu |= {each.gpu: each for each in map(_explanation, answer["explanations"])}
            covers[answer["covers_together"]] = None
        found += by_gpu.values()
    return found, "\n".join(covers)


def _names(service: Service, question: Question) -> list[str]:
    """GPUs as asked for; `all` are those that the service knows to have the precision."""
    names = [gpu_name(gpu) for gpu in as_list(question.gpus)]
    if not any(name.strip().casefold() == "all" for name in names):
        return names
    known = answer_of(service, "/v1/gpus")
    having = (each for each in known if question.precision in (None, *each["precisions"]))
    return [each["gpu"]["name"] for each in having] or names


def _parts(names: list[str]) -> list[list[str]]:
    """As many GPUs as a question may name; a service refuses what makes no sense, such as none."""
    starts = range(0, max(1, len(names)), _GPUS_OF_A_QUESTION)
    return [names[start : start + _GPUS_OF_A_QUESTION] for start in starts]


def _explanation(found: Mapping[str, Any]) -> Explanation:
    check_version({each.name for each in fields(Explanation)}, found)
    law = found["small_batch_law"]
    parts = {
        "small_batch_law": None if law is None else _made(SmallBatchLaw, law),
        "switches": tuple(_made(Switch, each) for each in found["switches"]),
        "other_modes": tuple(_made(OtherMode, each) for each in found["other_modes"]),
    }
    return Explanation(**{name: _plain(value) for name, value in found.items()} | parts)


def _made(kind: type[Any], found: Mapping[str, Any]) -> Any:
    check_version({each.name for each in fields(kind)}, found)
    return kind(**{name: _plain(value) for name, value in found.items()})


def _plain(value: Any) -> Any:
    """Lists as tuples, as the core has them."""
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value
