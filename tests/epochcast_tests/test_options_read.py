"""Every option changes the answers that claim to read it, and is refused by all others."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
import pytest
from case_tables import table

import epochcast
from epochcast.torch_device import FirstBatch
from epochcast.watching import Watch
from predictor.answers.answer import answer
from predictor.answers.bulk import ADDED_COLUMNS, checked_defaults, predict_rows
from predictor.answers.compare import compare
from predictor.answers.explain import explain
from predictor.answers.options import ANSWERS, check_read, option, options_of
from predictor.answers.parallel import parallel_ways
from predictor.answers.question import OF_EPOCHS, Plan, Question
from predictor.catalogue.offers import Offer
from predictor.errors import SchemaError
from predictor.models.layer_times.files import LayerModels
from predictor.models.served import Model

CNN, GPU, BATCH = "resnet18", "NVIDIA H200", 64
ROW = {
    **{"gpu": GPU, "cnn": CNN, "image_size": 224, "batch_size": BATCH},
    **{"precision": "tf32", "iteration_time_ms": 60.0},
}
PRICES = (
    Offer("here", "one", GPU, 8, 8.0, vcpus=64, memory_gib=60, link="nvlink4", spot_usd_per_hour=6.0),
    Offer("there", "two", GPU, 8, 9.0, vcpus=64, memory_gib=60, link="pcie5", spot_usd_per_hour=2.0),
)
AT_HOSTS = Offer("many", "three", GPU, 8, 1.0, vcpus=64, memory_gib=60, link="pcie5", marketplace=True)
EPOCH, TEAM, CHAINER = {"samples": 50_000}, {"n_gpus": 4}, {"framework": "chainer"}
LOADED = {"data_set": "imagenet", "workers": 4}
SPOT = {
    **EPOCH,
    **{"offers": PRICES, "spot": True},
    **{"interruptions_per_day": 1.0, "checkpoint_seconds": 20.0, "epochs": 900},
}
NEEDS: dict[str, dict[str, Any]] = {
    "data_set": {"data_set": "imagenet", "workers": 1},
    "samples": {**LOADED, "data_source": "nfs", "offers": PRICES},
    "rank_by": {"samples": 1_281_167},
    "workers": {"data_set": "imagenet"},
    "spot": {**EPOCH, "offers": PRICES},
    "marketplaces": {**EPOCH, "offers": (*PRICES, AT_HOSTS)},
    "provider": {**EPOCH, "offers": PRICES},
    "offer_region": {**EPOCH, "offers": (PRICES[0], replace(PRICES[1], region="moon"))},
    **dict.fromkeys(
        ("validation_samples", "drop_last", "framework_loop", "offers", "usd_per_hour", "region"), EPOCH
    ),
    **dict.fromkeys(("interruptions_per_day", "checkpoint_seconds", "checkpoint_minutes"), SPOT),
    **dict.fromkeys(("nodes", "link", "sync_batch_norm", "parallel"), TEAM),
    **dict.fromkeys(("no_cudnn", "workspace_mib"), CHAINER),
    **dict.fromkeys(("loader", "data_source"), LOADED),
}
"""What an option needs beside it to mean anything."""

EXAMPLES = table(__file__, "a value of every option") | {
    "offers": PRICES[1:],
    "provider": "!here",
    "offer_region": "moon",
    "anchors": [{"gpu": GPU, "batch_size": BATCH, "iteration_time_ms": 60.0}],
    "measurements": pd.DataFrame([ROW]),
    "model": replace(Model.load(), layers=LayerModels()),
}
KNOWN = {**options_of(Question), **options_of(Plan)}


def predicted(options, _folder):
    return epochcast.predict(CNN, GPU, BATCH, **options).to_dict("records")


def compared(options, _folder):
    epoch = {} if {"samples", "data_set"} & set(options) else EPOCH
    return epochcast.compare(CNN, [GPU, "L4"], BATCH, **epoch, **options).to_dict("records")


def in_a_table(options, folder, cells=None):
    rows, answered = folder / "rows.csv", folder / "out.csv"
    row = {"cnn": CNN, "gpu": GPU, "batch_size": BATCH, **(cells or {})}
    pd.DataFrame([row]).to_csv(rows, index=False)
    predict_rows(rows, answered, **options)
    table = pd.read_csv(answered, dtype=str, keep_default_na=False)
    answers = table[list(ADDED_COLUMNS)].to_dict("records")
    assert answers[0]["error"] == "", answers
    return answers


def in_a_cell(options, folder):
    cells = {name: value for name, value in options.items() if "cell" in KNOWN[name].answers}
    return in_a_table({name: value for name, value in options.items() if name not in cells}, folder, cells)


def watched(options, _folder):
    now = iter(range(1000))
    watch = Watch(CNN, n_batches=20, gpu=GPU, options=options, tell=lambda _: None, clock=lambda: next(now))
    watch.first_batch = FirstBatch(BATCH, 3, 224, 224)
    for _ in range(10):
        watch.waits()
        watch.starts()
        watch.ends()
    watch.ends_epoch()
    assert watch.watched.not_predicted is None, watch.watched
    return asdict(watch.watched)


def explained(options, _folder):
    answer = epochcast.explain(CNN, GPU, [BATCH], **options)
    return repr(answer.to_dict("records")) + repr(list(map(asdict, answer.rows)))


def shared(options, _folder):
    return epochcast.parallel_ways(CNN, GPU, BATCH, **{"n_gpus": 2, **options}).to_dict("records")


def largest(options, _folder):
    return epochcast.largest_batch_size(CNN, GPU, **options)


ASK = {
    "predict": predicted,
    "compare": compared,
    "bulk": in_a_table,
    "cell": in_a_cell,
    "watch": watched,
    "explain": explained,
    "parallel": shared,
    "memory": largest,
}


def test_every_answer_and_option_is_walked_and_names_the_answers_that_read_it():
    assert set(ASK) == set(ANSWERS)
    assert set(EXAMPLES) == set(KNOWN)
    with pytest.raises(TypeError, match="answers"):
        option(0.0, "A share.", "number")
    for declared in KNOWN.values():
        assert set(declared.answers) <= set(ANSWERS)
        assert declared.answers


@pytest.mark.parametrize("name", ASK)
def test_an_option_changes_an_answer_or_is_refused_by_it(name, tmp_path):
    ask, wrong, without = ASK[name], [], {}  # answers without the option, by what it needs
    for option_name, declared in KNOWN.items():
        if option_name in options_of(Plan) and name != "compare":
            continue  # no option of a question: refused by its name
        needed = {
            key: value for key, value in NEEDS.get(option_name, {}).items() if name in KNOWN[key].answers
        }
        joined = {"link": "ethernet_25g"} if option_name == "nodes" and name in declared.answers else {}
        values = {**needed, option_name: EXAMPLES[option_name], **joined}
        if name in declared.answers:
            if repr(needed) not in without:
                without[repr(needed)] = repr(ask(needed, tmp_path))
            if without[repr(needed)] == repr(ask(values, tmp_path)):
                wrong.append(f"{name} does not read {option_name}")
        elif name != "cell":
            besides = EPOCH if option_name in OF_EPOCHS else {}
            with pytest.raises(SchemaError, match="has no effect on"):
                ask({option_name: EXAMPLES[option_name], **besides}, tmp_path)
    assert not wrong, "\n".join(wrong)


@dataclass(frozen=True, slots=True)
class Cropped(Question):
    """A question with an option of its own, which one answer reads."""

    crop: float = option(0.0, "Share of an image's side that is cut off.", "number", answers=("predict",))

    def __post_init__(self):
        Question.__post_init__(self)
        object.__setattr__(self, "image_size", round(224 * (1 - self.crop)))


def test_a_new_option_changes_the_answers_that_it_names_and_no_other_takes_it():
    uncropped, half = (Cropped(CNN, GPU, BATCH, samples=1000, crop=share) for share in (0.0, 0.5))
    assert [answer(question).rows()[0].image_size for question in (uncropped, half)] == [224, 112]
    joined = Cropped(CNN, GPU, BATCH, n_gpus=4, crop=0.5)
    for ask, question in ((compare, half), (explain, half), (parallel_ways, joined)):
        with pytest.raises(SchemaError, match="crop has no effect on"):
            ask(question)
    for face in (epochcast.predict, epochcast.compare, epochcast.watch, epochcast.largest_batch_size):
        with pytest.raises(SchemaError, match="no option is called 'crop'"):
            face(CNN, GPU, crop=0.5) if face is not epochcast.watch else face([], CNN, crop=0.5)
    with pytest.raises(SchemaError, match="no option is called 'crop'"):
        checked_defaults({"crop": 0.5})
    for name in set(ANSWERS) - {"predict"}:
        with pytest.raises(SchemaError, match="crop has no effect on"):
            check_read(Cropped(CNN, GPU, BATCH, crop=0.5), name)
