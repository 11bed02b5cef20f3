"""Rates of loaders and sources: every row can be, has its basis, and gives what published figures say."""

import csv
import math
from pathlib import Path

import pytest

from predictor.catalogue.data_sets import STORED, find_training_set, training_sets
from predictor.catalogue.loading_rates import LOADERS, SOURCES, USUAL_LOADER, find_loader, find_source
from predictor.errors import SchemaError

DATASETS = Path(__file__).parents[3] / "datasets"
BASES = {"measured", "published", "derived"}


def rows_of(name):
    with (DATASETS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def per_vcpu(loader, data_set="imagenet", image_size=224):
    images = find_training_set(data_set)
    rates = find_loader(loader, images.stored)
    return 1e6 * rates.vcpu_share / rates.sample_us(images.megapixels, image_size)


def test_every_word_of_an_option_has_a_row_and_every_row_a_word():
    assert {row["loader"] for row in rows_of("loaders.csv")} == {*LOADERS}
    assert {row["source"] for row in rows_of("sources.csv")} == {*SOURCES}


def test_every_row_says_what_it_rests_on():
    rows = [*rows_of("loaders.csv"), *rows_of("sources.csv")]
    assert [row for row in rows if row["basis"] not in BASES or not row["from"]] == []
    assert [row for row in rows if row["basis"] == "published" and not row["source_url"]] == []


def test_rates_per_vcpu_lie_among_published_ones_and_order_loaders_sizes_and_forms():
    assert 100 < per_vcpu(USUAL_LOADER) < 250
    assert per_vcpu("torchvision") < per_vcpu("pillow_simd") < per_vcpu("dali")
    assert per_vcpu("torchvision", image_size=448) < per_vcpu("torchvision", image_size=224)
    assert per_vcpu("torchvision", "cifar10", 32) > 10 * per_vcpu("torchvision")  # arrays


def test_a_p3_2xlarge_of_2018_whose_loading_was_the_bottleneck_lies_within_the_spread():
    """An epoch of ImageNet in 32 minutes on eight vCPUs (pytorch/accimage, issue 12)."""
    rate, spread = 8 * per_vcpu("torchvision"), find_loader("torchvision", "jpeg").spread
    assert (rate, rate / spread) == (pytest.approx(1_334, abs=1), pytest.approx(1_281_167 / 1920, rel=1e-3))


def test_a_loader_without_a_rate_for_arrays_is_refused_with_those_that_have_one():
    with pytest.raises(SchemaError, match=r"loader 'dali'.*stored as array.*Known: torchvision, pillow_simd"):
        find_loader("dali", "array")


def test_memory_reads_without_a_bound_and_a_network_waits():
    assert math.isinf(find_source("memory").read_mb_per_s)
    assert find_source("nfs").wait_us > find_source("folder").wait_us


def test_every_data_set_holds_more_decoded_than_its_images_have_pixels_for():
    def holds(training_set):
        pixels_gb = training_set.samples * training_set.channels * training_set.megapixels / 1000
        return (
            training_set.stored in STORED
            and training_set.records >= training_set.samples
            and (pixels_gb == pytest.approx(training_set.decoded_gb, rel=0.06))
        )

    assert [training_set.name for training_set in training_sets().values() if not holds(training_set)] == []


def test_jpegs_are_smaller_than_their_pixels_and_imagenets_have_115_kilobytes():
    jpegs = [training_set for training_set in training_sets().values() if training_set.stored == "jpeg"]
    assert all(training_set.disk_gb < 0.5 * training_set.decoded_gb for training_set in jpegs)
    assert find_training_set("imagenet").sample_mb == pytest.approx(0.115, abs=0.001)
