"""Known data sets are found by name, and have the sizes that their papers state."""

import pytest
from case_tables import each_row

from predictor.catalogue.data_sets import TrainingSet, find_training_set, training_sets
from predictor.errors import OutOfRangeError, SchemaError


@each_row
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
