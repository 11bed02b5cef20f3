"""Arguments of a wrong type from Python: the message names the argument, the value and what it takes."""

import pytest

import epochcast
from predictor.errors import EpochcastError

GPU = r"gpu is None, and takes a name such as 'H100 SXM', 'all', or a list of names; `epochcast gpu list`"
CNN = r"cnn is None, which is not a CNN. Give a zoo name \(`epochcast cnn list`\)"
SPEED = {"iteration_time_ms": 9}


@pytest.mark.parametrize(
    ("function", "arguments", "options", "message"),
    [
        ("predict", ("resnet18", None, 8), {}, GPU),
        ("predict", ("resnet18", [None], 8), {}, GPU),
        ("predict", ("resnet18", 5, 8), {}, "gpu is 5, and takes a name"),
        ("predict", ("resnet18", {}, 8), {}, "gpu is of type dict, and takes a name"),
        ("predict", (None, "T4", 8), {}, CNN),
        ("predict", ([], "T4", 8), {}, "no CNN is given. Pass a name"),
        ("predict", ("resnet18", "T4", [None]), {}, "batch_size None is not a whole number"),
        ("predict", ("resnet18", "T4", 8), {"measurements": 5}, "measurements is 5, and takes a path"),
        ("predict", ("resnet18", "T4", 8), {"model": True}, "model is True, and takes a path"),
        ("predict", ("resnet18", "T4", 8), {"anchors": 5}, "anchors is 5, and takes a list"),
        (
            "predict",
            ("resnet18", "T4", 8),
            {"anchors": [5]},
            r"anchors is 5, .* \[{'gpu': 'T4', 'batch_size'",
        ),
        ("predict", ("resnet18", "T4", 8), {"anchors": "x"}, "anchors is of type str, and takes a list"),
        ("predict", ("resnet18", "T4", 8), {"anchors": {"gpu": "T4"}}, "the anchor lacks batch_size"),
        ("predict", ("resnet18", "T4", 8), {"measurements": [{"gpu": "T4"}]}, "measurements is of type list"),
        (
            "predict",
            ("resnet18", "T4", 8),
            {"samples": 9, "offers": ["x"]},
            "offers is of type str, and takes",
        ),
        ("compare", (None,), {"samples": 9}, CNN),
        ("compare", ([],), {"samples": 9}, "no CNN is given. Pass a name"),
        ("largest_batch_size", ("resnet18", None), {}, GPU),
        ("explain", (None, "T4"), {}, CNN),
        ("explain", ("resnet18", None), {}, "gpu is missing. Give a name"),
        ("check", ("resnet18", None, 8), SPEED, GPU),
        ("check", ("resnet18", "T4", None), SPEED, "batch_size is missing"),
        ("check", ("resnet18", "T4", 8), {"log": 5}, "log is 5, and takes the path"),
        ("check", ("resnet18", "T4", 8), {**SPEED, "epochs": None}, "epochs None is not a whole number"),
        ("fit_memory", (None, "T4", 8), {"samples": 9}, CNN),
        ("diff", ("vgg16", None, "T4", 8), {}, CNN),
        ("diff", ("vgg16", "vgg16_bn", None, 8), {}, GPU),
        ("parallel_ways", ("resnet18", "T4", None), {"n_gpus": 2}, "batch_size is missing"),
        ("load_measurements", (None,), {}, "path is None, and takes the path of a table"),
        ("feature_table", (5,), {}, "measurements is 5, and takes a table"),
        ("fit", ([5],), {}, "measurements is 5, and takes a table"),
        ("record", (None,), {}, "record takes a function that does one training step"),
        ("fit", ([],), {}, "no measurements are given. Pass a table"),
        ("watch", ([],), {"cnn": "resnet18"}, "cnn is no option here: the CNN is the model"),
        ("trainer_callback", (), {"batch_size": 8}, "batch_size is no option here"),
        ("watch", ([],), {"epochs": "x"}, "epochs 'x' is not a whole number"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named_with_what_it_takes(function, arguments, options, message):
    with pytest.raises(EpochcastError, match=message):
        getattr(epochcast, function)(*arguments, **options)
