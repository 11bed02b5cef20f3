"""What no answer is given to: each call with its options, the error, and words that name the value or the next step."""

import math
from dataclasses import replace

import pytest

from predictor.answers.answer import predict
from predictor.answers.check import Speed, check
from predictor.answers.compare import compare
from predictor.answers.diff import diff
from predictor.answers.explain import explain
from predictor.answers.fit_memory import fit_memory
from predictor.answers.parallel import parallel_ways
from predictor.answers.question import Plan, Question
from predictor.errors import OutOfRangeError, SchemaError, UnknownCnnError, UnknownGpuError

OFTEN = {"spot": True, "interruptions_per_day": 3, "checkpoint_seconds": 60}
L4 = Question("resnet50", "L4", 256, framework="pytorch")
T4 = Question("resnet50", "T4", 64, data_set="imagenet")
VGG = Question("vgg16", "T4", 64)


def ranked(**options):
    plan, question_options = Plan.of(options)
    return compare(Question(question_options.pop("cnn"), ["T4", "H200"], 64, **question_options), plan)


def planned(memory_gib=None, allow=(), plan=None, **options):
    extras = {"memory_gib": memory_gib, "allow": allow, "plan": plan}
    return fit_memory(replace(L4, **options), **{name: value for name, value in extras.items() if value})


PARTS = {"cnn": "resnet50", "gpus": "H200", "batch_sizes": 256, "gradient_accumulation": 4}
TEAM = {"cnn": "resnet50", "gpus": "NVIDIA H200", "batch_sizes": 1024, "data_set": "imagenet", "n_gpus": 8}
ANCHOR = {"gpu": "T4", "batch_size": 8}

# fmt: off
REFUSALS = [
    (predict, {"cnn": "alexnet", "gpus": "T4", "batch_sizes": 64}, [
        ({"batch_sizes": 0}, OutOfRangeError, r"batch_size 0 lies outside 1\.\.65,536"),
        ({"batch_sizes": -4}, OutOfRangeError, r"batch_size -4 lies outside 1\.\.65,536"),
        ({"batch_sizes": 10**6}, OutOfRangeError, r"batch_size 1000000 lies outside"),
        ({"batch_sizes": "many"}, SchemaError, "batch_size 'many' is not a whole number. Give one from 1 to 65,536"),
        ({"batch_sizes": 32.5}, SchemaError, "batch_size 32.5 is not a whole number"),
        ({"batch_sizes": True}, SchemaError, "batch_size True is not a whole number"),
        ({"batch_sizes": math.nan}, SchemaError, "batch_size nan is not a whole number"),
        ({"batch_sizes": "1.000"}, SchemaError, "batch_size '1.000' may mean two things: .* Write 1000"),
        ({"batch_sizes": "1,024"}, SchemaError, "Write 1024 without a comma"),
        ({"batch_sizes": []}, SchemaError, "no batch_size is given"),
        ({"samples": 0}, OutOfRangeError, "samples 0 lies outside"),
        ({"samples": "few"}, SchemaError, "samples 'few' is not a whole number"),
        ({"samples": "1.281.167"}, SchemaError, "samples '1.281.167' may mean two things: .* Write 1281167"),
        ({"samples": 60_001, "data_set": "mnist"}, OutOfRangeError, r"samples 60,001 lies outside 1\.\.60,000"),
        ({"data_set": "imagnet"}, SchemaError, "no known data set is called 'imagnet'. Nearest: 'imagenet'"),
        ({"validation_samples": 10}, SchemaError, "validation_samples 10 needs an epoch"),
        ({"precision": "fp64"}, SchemaError, "precision 'fp64' is not known"),
        ({"precision": "amp_bf16"}, OutOfRangeError, "Tesla T4 .* has no amp_bf16. It has: fp32"),
        ({"image_size": 8}, OutOfRangeError, "image_size 8 is below"),
        ({"image_size": 0}, OutOfRangeError, "image_size 0 lies outside"),
        ({"anchors": [{"gpu": "T4"}]}, SchemaError, "the anchor lacks batch_size"),
        ({"anchors": [ANCHOR]}, SchemaError, "the anchor has 0 times"),
        ({"anchors": [ANCHOR | {"iteration_time_ms": 0}]}, SchemaError,
         "anchor iteration_time_ms 0 is not a positive number. Check its unit"),
        ({"anchors": [ANCHOR | {"epoch_time_s": 9}]}, SchemaError, "epoch_time_s needs samples"),
        ({"gpus": "H2OO"}, UnknownGpuError, r"no GPU is called 'H2OO'. Nearest: .*NVIDIA H"),
        ({"gpus": "V100"}, UnknownGpuError, r"'V100' fits several GPUs.*Tesla V100-SXM2-16GB"),
        ({"cnn": "resnet51"}, UnknownCnnError, r"no CNN is called 'resnet51'. Nearest: 'resnet50'"),
    ]),
    (predict, PARTS, [
        ({"batch_sizes": 254}, OutOfRangeError, "whose 4 parts cannot share it evenly. Nearest: 256"),
        ({"batch_sizes": 260, "n_gpus": 2, "link": "pcie4"}, OutOfRangeError, "on each of 2 GPUs. Nearest: 256"),
        ({"method": "gpu-specs"}, SchemaError, "gradient_accumulation is 4. Leave one of them out"),
        ({"gradient_accumulation": 5000}, OutOfRangeError, "gradient_accumulation 5000 lies outside"),
    ]),
    (predict, TEAM, [
        ({"n_gpus": 0}, OutOfRangeError, "n_gpus 0 lies outside"),
        ({"nodes": 0}, OutOfRangeError, "nodes 0 lies outside"),
        ({"nodes": 3, "link": "efa_100g"}, OutOfRangeError, "n_gpus 8 cannot be spread evenly over nodes 3"),
        ({"n_gpus": 3}, OutOfRangeError, "batch_size 1024 is that of all GPUs.*Nearest: 1023"),
        ({"n_gpus": 16}, OutOfRangeError, "no offer of NVIDIA H200 has more than 8 GPUs"),
        ({"link": "nvlink44"}, SchemaError, "no link between GPUs of one machine is called 'nvlink44'"),
        ({"link": "efa_100g"}, SchemaError, "no link between GPUs"),
        ({"nodes": 2}, SchemaError, "pass link, what joins the machines"),
        ({"n_gpus": 1, "link": "nvlink4"}, SchemaError, "n_gpus is 1"),
        ({"n_gpus": 1, "sync_batch_norm": True}, SchemaError, "n_gpus is 1"),
        ({"gpus": "cpu:AMD EPYC", "link": "pcie3"}, SchemaError, "is a CPU"),
    ]),
    (ranked, {"cnn": "resnet18", "samples": 10**6}, [
        ({"samples": None}, SchemaError, "needs the samples of an epoch"),
        ({"cnn": ["resnet18", "alexnet"]}, SchemaError, "compare ranks GPUs for one CNN"),
        ({"rank_by": "beauty"}, SchemaError, "rank_by 'beauty' is not known. Nearest: "),
        ({"epochs": 0}, OutOfRangeError, "epochs 0 lies outside"),
        ({"budget_usd": -1}, SchemaError, "budget_usd -1 is not a positive number"),
        ({"deadline_h": "soon"}, SchemaError, "deadline_h 'soon' is not a number"),
        ({"deadline_h": "1m"}, SchemaError, "nor one with a unit: 90min"),
        ({"setup_minutes": -5}, SchemaError, "setup_minutes -5 is not a positive number"),
        ({"spot": True, "interruptions_per_day": 3}, SchemaError, "checkpoint_seconds is missing"),
        ({"spot": True, "checkpoint_minutes": 3}, SchemaError, "interruptions_per_day is missing"),
        (OFTEN | {"checkpoint_minutes": 6000}, OutOfRangeError, "checkpoint_minutes: 6,001 minutes"),
        (OFTEN | {"setup_minutes": 6000}, OutOfRangeError, "setup_minutes: 6,000 minutes"),
        (OFTEN | {"spot": False}, SchemaError, "Pass spot, too"),
        *((options, (SchemaError, OutOfRangeError), "n_gpus")
          for options in ({"link": "nvlink4"}, {"sync_batch_norm": True}, {"nodes": 2})),
    ]),
    (Plan, {}, [
        *(({"deadline_h": text}, SchemaError, "deadline_h")
          for text in ("soon", "2 fortnights", "1:30", "1m", "-3h", "0h", "h")),
        *(({"budget_usd": text}, SchemaError, "budget_usd") for text in ("100 EUR", "1,50", "$")),
    ]),
    (lambda **options: explain(Question(**options)), {"cnn": "resnet50", "gpus": "H200", "batch_sizes": 8}, [
        ({"cnn": "resnet5"}, UnknownCnnError, "Nearest: 'resnet50'"),
        ({"gpus": "H2O0"}, UnknownGpuError, "Nearest: 'NVIDIA H200'"),
        ({"gpus": "T4", "precision": "tf32"}, OutOfRangeError, "It has: fp32"),
        ({"batch_sizes": 0}, OutOfRangeError, "batch_size 0 lies outside"),
        ({"memory_format": "nhcw"}, SchemaError, "known: nchw, channels_last"),
        ({"samples": 50_001, "data_set": "cifar10"}, OutOfRangeError, "Pass fewer"),
        ({"method": "guess"}, SchemaError, "method 'guess' is not known"),
    ]),
    (planned, {}, [
        ({"batch_sizes": None}, SchemaError, "batch_size is missing"),
        ({"batch_sizes": [1, 2]}, SchemaError, "batch_size is missing"),
        ({"framework": "chainer"}, SchemaError, "framework 'chainer'"),
        ({"cnn": ["resnet18", "resnet50"]}, SchemaError, "one CNN"),
        ({"capture": "compile"}, SchemaError, "eager training"),
        ({"anchors": [{"gpu": "L4", "batch_size": 256, "iteration_time_ms": 500}]}, SchemaError, "one way to train"),
        ({"allow": ["optimiser"]}, SchemaError, "Nearest: 'optimizer'"),
        ({"memory_gib": -1}, SchemaError, "memory_gib -1"),
        ({"plan": Plan(all_offers=True)}, SchemaError, "all_offers has no effect"),
    ]),
    (lambda **options: parallel_ways(Question("vgg_cifar", "T4", **options)), {"batch_sizes": 256}, [
        ({"n_gpus": 1}, SchemaError, "Pass 2 or more"),
        ({"n_gpus": 3}, OutOfRangeError, "Nearest: 255"),
    ]),
    (Speed, {}, [
        ({}, SchemaError, "no speed is given"),
        ({"images_per_s": 1, "iteration_time_ms": 1}, SchemaError, "are given"),
        ({"images_per_s": -1}, SchemaError, "-1"),
    ]),
    (lambda **options: check(replace(T4, **options), Speed(epoch_time_s=100)), {}, [
        ({"batch_sizes": [32, 64]}, SchemaError, "asks about 2"),
        ({"gpus": ["T4", "H200"]}, SchemaError, "asks about 2"),
        ({"data_set": None}, SchemaError, "needs the samples"),
    ]),
    (lambda **options: diff(replace(VGG, **options), VGG), {}, [
        ({"cnn": ["vgg16", "vgg13"]}, SchemaError, "Give one before"),
    ]),
    (lambda **options: Question("resnet50", "T4", 64, **options), {}, [
        ({"region": "france2"}, SchemaError, "Nearest: 'france'"),
        ({"region": "mexico"}, SchemaError, "several: northamerica-south1, MEX"),
    ]),
]
# fmt: on


@pytest.mark.parametrize(
    ("call", "options", "error", "words"),
    [(call, usual | row[0], *row[1:]) for call, usual, rows in REFUSALS for row in rows],
)
def test_what_cannot_be_answered_is_refused_with_what_is_wrong_or_next(call, options, error, words):
    with pytest.raises(error, match=words):
        call(**options)
