"""Known data sets are found by name, and have the sizes that their papers state."""

import pytest

from predictor.catalogue.data_sets import TrainingSet, find_training_set, training_sets
from predictor.errors import OutOfRangeError, SchemaError


@pytest.mark.parametrize(
    ("name", "samples", "image_size"),
    [
        ("mnist", 60_000, 28),
        ("cifar10", 50_000, 32),
        *((name, 50_000, 32) for name in ("cifar100", "CIFAR-100", "cifar_100", "Cifar 100")),
        ("stl10", 5_000, 96),
        ("caltech101", 8_677, 224),
        ("mscoco", 118_287, 224),
        ("imagenet", 1_281_167, 224),
        ("imagenette", 9_469, 224),
        ("imagenette2-160", 9_469, 128),
        ("ImageNet-256", 1_281_167, 224),
        ("imagenet 160", 1_281_167, 128),
        ("tiny_imagenet", 100_000, 64),
    ],
)
def test_an_epoch_has_the_samples_of_the_training_part(name, samples, image_size):
    training_set = find_training_set(name)
    assert (training_set.samples, training_set.image_size) == (samples, image_size)


def test_an_unknown_data_set_gets_the_nearest_and_the_next_step():
    with pytest.raises(SchemaError, match=r"'cifar1000'\. Nearest: 'cifar100'.*pass its number of samples"):
        find_training_set("cifar1000")


def test_every_data_set_has_a_source_and_sizes_that_can_be():
    def holds(training_set: TrainingSet) -> bool:
        sizes = training_set.samples > 0 and training_set.image_size >= 28 and training_set.classes >= 10
        return bool(training_set.source) and sizes and training_set.channels in (1, 3)

    assert [training_set for training_set in training_sets().values() if not holds(training_set)] == []


def test_a_part_has_images_of_the_same_mean_size():
    imagenet = find_training_set("imagenet")
    small = imagenet.part(10_000)
    assert (small.samples, small.image_size, small.stored) == (10_000, imagenet.image_size, imagenet.stored)
    assert small.sample_mb == pytest.approx(imagenet.sample_mb)
    assert small.decoded_gb / small.samples == pytest.approx(imagenet.decoded_gb / imagenet.samples)
    assert imagenet.part(imagenet.samples) == imagenet


@pytest.mark.parametrize("samples", [0, 60_001])
def test_a_part_is_no_larger_than_the_data_set(samples):
    with pytest.raises(OutOfRangeError, match=rf"{samples:,} lies outside 1\.\.60,000"):
        find_training_set("mnist").part(samples)
