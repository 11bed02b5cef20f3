"""Measuring an input pipeline: images of a folder or made here, the steps of each, and rates counted by a clock."""

import itertools
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from predictor.errors import BackendUnavailableError, SchemaError
from proxy_cnns import input_pipeline
from proxy_cnns.input_pipeline import (
    images_of,
    measure_input,
    pipeline_of,
    rate_of,
    usual_workers,
    write_images,
)

pytest.importorskip("PIL", reason="Pillow is not installed: no image is loaded")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three small images in two folders, beside a text."""
    from PIL import Image

    images = tmp_path_factory.mktemp("images")
    for name in ("cat/one.jpg", "cat/two.JPEG", "dog/three.png"):
        (images / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((40, 60, 3), 128, dtype=np.uint8)).save(images / name)
    (images / "cat" / "notes.txt").write_text("no image")
    return images


STEPS = ["RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"]


def step(*arguments):
    return arguments


def ticks():
    """A clock that one second passes on at each look."""
    return map(float, itertools.count()).__next__


@pytest.fixture
def without_torch(monkeypatch):
    for name in ("torch", "torch.utils.data"):
        monkeypatch.setitem(sys.modules, name, None)


def test_images_are_found_in_folders_within_a_folder(folder):
    names = ["one.jpg", "two.JPEG", "three.png"]
    assert [[path.name for path in images_of(folder, most)] for most in (9, 2)] == [names, names[:2]]


def test_made_images_are_about_as_large_as_those_of_imagenet(tmp_path):
    from PIL import Image

    [path] = write_images(tmp_path, 1)
    assert Image.open(path).size == (500, 375)
    assert 80_000 < path.stat().st_size < 140_000


def test_without_torchvision_the_same_steps_are_done_with_pillow_and_numpy(folder):
    [path] = images_of(folder, 1)
    loaded = pipeline_of("pillow", 32).load(path)
    grey = (128 / 255 - np.array(input_pipeline.MEAN)) / np.array(input_pipeline.DEVIATION)
    assert (loaded.shape, loaded.dtype) == ((3, 32, 32), np.float32)
    assert loaded[:, 16, 16] == pytest.approx(grey, abs=0.05)


def test_torchvision_does_the_steps_of_pytorchs_own_example(monkeypatch):
    named = {name: partial(step, name) for name in STEPS}
    transforms = SimpleNamespace(Compose=list, **named)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(transforms=transforms))
    assert [name for name, *_ in pipeline_of("torchvision", 32).augment] == STEPS


def test_torchvision_of_another_build_gives_way_to_pillow(monkeypatch):
    def broken(_size, _stored):
        raise BackendUnavailableError("operator torchvision::nms does not exist")

    monkeypatch.setitem(input_pipeline.PIPELINES, "torchvision", broken)
    assert pipeline_of(None, 224).name == "pillow"


def test_dali_that_is_not_installed_names_the_next_step(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    with pytest.raises(BackendUnavailableError, match="DALI is not installed"):
        measure_input(folder, 32, (1,), "dali", clock=ticks(), cpu_clock=ticks())


def test_a_rate_counts_batches_after_the_first_ones_by_the_clock():
    assert rate_of([7, 7, *[32] * 99], 4.0, ticks(), warm=2) == pytest.approx(32 * 4 / 5)


def test_stages_and_rates_of_a_folder_are_measured(folder, monkeypatch, without_torch):
    monkeypatch.setattr(input_pipeline, "_batches", lambda *_: itertools.repeat(32))
    measured = measure_input(folder, 32, (2, 1, 0), "pillow", 4.0, ticks(), ticks())
    assert [rate.workers for rate in measured.rates] == [0, 1, 2]
    assert [rate.samples_per_s for rate in measured.rates] == pytest.approx([25.6] * 3)
    assert (measured.images, measured.loader, measured.folder) == (3, "pillow", str(folder))
    assert (measured.read_us, measured.decode_us, measured.augment_us) == (1e6, 1e6, 1e6)
    assert measured.mean_megapixels == pytest.approx(0.0024)
    assert 1 in usual_workers()


def test_stages_are_timed_in_one_thread_of_pytorch(torch, folder, monkeypatch):
    monkeypatch.setattr(input_pipeline, "_batches", lambda *_: itertools.repeat(32))
    threads = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    threads_at_reading = []

    def cpu_clock():
        threads_at_reading.append(threads[-1])
        return 0.0

    measure_input(folder, 32, (1,), "pillow", 4.0, ticks(), cpu_clock)
    assert set(threads_at_reading) == {1}
    assert threads == [4, 1, 4]


def test_arrays_of_the_image_size_are_measured_without_decoding(folder, without_torch):
    """A pool's workers load them, where PyTorch is missing."""
    measured = measure_input(folder, 8, (0, 1), "pillow", 1e-9, stored="array")
    assert [rate.workers for rate in measured.rates] == [0, 1]
    assert (measured.stored, measured.images) == ("array", 3)
    assert (measured.mean_mb, measured.mean_megapixels) == (0.000192, 0.000064)
    assert (measured.read_us, measured.decode_us) == (None, None)
    assert measured.augment_us > 0
    with pytest.raises(SchemaError, match="not loaded by dali"):
        measure_input(folder, 8, (1,), "dali", stored="array")


def test_an_array_is_cropped_from_itself_with_a_margin(monkeypatch):
    monkeypatch.setattr(input_pipeline.random, "randrange", lambda _: 8)
    monkeypatch.setattr(input_pipeline.random, "random", lambda: 1.0)
    image = np.full((8, 8, 3), 255, np.uint8)
    loaded = pipeline_of("pillow", 8, "array").load(image)
    black = (0 - np.array(input_pipeline.MEAN)) / np.array(input_pipeline.DEVIATION)
    assert loaded.shape == (3, 8, 8)
    assert loaded[:, 7, 7] == pytest.approx(black, abs=1e-6)  # the last four rows and columns are the margin
    assert loaded[0, 3, 3] > 2


def test_workers_of_pytorch_get_batches_of_the_images(torch, folder, monkeypatch):
    settings = {}

    class Loader:
        def __init__(self, images, batch_size, **how):
            settings.update(how, images=len(images))
            self.batches = ([images[i] for i in range(batch_size)] for _ in itertools.count())

        def __iter__(self):
            return self.batches

    monkeypatch.setattr("torch.utils.data.DataLoader", Loader)
    measure_input(folder, 8, (1,), "pillow", 1e-9)
    assert (settings["num_workers"], settings["images"]) == (1, 10**9)


def test_without_a_gpu_no_copy_is_measured(torch):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert input_pipeline.copy_gb_per_s() is None
