"""What the service refuses stands beside the field at fault, in its own words, and the keyboard is taken there."""

import re

from case_tables import each_row
from page_parts import follow
from playwright.sync_api import expect


@each_row
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


def test_a_service_that_is_gone_is_said_and_not_said_to_refuse(page):
    for path in ("predictions", "comparisons"):
        page.route(f"**/v1/{path}", lambda route: route.fulfill(status=503, body="busy"))
    page.click("#ask")
    expect(page.locator("#problem")).to_contain_text("503")
    expect(page.locator("#problem")).to_be_focused()
    page.route("**/v1/*", lambda route: route.abort())
    page.click("#ask")
    expect(page.locator("#problem")).to_contain_text("does not answer")
    expect(page.locator("#status")).to_be_empty()
