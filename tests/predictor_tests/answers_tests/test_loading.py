"""Loading in answers: counted where asked for, and in comparisons of JPEG data sets by the vCPUs of an offer."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from case_tables import each_row

from predictor.answers.answer import answer, predict
from predictor.answers.compare import compare
from predictor.answers.question import Plan, Question
from predictor.catalogue.offers import Offer, load_offers
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import SchemaError
from predictor.measurements.inputs import InputMeasurement, WorkerRate, write_input
from predictor.models.compiled import compile_seconds
from predictor.models.epoch_start import first_image_s, start_factor
from predictor.models.input_pipeline import host_beside_workers, workers_start_s
from predictor.models.ratios import ratios_of

IMAGENET = {"data_set": "imagenet", "precision": "amp_fp16"}


def one(cnn="resnet50", gpu="H100 SXM", batch_size=256, **options):
    [row] = predict(cnn, gpu, batch_size, **IMAGENET | options)
    return row


def offer(vcpus, gpu_count=1.0, **more):
    box = "lab", f"box-{vcpus}", "NVIDIA H100 80GB HBM3", gpu_count, 5.0, vcpus
    return Offer(*box, link="nvlink4", **more)


def compared(plan=None, **options):
    published = {"cnn": "resnet50", "gpus": "H100 SXM", "batch_sizes": 256} | IMAGENET | options
    return compare(Question(**published), plan)


def best(plan=None, **options):
    return compared(plan, **options).rows[0]


def test_tensorflow_waits_for_the_copy_of_images_that_are_loaded_and_none_is_of_synthetic_ones():
    of = {"framework": "tensorflow", "precision": "fp32"}
    synthetic, loaded = one(**of), one(**of, loader="1e6/machine")
    megabytes = 256 * 3 * 224 * 224 * 4 / 1e6
    assert 0.1 < (loaded.training_time_ms - synthetic.training_time_ms) / megabytes < 0.4
    assert one(**of, loader="none").training_time_ms == synthetic.training_time_ms
    assert one(loader="1e6/machine").training_time_ms == one().training_time_ms  # PyTorch copies beside it
    assert best(**of).training_time_ms == pytest.approx(loaded.training_time_ms)  # JPEGs are loaded unasked
    assert best(**of, loader="none").training_time_ms == pytest.approx(synthetic.training_time_ms)


def test_too_few_workers_bound_an_epoch_and_the_named_number_frees_it():
    few = one(workers=2)
    assert few.bottleneck == "loading"
    assert few.iteration_time_ms == few.loading_time_ms > few.training_time_ms
    enough = one(workers=few.workers_needed)
    assert (enough.iteration_time_ms, enough.bottleneck != "loading") == (one().iteration_time_ms, True)
    assert one(workers=few.workers_needed - 1).bottleneck == "loading"


def test_epoch_cost_and_throughput_follow_the_slower_one():
    options = {"samples": 25_600, "data_set": None, "workers": 1, "loader": "256.0/worker"}
    without, validated = (one(**options, validation_samples=n).epoch_time_s for n in (0, 2_560))
    assert validated - without == pytest.approx(10 * 1.0 + 1.0 + workers_start_s())
    few, free = one(workers=2), one()
    ratio = few.iteration_time_ms / free.iteration_time_ms
    assert few.epoch_time_s / free.epoch_time_s == pytest.approx(ratio, rel=1e-3)
    assert few.cost_usd / few.epoch_time_s == pytest.approx(free.cost_usd / free.epoch_time_s)
    assert few.throughput_samples_per_s * ratio == pytest.approx(free.throughput_samples_per_s)


@each_row
def test_rates_are_those_of_a_worker_or_of_a_machine(options, images_per_s, workers_needed):
    row = one(**options)
    assert (row.bottleneck, row.loading_time_ms) == ("loading", pytest.approx(256_000 / images_per_s))
    needed = 256 / row.training_time_ms * 1000 / 64
    assert row.workers_needed == (pytest.approx(needed, abs=1) if workers_needed else None)


def test_rates_of_a_machine_hold_in_a_comparison():
    [row] = compared(loader="2560.0/machine", offers=(offer(None),)).rows
    assert row.loading_time_ms == pytest.approx(100.0)
    workers = {"workers": "6/machine", "loader": "64.0/worker"}
    assert best(**workers, offers=(offer(2),)).loading_time_ms > one(**workers).loading_time_ms
    assert one(loader="1e5/machine").bottleneck == "gpu"
    row = one(cnn="alexnet", batch_size=1024, workers=64, data_source="nfs")
    assert (row.bottleneck, row.workers_needed) == ("reading", None)  # no worker can help a network drive
    assert best(offers=(offer(None),), workers=2).bottleneck == "loading"  # of vCPUs that are not known


def measured_input(where, *rates, vcpus=4, image_size=224, megapixels=0.19, **more):
    path = where / "input.json"
    published, more = tuple(WorkerRate(*rate) for rate in rates), {"folder": "/images"} | more
    columns = vcpus, "pillow", image_size, 200, 0.1, megapixels, published
    write_input(InputMeasurement("a host", *columns, **more), path)
    return str(path)


def images_per_s(row):
    return pytest.approx(1000 * row.local_batch_size / row.loading_time_ms)


UP_TO_4 = ((1, 50.0), (2, 70.0), (4, 160.0))
WITH_NONE = ((0, 45.0), *UP_TO_4)
RATES = {0: 45, 1: 50, 2: 70, 3: 112.5, 4: 160, 16: 160}
OF_TWO = {0: 35, 1: 35, 2: 80, 8: 80}


@pytest.mark.parametrize(
    ("ask", "rates", "options", "rate"),
    [
        *((one, WITH_NONE, {"workers": n}, rate) for n, rate in RATES.items()),
        (one, WITH_NONE, {"offers": (offer(8.0),)}, 8 * 40),
        (one, UP_TO_4[:1], {"workers": 4}, 200),  # one worker says nothing of several together
        *((one, UP_TO_4, {"workers": n, "n_gpus": 2}, rate) for n, rate in OF_TWO.items()),
        (one, ((1, 100.0), (8, 480.0)), {"workers": "8/machine", "n_gpus": 4, "batch_size": 1024}, 120),
        *((best, UP_TO_4, {"workers": n, "offers": (offer(64.0),)}, RATES[n]) for n in (1, 3, 4)),
        (best, UP_TO_4, {"workers": 4, "offers": (offer(2.0),)}, 80),  # its two vCPUs are busy
        (best, ((1, 200.0), (4, 640.0)), {"workers": 4, "offers": (offer(4.0),)}, 640),  # all were measured
        (best, ((1, 200.0), (2, 390.0)), {"workers": 4, "offers": (offer(4.0),)}, 0.6 * 4 * 200),
    ],
)
def test_a_measured_machine_answers_by_the_rates_of_its_workers(tmp_path, ask, rates, options, rate):
    vcpus = max(4, rates[-1][0])
    assert images_per_s(ask(**options, loader=measured_input(tmp_path, *rates, vcpus=vcpus))) == rate


def test_a_folder_unlike_the_data_set_widens_the_interval_to_what_that_takes(tmp_path):
    def answered(mean_megapixels, folder):
        path = measured_input(tmp_path, (1, 50.0), (4, 160.0), megapixels=mean_megapixels, folder=folder)
        row = one(workers=4, loader=path, data_set="imagenet_160", image_size=128)
        return row.loading_low_ms, row.loading_time_ms, row.loading_high_ms

    made, own, alike = answered(0.19, None), answered(0.19, "mine"), answered(0.034, "mine")
    assert made[2] / made[1] == pytest.approx(1.15)
    assert own[1] > 1.3 * made[1]
    assert own[0] < made[1]
    assert alike[2] / alike[1] == pytest.approx(1.15, rel=0.05)


def test_the_workers_needed_are_those_that_were_measured_fast_enough(tmp_path):
    path = measured_input(tmp_path, (1, 2000.0), (2, 2100.0), (8, 6000.0), vcpus=8)
    needed = one(workers=1, loader=path).workers_needed
    assert one(workers=needed, loader=path).bottleneck != "loading"
    assert one(workers=needed - 1, loader=path).bottleneck == "loading"
    slow = one(workers=1, loader=measured_input(tmp_path, (1, 50.0), (2, 70.0)))
    assert (slow.bottleneck, slow.workers_needed) == ("loading", None)
    busy, idle = (  # beyond those measured they may be faster where vCPUs were idle
        one(workers=8, loader=measured_input(tmp_path, (1, 50.0), (2, 90.0), vcpus=vcpus)) for vcpus in (2, 8)
    )
    assert (idle.loading_time_ms, idle.loading_high_ms) == (busy.loading_time_ms, busy.loading_high_ms)
    assert busy.loading_low_ms == pytest.approx(4 * idle.loading_low_ms)


def test_the_scope_says_what_was_counted(tmp_path):
    rates = measured_input(tmp_path, (1, 198.0), (2, 224.0), vcpus=2)
    measured_words = "224 images/s for each GPU as measured on a host with up to 2 workers"
    for options, words in (
        ({"workers": 2, "loader": rates}, measured_words),
        ({"loader": "500.0/machine"}, "500 images/s on each machine as given"),
    ):
        assert words in answer(Question("resnet50", "H100 SXM", 256, **IMAGENET, **options)).scope
    for options, words in (
        ({"samples": 10_000}, "An epoch is 10,000 of the 1,281,167 images of imagenet."),
        ({"loader": "none"}, "data loading is excluded"),
    ):
        assert words in compared(**options).scope
        assert words not in compared().scope


@each_row
def test_what_cannot_be_answered_names_the_next_step(options, message):
    with pytest.raises(SchemaError, match=message):
        one(**options)


def test_96_vcpus_cannot_feed_eight_h100s_in_amp():
    offers = [rented for rented in load_offers() if rented.instance == "Standard_ND96isr_H100_v5"]
    mode = {"precision": "amp_bf16", "memory_format": "channels_last"}
    answered = compared(n_gpus=8, batch_sizes=2048, offers=offers, **mode)
    row = answered.rows[0]
    assert (row.vcpus, row.bottleneck) == (96, "loading")
    assert row.workers_needed * 8 > 96
    [hint] = loading_hints(answered)
    assert f"needs {row.workers_needed * 8} vCPUs, not 96." in hint


def loading_hints(answered):
    return [note.text for note in answered.verdict.hints if re.search("images/s|vCPUs, not", note.text)]


def test_a_hint_asks_for_workers_only_where_the_machine_has_vcpus_for_them():
    [few] = loading_hints(compared(offers=(offer(16.0),), workers=1, loader="500.0/worker"))
    assert int(re.search(r"needs (\d+) workers: ", few)[1]) <= 16
    [bound] = loading_hints(compared(offers=(offer(2.0),)))
    assert int(re.search(r"needs (\d+) vCPUs, ", bound)[1]) > 2
    [hint] = loading_hints(compared(offers=(offer(2.0),), loader="50.0/machine"))
    assert hint.count(":") == 0  # no number of workers helps
    boxes = offer(4.0), replace(offer(64.0), usd_per_hour=5.5)  # more vCPUs rank first of equal GPUs
    offers = [best(offers=boxes, loader=loader).offer for loader in (None, "none")]
    assert offers == ["lab box-64.0", "lab box-4.0"]


@pytest.mark.parametrize(
    ("ask", "options"),
    [
        (one, {}),  # a prediction counts no loading unless asked
        (best, {"offers": (offer(4.0),), "loader": "none"}),
        (best, {"offers": (offer(1.0),), "data_set": "cifar10", "cnn": "resnet18_cifar"}),  # arrays in memory
        (best, {"offers": (offer(1.0),), "data_set": None, "samples": 50_000}),
    ],
)
def test_where_no_loading_is_counted_the_times_are_those_of_training_alone(ask, options):
    row = ask(**options)
    assert row.loading_time_ms is row.workers_needed is None
    assert row.iteration_time_ms == row.training_time_ms


@pytest.mark.parametrize("ask", [one, best])
def test_unknown_vcpus_are_16_for_each_gpu_within_a_factor_of_4(ask):
    few, unknown, usual, many = (
        ask(offers=(offer(vcpus),), loader="torchvision") for vcpus in (4.0, None, 16.0, 64.0)
    )
    assert unknown.loading_time_ms == usual.loading_time_ms
    assert unknown.loading_high_ms > few.loading_time_ms > usual.loading_high_ms
    assert unknown.loading_low_ms < many.loading_time_ms < usual.loading_low_ms


def test_workers_are_bound_by_the_vcpus_of_an_offer_and_faster_where_most_of_them_are_idle():
    few, all_, half, quarter = (
        best(offers=(offer(vcpus),), workers=16).loading_time_ms for vcpus in (4.0, 16.0, 32.0, 64.0)
    )
    assert few > one(workers=16).loading_time_ms > half
    assert (half, quarter) == (pytest.approx(0.6**0.5 * all_), pytest.approx(0.6**0.75 * all_))
    both = best(n_gpus=2, batch_sizes=512, offers=(offer(64.0, 2.0),), workers=16).loading_time_ms
    assert both == pytest.approx(half)


def test_a_file_of_decoded_images_does_not_answer_for_arrays(tmp_path):
    path = measured_input(tmp_path, (1, 200.0))
    with pytest.raises(SchemaError, match=r"stored as jpeg, and cifar10.* input --arrays --image-size 32"):
        one(data_set="cifar10", cnn="resnet18_cifar", workers=2, loader=path)
    arrays = measured_input(tmp_path, (1, 4000.0), (8, 24000.0), stored="array", image_size=32)
    at_32, at_96 = (HOST_BOUND | {"loader": arrays, "image_size": side} for side in (32, 96))
    assert images_per_s(one(**at_32, workers=8)) == 24000
    assert images_per_s(one(**at_96, workers=8)) == pytest.approx(12000, rel=0.01)


def test_made_images_answer_for_others_by_what_their_sizes_take(tmp_path):
    made = measured_input(tmp_path, (1, 200.0), (8, 1600.0), folder=None)
    asked_of = {"cnn": "resnet18", "workers": 8}
    own, *smaller = (
        [images_per_s(one(data_set=name, loader=path, **asked_of)).expected for path in (made, None)]
        for name in ("imagenet", "imagenet_256", "imagenet_160")
    )
    assert own[0] == pytest.approx(1600, rel=0.05)
    for measured, published in smaller:
        assert measured / own[0] == pytest.approx(published / own[1])


def test_grey_images_are_neither_cropped_nor_flipped():
    options = {"cnn": "lenet5", "image_size": 28, "workers": 2}
    grey, colour = (one(data_set=name, **options) for name in ("mnist", "cifar10"))
    assert grey.loading_time_ms < 0.6 * colour.loading_time_ms


def test_what_mixed_precision_saves_is_bound_by_loading_too():
    bound, free = (best(offers=(offer(8.0),), precision=None, loader=loader) for loader in (None, "none"))
    assert (bound.fast_bottleneck, free.fast_bottleneck != "loading") == ("loading", True)
    assert bound.fast_ratio > free.fast_ratio
    of_part, of_set = (best(offers=(offer(8.0),), samples=samples) for samples in (128_128, None))
    assert of_part.loading_time_ms == of_set.loading_time_ms  # a part of a data set loads as the whole
    assert of_part.epoch_time_s == pytest.approx(of_set.epoch_time_s * 128_128 / 1_281_167, rel=0.03)


@each_row
def test_data_beyond_memory_and_disk_are_named(memory_gib, disk_gb, samples, exceeds):
    answered = compared(offers=(offer(64.0, memory_gib=memory_gib, disk_gb=disk_gb),), samples=samples)
    assert answered.rows[0].data_exceeds == tuple(exceeds)
    hints = [note.text for note in answered.verdict.hints if "exceeds this machine's memory" in note.text]
    assert bool(hints) == ("memory" in exceeds)


HOST_BOUND = {"cnn": "vgg_cifar", "batch_size": 32, "data_set": "cifar10", "precision": "tf32"}


def test_the_host_is_slower_beside_workers_but_not_where_the_training_process_loads():
    alone, beside = one(**HOST_BOUND), one(**HOST_BOUND, workers=8)
    assert (alone.bottleneck, beside.bottleneck) == ("host", "host")
    assert beside.training_time_ms == alone.iteration_time_ms
    assert beside.iteration_time_ms == pytest.approx(host_beside_workers() * beside.host_time_ms)
    between = one(**HOST_BOUND, workers=0)
    assert between.iteration_time_ms == pytest.approx(alone.iteration_time_ms + between.loading_time_ms)
    resident = one(**HOST_BOUND, loader="none")  # images on the GPU, without a wait or a slowed host
    assert resident.iteration_time_ms == resident.training_time_ms == beside.training_time_ms
    seconds = resident.iterations_per_epoch * resident.iteration_time_ms / 1000
    assert beside.epoch_time_s > seconds == pytest.approx(resident.epoch_time_s, rel=0.01)
    assert resident.start_s == beside.start_s


def test_arrays_are_loaded_slower_the_more_bytes_pass_through_shared_memory():
    for image_size, rate in ((32, 2652), (96, 1326)):
        loaded = images_per_s(one(**HOST_BOUND, image_size=image_size, workers=8)).expected
        assert loaded / 8 == pytest.approx(rate, abs=1)


@each_row
def test_the_start_is_that_of_first_calls_images_workers_and_compiling(options, jpegs, compilations):
    seconds, cnn = ratios_of("start"), zoo_cnn("resnet50")
    start_s = seconds["first_calls_s"] + 256 * first_image_s(cnn) + jpegs * seconds["jpeg_s"]
    start_s += compilations * compile_seconds(cnn)
    row = one(**options)
    assert row.start_s == pytest.approx(start_s)
    assert row.start_low_s == pytest.approx(row.start_s / start_factor())
    assert row.start_high_s == pytest.approx(row.start_s * start_factor())
    assert one(workers=16, framework="chainer", precision="fp32").start_s is None  # nobody knows it


def test_every_epoch_and_validation_pass_waits_for_workers_and_their_first_mini_batch():
    few = one(workers=16, samples=64_000)
    many_workers = one(workers=16, samples=128_000)
    wait_s = 2 * few.epoch_time_s - many_workers.epoch_time_s
    assert wait_s == pytest.approx(workers_start_s() + 16 * few.loading_time_ms / 1000)
    validated = one(workers=16, samples=64_000, validation_samples=64)
    forward_s = max(few.training_time_ms / 3, few.loading_time_ms) / 1000
    assert validated.epoch_time_s - few.epoch_time_s == pytest.approx(wait_s + forward_s, rel=0.2)


def test_images_stored_small_are_decoded_and_read_faster_and_train_alike():
    own, small = (one(data_set=name, workers=4, data_source="nfs") for name in ("imagenet", "imagenet_256"))
    assert small.training_time_ms == own.training_time_ms
    assert 1.2 < own.loading_time_ms / small.loading_time_ms < 1.6
    assert small.loading_high_ms / small.loading_time_ms == own.loading_high_ms / own.loading_time_ms


def test_a_training_is_its_epochs_and_one_start():
    nine, one_epoch = (best(Plan(epochs=epochs), offers=(offer(16.0),)) for epochs in (9, 1))
    assert nine.start_s == one_epoch.start_s > 0
    for row in (nine, one_epoch):
        assert 3600 * row.total_time_h == pytest.approx(row.epochs * row.epoch_time_s + row.start_s)
        assert 3600 * row.total_high_h == pytest.approx(row.epochs * row.epoch_high_s + row.start_high_s)


def test_a_validation_pass_waits_for_loading_where_training_does_not():
    options = {"precision": "tf32", "samples": 10_000, "validation_samples": 50_000}
    row, predicted = best(offers=(offer(26.0),), **options), one(workers=26, **options)
    assert row.bottleneck != "loading"
    for name in ("epoch_time_s", "epoch_low_s", "epoch_high_s"):
        assert getattr(row, name) == pytest.approx(getattr(predicted, name))
    assert row.epoch_high_s > best(offers=(offer(200.0),), **options).epoch_high_s


def test_a_run_in_a_table_was_measured_beside_its_loader_as_an_anchor_was():
    run = {"gpu": "NVIDIA H100 80GB HBM3", "cnn": "vgg_cifar", "image_size": 32, "batch_size": 32}
    run |= {"precision": "tf32", "iteration_time_ms": 8.0}
    anchor = {"gpu": "H100 SXM", "batch_size": 32, "iteration_time_ms": 8.0}
    typed = one(**HOST_BOUND, workers=8, anchors=[anchor]).iteration_time_ms
    tables = [pd.DataFrame([run | {"loader_workers": workers}]) for workers in (None, 8, 0)]
    times = [one(**HOST_BOUND, workers=8, measurements=table).iteration_time_ms for table in tables]
    assert times[0] == times[1] == typed == pytest.approx(8.0, rel=1e-3)
    assert times[2] > 1.05 * typed  # measured without workers
    ranked = {name: value for name, value in HOST_BOUND.items() if name != "batch_size"}
    ranked |= {"batch_sizes": 32, "workers": 8}
    assert [best(**ranked, measurements=table).iteration_time_ms for table in tables] == pytest.approx(times)


def test_an_iteration_measured_in_its_loader_is_the_answer_for_as_many_workers():
    waited = {"gpu": "H100 SXM", "batch_size": 256, "iteration_time_ms": 70.0, "workers": 8}
    options = {"precision": "amp_bf16", "memory_format": "channels_last", "workers": 8}
    plain, row = one(**options), one(**options, anchors=[waited])
    assert plain.bottleneck == row.bottleneck == "loading"
    assert plain.iteration_time_ms > 1.5 * row.iteration_time_ms
    assert (row.iteration_time_ms, row.loading_time_ms) == (70.0, 70.0)
    assert row.training_time_ms == plain.training_time_ms
    assert row.low_ms < 70.0 < row.high_ms
    elsewhere = one(**options | {"batch_size": 128}, anchors=[waited])
    assert elsewhere.iteration_time_ms == one(**options | {"batch_size": 128}).iteration_time_ms
    for other in ({"workers": 4}, {"workers": None}, {"n_gpus": 2}):
        with pytest.raises(SchemaError, match=r"workers 8: the anchor's time includes waits"):
            one(**options | other, anchors=[waited])


def test_trainings_of_several_gpus_each_share_the_vcpus():
    for trials, n_gpus, gpu_count in ((2, 1, 2.0), (8, 2, 8.0)):
        asked_of = {"offers": (offer(8.0, gpu_count),), "n_gpus": n_gpus, "loader": "torchvision"}
        alone, together = (best(Plan(trials=n), **asked_of).loading_time_ms for n in (1, trials))
        assert together == pytest.approx(gpu_count / n_gpus * alone)


def test_a_named_cpu_loads_as_fast_as_it_enqueues_and_serial_loading_has_a_core_to_itself():
    options = {"cnn": "resnet18", "gpu": "RTX 3090", "batch_size": 64, "data_set": "food101"}
    hosts = None, "Intel Core i9-14900K"
    usual, fast = (one(**options, workers=0, host=host).loading_time_ms for host in hosts)
    assert 2.0 < usual / fast < 2.5
    assert usual / one(**options, workers=1).loading_time_ms == pytest.approx(0.6, abs=0.02)
