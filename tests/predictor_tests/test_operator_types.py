"""The registry of operator types: complete, sound, and the only table of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from predictor.operator_types import ACTIVATIONS, LAYER_TYPES, OPERATOR_CLASSES, OPERATOR_TYPES
from predictor.operators.kernels import KERNEL_CLASSES

ROOT = Path(__file__).parents[2]
PLAIN_WORDS = {
    "add", "other", "loss", "optimizer", "linear", "permute", "mean", "roll", "matmul", "attention",
}  # fmt: skip
TELLING = set(OPERATOR_TYPES) - PLAIN_WORDS
"""Types whose names mean nothing else in the source."""

ALLOWED = (
    "predictor/operator_types.py",
    "predictor/cnns/recorder.py",  # rules for operators whose arguments decide
    "predictor/cnns/onnx_file.py",  # translations of nodes whose attributes decide
    "predictor/cnns/chainer_chain.py",  # translations of functions whose attributes decide
    "predictor/cnns/layer_table.py",  # how the sizes of a type follow from each other
    "predictor/cnns/families",
    "predictor/measurements/published",  # names of types in other people's tables
    "predictor/operators/kernels.py",  # classes of the fitted roofline, some of which share a type's name
    "predictor/models/compiled.py",  # classes of operators, and the types whose bytes its ratios were fitted with
    "predictor/models/layer_times/fit.py",  # types that one card measured and others take over
    "predictor/models/fit.py",  # types that the law was fitted on: a new one in the registry changes no fit
    "predictor/answers",  # classes of operators, some of which share a type's name
    "proxy_cnns/backends",
    "proxy_cnns/designs.py",  # one draw of shapes for each type
    "proxy_cnns/trainings.py",  # shapes of types that the zoo lacks
)


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
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in ("predictor", "proxy_cnns", "api", "epochcast")
        for path in sorted((ROOT / package).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(ALLOWED)
        for line in tables_naming_types(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_table_of_types_would_be_found():
    assert list(tables_naming_types('NORMS = ("batch_norm", "layer_norm")')) == [1]
    assert list(tables_naming_types('PASSES = {"group_norm": 8, "max_pool": 5}')) == [1]


def test_every_type_has_kernels_of_a_known_class():
    families = {*KERNEL_CLASSES, "conv", ""}
    assert {
        name: e.kernel_class for name, e in OPERATOR_TYPES.items() if e.kernel_class not in families
    } == {}


def test_a_type_that_was_never_measured_shares_its_classes_with_one_that_was():
    measured = [entry for entry in OPERATOR_TYPES.values() if entry.is_measured]
    classes = {(entry.operator_class, entry.kernel_class) for entry in measured}
    alone = [
        name
        for name, entry in OPERATOR_TYPES.items()
        if not entry.is_measured and (entry.operator_class, entry.kernel_class) not in classes
    ]
    assert alone == []


def test_a_type_has_either_products_or_operations_per_number():
    wrong = [name for name, e in OPERATOR_TYPES.items() if (e.product is None) == (e.work.flops is None)]
    assert wrong == []


def test_a_type_without_products_moves_something_unless_it_is_a_view():
    wrong = [
        name
        for name, entry in OPERATOR_TYPES.items()
        if entry.is_layer and not entry.product and not entry.is_view and sum(entry.element_passes) < 2
    ]
    assert wrong == []


def test_no_framework_name_means_two_types():
    for framework in ("torch", "onnx", "chainer"):
        names = [
            name
            for entry in (*OPERATOR_TYPES.values(), *ACTIVATIONS.values())
            for name in getattr(entry, framework)
        ]
        assert sorted(names) == sorted(set(names)), framework


def test_what_readers_translate_to_has_a_first_name_in_pytorch():
    without = [name for name, e in OPERATOR_TYPES.items() if (e.onnx or e.chainer) and not e.torch]
    assert without == []


def test_the_loss_and_the_optimizer_are_no_layers_and_a_view_has_no_class():
    assert {*OPERATOR_TYPES} - {*LAYER_TYPES} == {"loss", "optimizer"}
    assert {*OPERATOR_TYPES} - {*OPERATOR_CLASSES} == {"flatten"}
