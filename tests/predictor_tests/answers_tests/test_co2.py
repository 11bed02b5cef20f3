"""CO2 is energy x the grid's grams, of the offer's place or the region asked; unknown is said with its reason."""

import pytest
from case_tables import each_row

from predictor.answers.answer import predict
from predictor.answers.compare import compare
from predictor.answers.notes import co2
from predictor.answers.question import Plan, Question
from predictor.catalogue.grids import all_grids, find_grid


def row_of(gpu="A10G", **options):
    [row] = predict("resnet50", gpu, 64, data_set="imagenet", **options)
    return row


def test_grams_are_energy_times_those_of_a_kilowatt_hour():
    row = row_of(region="FRA")
    grid = find_grid("FRA")
    for grams, watt_hours in zip(
        (row.co2_g, row.co2_low_g, row.co2_high_g),
        (row.watt_hours, row.watt_hours_low, row.watt_hours_high),
        strict=True,
    ):
        assert grams == pytest.approx(watt_hours / 1000 * grid.g_co2e_per_kwh)
    assert row.co2_basis.text == "56 g/kWh: France (FRA), 2023, life cycle"


def test_an_offer_has_the_grid_of_its_place():
    row = row_of()
    assert row.offer.startswith("aws ")
    assert row.co2_basis.text.startswith("343 g/kWh: Northern Virginia (us-east4), 2025")
    assert row.co2_g == pytest.approx(0.34348 * row.watt_hours)


@each_row
def test_without_a_place_nothing_is_counted_and_it_says_why(gpu, why):
    row = row_of(gpu)
    assert (row.co2_g, row.co2_low_g, row.co2_high_g, row.co2_basis.kind) == (None, None, None, "unknown")
    assert why in row.co2_basis.text


def test_without_energy_there_is_none():
    assert row_of("NVIDIA GH200 480GB", region="FRA").co2_g is None


def test_a_training_is_all_its_epochs():
    question = Question("resnet50", ["A10G"], 64, data_set="imagenet", region="iowa")
    [once] = compare(question, Plan(epochs=1)).rows
    [often] = compare(question, Plan(epochs=30)).rows
    assert often.total_co2_g == pytest.approx(30 * once.co2_g)
    assert once.total_co2_low_g < once.total_co2_g < once.total_co2_high_g


def test_a_region_is_found_by_its_cloud_s_name_its_code_and_its_place():
    names = ("us-east-1", "aws/us-east-1", "EASTUS", "Northern Virginia", "us-east4")
    assert {find_grid(name).region for name in names} == {"us-east4"}
    assert len({grid.region for grid in all_grids()}) == len(all_grids())


@each_row
def test_grams_are_written_in_the_unit_that_suits_them(grams, words):
    assert co2(grams) == words


@each_row
def test_regions_of_the_three_clouds_have_the_grid_of_their_place(region, place):
    assert find_grid(region).place == place


def test_a_region_of_a_provider_is_on_one_grid():
    names = [name for grid in all_grids() for name in grid.offers]
    assert len(names) == len(set(names))
