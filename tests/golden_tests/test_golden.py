"""Answers of every public face are those of the golden tables, number by number."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from cases import QUESTIONS, Question
from faces import (
    answers_of_bulk,
    answers_of_cli,
    answers_of_evaluation,
    answers_of_fit,
    answers_of_python,
    answers_of_rest,
    service,
)
from golden_tables import TABLES, explained_rows, first, other_modes, read


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of a running service."""
    with service() as test_client:
        yield test_client


def questions_of(verb: str, face: str, needs: str = "") -> list[Question]:
    """Questions of a verb that a face answers, of CNNs that need this framework (or none) to be read."""
    return [
        question
        for question in QUESTIONS
        if question.verb == verb and face in question.faces and question.needs == needs
    ]


def assert_golden(name: str, records: list[dict[str, Any]], only: set[str] | None = None) -> None:
    """The records are the golden table's, or those of its questions in `only`."""
    table = TABLES[name]
    golden = {key: row for key, row in read(table).items() if only is None or key[0] in only}
    lines = table.differences(golden, table.rows(records))
    assert not lines, first(lines)


def check(questions: list[Question], answer: Callable[[Question], list[dict[str, Any]]]) -> None:
    """These questions of one verb have their golden answers."""
    assert questions
    answers = {question.name: answer(question) for question in questions}
    if questions[0].verb == "explain":
        for table, rows_of in (("explain", explained_rows), ("other_modes", other_modes)):
            rows = [row for name in answers for row in rows_of(name, answers[name])]
            assert_golden(table, rows, set(answers))
        return
    rows = [row | {"question": name} for name in answers for row in answers[name]]
    assert_golden(questions[0].verb, rows, set(answers))


VERBS = ("predict", "compare", "explain")
FACES = ("python", "cli", "rest")


def check_face(face: str, verb: str, client: Any, needs: str = "") -> None:
    """Questions of a verb have their golden answers by one face."""
    answers = {"python": answers_of_python, "cli": answers_of_cli, "rest": partial(answers_of_rest, client)}
    check(questions_of(verb, face, needs), answers[face])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("face", FACES)
def test_every_face_answers_as_the_golden_table(face, verb, client):
    check_face(face, verb, client)


def test_a_module_of_pytorch_is_answered_as_the_golden_table():
    pytest.importorskip("torch", reason="PyTorch is not installed: its CNNs are not compared")
    check(questions_of("predict", "python", "torch"), answers_of_python)


def test_an_onnx_file_is_answered_as_the_golden_table_by_every_face(client):
    pytest.importorskip("onnx", reason="onnx is not installed: its files are not compared")
    for face in FACES:
        check_face(face, "predict", client, "onnx")


def test_a_file_of_questions_is_answered_as_the_golden_table(tmp_path):
    assert_golden("bulk", answers_of_bulk(tmp_path))


def test_a_fitted_model_answers_as_the_golden_table(tmp_path):
    assert_golden("fit", answers_of_fit(tmp_path))


def test_an_evaluation_finds_the_errors_of_the_golden_table(tmp_path):
    assert_golden("evaluate", answers_of_evaluation(tmp_path))
