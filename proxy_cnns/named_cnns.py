"""CNNs by the text that presets name them with: ``NAME[@IMAGE_SIZE]`` or ``FILE.py:make_model[@IMAGE_SIZE]``."""

import re
from collections.abc import Sequence

from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.errors import SchemaError
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.user_cnns import builder_of, user_name, user_table
from proxy_cnns.work import Work

__all__ = ["distinct_operators", "named_table", "names_a_file", "target_work"]

_USER_IMAGE_SIZE = 224
_PYTHON_FILE = re.compile(r"\.py(:\w*)?(@[^/\\]*)?")


def target_work(text: str) -> Work:
    """Whole CNN; the user's own is built when it runs, its images 224 pixels unless the text says otherwise."""
    cnn, image_size = _cnn_and_size(text)
    builder = builder_of(cnn)
    if builder is not None:
        return Work("target", user_name(builder), image_size or _USER_IMAGE_SIZE, builder=builder)
    table = named_table(text)
    return Work("target", table.cnn, table.image_size, table)


def names_a_file(text: str) -> bool:
    """Whether it means a user's Python file, ``FILE.py:make_model[@IMAGE_SIZE]``, complete or not."""
    return any(found.end() == len(text) for found in _PYTHON_FILE.finditer(text))


def named_table(text: str, image_size: int | None = None) -> LayerTable:
    """Layer table of ``CNN[@IMAGE_SIZE]``: a name of the zoo, a file, or a user's function.

    `image_size` counts where the text has none; SchemaError if they differ.
    """
    cnn, own_size = _cnn_and_size(text)
    if own_size and image_size not in (None, own_size):
        raise SchemaError(f"{text!r} and image size {image_size} differ. Give one of them.")
    image_size = own_size or image_size
    builder = builder_of(cnn)
    if builder is not None:
        return user_table(builder, image_size or _USER_IMAGE_SIZE)
    return resolve_cnn(cnn, image_size)


def _cnn_and_size(text: str) -> tuple[str, int | None]:
    cnn, at, size = text.strip().rpartition("@")
    if not at or any(mark in size for mark in ("/", "\\", ".")):  # no @, or one in a folder's name
        return text.strip(), None
    if not size.isdecimal() or int(size) < 1:
        raise SchemaError(f"{text!r}: after @ comes the image size in pixels, such as {cnn}@224.")
    return cnn, int(size)


def distinct_operators(tables: Sequence[LayerTable]) -> tuple[Operator, ...]:
    """Operators of all these CNNs, each once."""
    return tuple(dict.fromkeys(operator for table in tables for operator in operators_of(table)))
