"""Known data sets are found by name, and have the sizes that their papers state."""

import pytest

from predictor.catalogue.data_sets import TrainingSet, find_training_set, training_sets
from predictor.errors import OutOfRangeError, SchemaError


@pytest.mark.parametrize(
    ("name", "samples", "image_size"),
    [
        ("mnist", 60_000, 28),
        ("cifar10", 50_000, 32),
        ("cifar100", 50_000, 32),
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
    found = find_training_set(name)
    assert (found.samples, found.image_size) == (samples, image_size)


@pytest.mark.parametrize("written", ["CIFAR-100", "cifar_100", "Cifar 100"])
def test_case_dashes_and_spaces_do_not_matter(written):
    assert find_training_set(written).name == "cifar100"


def test_an_unknown_data_set_gets_the_nearest_and_the_next_step():
    with pytest.raises(SchemaError, match=r"'cifar1000'\. Nearest: 'cifar100'.*pass its number of samples"):
        find_training_set("cifar1000")


def test_every_data_set_has_a_source_and_sizes_that_can_be():
    def holds(known: TrainingSet) -> bool:
        sizes = known.samples > 0 and known.image_size >= 28 and known.classes >= 10
        return bool(known.source) and sizes and known.channels in (1, 3)

    assert [known for known in training_sets().values() if not holds(known)] == []


def test_a_part_has_images_of_the_same_mean_size():
    whole = find_training_set("imagenet")
    part = whole.part(10_000)
    assert (part.samples, part.image_size, part.stored) == (10_000, whole.image_size, whole.stored)
    assert part.sample_mb == pytest.approx(whole.sample_mb)
    assert part.decoded_gb / part.samples == pytest.approx(whole.decoded_gb / whole.samples)
    assert whole.part(whole.samples) == whole


@pytest.mark.parametrize("samples", [0, 60_001])
def test_a_part_is_no_larger_than_the_data_set(samples):
    with pytest.raises(OutOfRangeError, match=rf"{samples:,} lies outside 1\.\.60,000"):
        find_training_set("mnist").part(samples)
