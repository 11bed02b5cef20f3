"""`--server` prints what a service answers, which is what the command itself answers."""

import pytest


@pytest.mark.parametrize(
    "line",
    [
        "predict resnet50 vgg11 -g T4 -g H200 -b 32,64 --dataset imagenet",
        "predict resnet50 -g T4 -b 8 --anchor-gpu T4 --anchor-batch-size 8 --anchor-throughput 90 --format json",
        "predict resnet50 -g all -b 8 --format csv",
        "compare resnet50 -b 64 --dataset imagenet --epochs 90 --budget 100 --relative-to T4",
        "compare vgg11 -b 64 -g T4 -g V100-SXM2-16GB --samples 50000 --rank-by time --format json",
        "explain resnet50 -g H200 --precision tf32 --dataset imagenet",
        "explain resnet50 vgg11 -g T4 -g H200 -b 8,64 --format csv",
        "explain lenet5 -g T4 --format json",
    ],
)
def test_the_output_is_the_same_with_and_without_a_server(epochcast, url, line):
    assert epochcast(*line.split(), "--server", url) == epochcast(*line.split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("predict resnet50 -g H2O0 -b 8", "no GPU is called 'H2O0'. Nearest"),
        ("predict resnet50 -g T4 -b 8 --model m.json", "model cannot be sent to a service"),
        ("compare resnet50 -b 8", "compare needs the samples of an epoch"),
        ("explain resnet50 -g H2O0", "no GPU is called 'H2O0'. Nearest"),
        ("explain resnet50", "no GPU is given"),
        ("explain resnet50 -g T4 --model m.json", "model cannot be sent to a service"),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_2(epochcast, url, line, words):
    run = epochcast(*line.split(), "--server", url)
    assert run.code == 2
    assert words in run.err


def test_an_address_of_no_service_is_one_line_and_exit_code_2(epochcast):
    assert (
        "is not the address of a service"
        in epochcast("predict", "resnet50", "-g", "T4", "-b", "8", "--server", "x").err
    )
