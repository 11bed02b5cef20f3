"""A link's question is asked as the service understands it, and its answer is shown."""

import re

from case_tables import each_row
from page_parts import answered, follow
from playwright.sync_api import expect
from test_page import _FIRST, _downloads


@each_row
def test_a_link_shows_its_answer(first_visit, fragment, shown):
    follow(first_visit, fragment)
    for selector, words in shown:
        expect(first_visit.locator(selector).first).to_have_text(re.compile(words))


@each_row
def test_a_link_gets_the_service_s_rows(first_visit, ask, fragment, asked):
    with first_visit.expect_response("**/v1/explanations"):
        follow(first_visit, fragment)
    answered(first_visit)
    assert _downloads(first_visit, "#rows-csv", ask("predictions", _FIRST | asked)["rows"])
