"""What the service refuses stands beside the field at fault, in its own words, and the keyboard is taken there."""

import re

import pytest
from page_parts import follow
from playwright.sync_api import expect


@pytest.mark.parametrize(
    ("fragment", "field", "words"),
    [
        ("gpu=T5&gpu=T4", "gpus", "no GPU is called 'T5'. Nearest: 'Tesla T4'"),
        ("cnn=resnet51", "cnn", "Nearest: 'resnet50'"),
        ("batch_sizes=16%2C0", "batch_sizes", "of at least 1"),
        ("batch_sizes=16%2C+many", "batch_sizes", "given: 'many'"),
        ("batch_sizes=", "batch_sizes", "at least 1 item"),
        ("image_size=999999", "image_size", "16384"),
        ("data_set=imagenit", "data_set", "Nearest: 'imagenet'"),
        ("data_set=&samples=-3", "samples", "of at least 1"),
        ("data_set=", "samples", "needs the samples of an epoch"),
        ("samples=2000000", "samples", "lies outside 1..1,281,167, the training images of imagenet"),
        ("precision=tf32&gpu=T4", "precision", "has no tf32"),
        ("budget_usd=-1", "budget_usd", "above 0"),
        ("deadline_h=soon", "deadline_h", "'soon' is not a number of hours"),
        ("epochs=1.5", "epochs", "whole number"),
        ("validation_samples=x", "validation_samples", "whole number"),
        ("setup_minutes=-1", "setup_minutes", "of at least 0"),
        ("host=8088", "host", "host '8088' is not known. Nearest: 'i7-6850K'"),
    ],
)
def test_a_refusal_stands_beside_its_field(first_visit, fragment, field, words):
    follow(first_visit, fragment)
    control, message = first_visit.locator(f"#{field}"), first_visit.locator(f"#{field}-error")
    expect(message).to_contain_text(words)
    expect(message).to_be_visible()
    expect(control).to_have_attribute("aria-invalid", "true")
    expect(control).to_have_attribute("aria-describedby", re.compile(f"{field}-error"))
    expect(control).to_be_focused()
    expect(first_visit.locator("#problem")).to_be_hidden()


def test_the_first_field_at_fault_gets_the_focus_and_mending_it_takes_the_message_away(page):
    page.fill("#batch_sizes", "0")
    page.fill("#budget_usd", "-5")
    for field in ("batch_sizes", "budget_usd"):  # by the question asked while one types, which moves no focus
        expect(page.locator(f"#{field}-error")).not_to_be_empty()
    page.click("#ask")
    expect(page.locator("#budget_usd")).to_be_focused()  # stands before the batch sizes
    page.fill("#budget_usd", "150")
    expect(page.locator("#budget_usd-error")).to_be_empty()
    expect(page.locator("#budget_usd[aria-invalid]")).to_have_count(0)
    expect(page.locator("#status")).to_contain_text("refused")


def test_a_service_that_is_gone_is_said(page):
    for path in ("predictions", "comparisons"):
        page.route(f"**/v1/{path}", lambda route: route.fulfill(status=503, body="busy"))
    page.click("#ask")
    expect(page.locator("#problem")).to_contain_text("503")
    expect(page.locator("#problem")).to_be_focused()
