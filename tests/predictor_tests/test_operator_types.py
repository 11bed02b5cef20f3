"""The registry of operator types: complete, sound, and the only table of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from case_tables import table

from predictor.operator_types import ACTIVATIONS, LAYER_TYPES, OPERATOR_CLASSES, OPERATOR_TYPES
from predictor.operators.kernels import KERNEL_CLASSES

ROOT = Path(__file__).parents[2]
PLAIN_WORDS = {
    "add", "other", "loss", "optimizer", "linear", "permute", "mean", "roll", "matmul", "attention",
}  # fmt: skip
TELLING = set(OPERATOR_TYPES) - PLAIN_WORDS
"""Types whose names mean nothing else in the source."""

ALLOWED = tuple(table(__file__, "what may name operator types"))


def tables_naming_types(source: str) -> Iterator[int]:
    """Lines of literals that list two or more types."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            entries = [*node.keys, *node.values]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            entries = list(node.elts)
        else:
            continue
        named = {entry.value for entry in entries if isinstance(entry, ast.Constant)} & TELLING
        if len(named) > 1:
            yield node.lineno


def test_no_other_module_keeps_a_table_of_operator_types():
    lines = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in ("predictor", "proxy_cnns", "api", "epochcast")
        for path in sorted((ROOT / package).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(ALLOWED)
        for line in tables_naming_types(path.read_text(encoding="utf-8"))
    ]
    assert lines == []


def test_a_table_of_types_would_be_found():
    assert list(tables_naming_types('NORMS = ("batch_norm", "layer_norm")')) == [1]
    assert list(tables_naming_types('PASSES = {"group_norm": 8, "max_pool": 5}')) == [1]


MEASURED_CLASSES = {
    (entry.operator_class, entry.kernel_class) for entry in OPERATOR_TYPES.values() if entry.is_measured
}
SOUND = {
    "its kernels are of a known class": lambda entry: entry.kernel_class in {*KERNEL_CLASSES, "conv", ""},
    "where it was never measured, it shares its classes with one that was": lambda entry: (
        entry.is_measured or (entry.operator_class, entry.kernel_class) in MEASURED_CLASSES
    ),
    "it has either products or operations per number": lambda entry: (
        (entry.product is None) == (entry.work.flops is not None)
    ),
    "without products it moves something unless it is a view": lambda entry: (
        not entry.is_layer or entry.product or entry.is_view or sum(entry.element_passes) >= 2
    ),
    "what readers translate to has a first name in PyTorch": lambda entry: (
        entry.torch or not (entry.onnx or entry.chainer)
    ),
}


@pytest.mark.parametrize("rule", SOUND)
def test_every_type_is_sound(rule):
    assert [name for name, entry in OPERATOR_TYPES.items() if not SOUND[rule](entry)] == []


def test_no_framework_name_means_two_types():
    for framework in ("torch", "onnx", "chainer"):
        names = [
            name
            for entry in (*OPERATOR_TYPES.values(), *ACTIVATIONS.values())
            for name in getattr(entry, framework)
        ]
        assert sorted(names) == sorted(set(names)), framework


def test_the_loss_and_the_optimizer_are_no_layers_and_a_view_has_no_class():
    assert {*OPERATOR_TYPES} - {*LAYER_TYPES} == {"loss", "optimizer"}
    assert {*OPERATOR_TYPES} - {*OPERATOR_CLASSES} == {"flatten"}
