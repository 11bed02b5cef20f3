"""A user's own CNN on the command line: ``FILE.py:make_model[@SIZE]`` becomes a layer table before anyone is asked.

The file is Python code and is run here, at the machine of whoever names it: the core and a service never see
more than its layers.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from predictor.answers.question import Question

if TYPE_CHECKING:
    from predictor.cnns.layer_table import LayerTable

__all__ = ["cnn_or_layers", "cnns_or_layers"]


def cnn_or_layers(cnn: str, options: Mapping[str, Any]) -> "str | LayerTable":
    """The layers of a CNN that a Python file makes; every other text as it is.

    Its images are as large as the text says after @, or `image_size` of the options, or those of the data set, or 224
    pixels.

    Raises
    ------
    SchemaError
        If there is no such file or function, it does not run, or two image sizes are given.
    BackendUnavailableError
        If it needs PyTorch or Chainer, and that is not installed.
    UnknownDataSetError
        If the data set is not known.
    """
    from proxy_cnns.user_cnns import named_table, names_a_file

    if not names_a_file(cnn):
        return cnn
    image_size = options.get("image_size")
    if image_size is None and "@" not in cnn:
        image_size = Question(None, None, 1, data_set=options.get("data_set")).image_size_of(None)
    return named_table(cnn, image_size)


def cnns_or_layers(cnns: Iterable[str] | None, options: Mapping[str, Any]) -> "list[str | LayerTable]":
    """Each as `cnn_or_layers`."""
    return [cnn_or_layers(cnn, options) for cnn in cnns or ()]
