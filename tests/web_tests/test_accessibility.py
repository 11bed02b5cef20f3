"""Keyboard, screen reader, contrast: axe-core's rules in both languages and colours, and use without a mouse."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from case_tables import each_row
from page_parts import answered, choose, column, predict
from playwright.sync_api import expect

from predictor.cnns.zoo import zoo_cnn


@pytest.mark.parametrize(("scheme", "language"), [("light", "en"), ("dark", "ja")])
def test_axe_finds_nothing_on_a_desktop(open_page, sized, scheme, language, tmp_path):
    page = open_page(f"#lang={language}", size=sized(1366, 768, bypass_csp=True, color_scheme=scheme))
    page.click("#fold")
    violations = {"first visit": _violations(page)}
    page.emulate_media(media="print")
    violations["print"] = _violations(page)
    page.emulate_media(media="screen")
    page.fill("#offers-find", "runpod")
    page.check("#measured-only")
    page.click("#advice summary")
    page.fill("#check_speed", "9")
    page.click("#checks-ask")
    page.click("#differences-ask")
    page.click("#memory_plans-ask")
    for answer in ("checks", "differences", "memory_plans"):
        expect(page.locator(f"#{answer}-answer > *").first).to_be_visible()
    page.locator("#rows-table summary").first.click()
    expect(page.locator("#rows-table details").first.locator("li").first).to_be_visible()
    page.click("#fold")
    page.click("#more summary")
    page.click("#picker summary")
    violations["offers filtered, own training, all unfolded"] = _violations(page)
    zoo_cnn("lenet5").to_csv(tmp_path / "own.csv")
    choose(page, tmp_path / "own.csv")
    expect(page.locator("#file-about")).to_contain_text("own")
    predict(page)
    violations["own file"] = _violations(page)
    assert {state: texts for state, texts in violations.items() if texts} == {}


def test_axe_finds_nothing_on_a_phone(open_page, sized):
    phone = sized(360, 740, bypass_csp=True)
    violations = {"first visit": _violations(open_page(size=phone))}
    refused = open_page(
        "#gpu=T5&batch_sizes=0&budget_usd=-1",
        size=phone,
        wait="#gpus-error:not(:empty), #batch_sizes-error:not(:empty)",
    )
    violations["refusal"] = _violations(refused)
    assert {state: texts for state, texts in violations.items() if texts} == {}


LIKE_THOSE_BEFORE = [["tbody tr:nth-child(n+5)"], ["#gpu_list label:nth-child(n+5)"], ["li:nth-child(n+9)"]]


def _violations(page):
    options = {
        "resultTypes": ["violations"],
        "preload": False,
    }  # preloading is for rules on style sheets alone
    violations = Axe().run(page, {"exclude": LIKE_THOSE_BEFORE}, options).response["violations"]
    return [
        f"{violation['id']}: {node['html'][:120]}" for violation in violations for node in violation["nodes"]
    ]


def test_the_keyboard_is_enough(page):
    page.focus("#batch_sizes")
    page.keyboard.press("Control+A")
    page.keyboard.type("8, 12")
    with page.expect_response("**/v1/explanations"):
        page.keyboard.press("Enter")
    answered(page)
    page.focus("#rows-table .unfold")
    page.keyboard.press("Enter")
    expect(page.locator("#rows-table .unfold").first).to_be_focused()
    assert set(column(page, "#rows-table", "batch_size")) == {"8", "12"}
    page.focus("#rows-table th[data-key=epoch_time_s] button")
    page.keyboard.press("Space")
    expect(page.locator("#rows-table th[data-key=epoch_time_s]")).to_have_attribute("aria-sort", "ascending")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#rows-table th[data-key=batch_size] button")).to_be_focused()
    page.focus("#time-legend button")
    page.keyboard.press("Enter")
    expect(page.locator("#time-legend button[aria-pressed=false]")).to_be_focused()


def test_removing_a_gpu_keeps_the_focus_near_and_charts_say_in_words_what_they_show(page):
    page.focus("#chips button")
    page.keyboard.press("Enter")
    expect(page.locator("#chips li")).to_have_count(5)
    expect(page.locator("#chips button:focus")).to_have_count(1)
    for chart in ("time", "cost", "why"):
        figure = page.locator(f"#{chart}-chart")
        assert figure.get_attribute("role") == "img"
        assert any(character.isdigit() for character in figure.get_attribute("aria-label"))
        assert "table" in page.text_content(f"#{figure.get_attribute('aria-describedby')}")


@each_row
def test_a_task_takes_at_most_15_tabs_by_keyboard(open_page, task, stops):
    """Enter is pressed at each stop, but for the last, where the task is done."""
    page, tabs = open_page(unfold=False), 0
    for stop in stops:
        target = page.locator(stop).first
        expect(target).to_be_attached()
        while not target.evaluate("each => each === document.activeElement"):
            page.keyboard.press("Tab")
            tabs += 1
            assert tabs <= 15, f"{task}: {page.evaluate('document.activeElement.outerHTML.slice(0, 99)')}"
        if stop != stops[-1]:
            page.keyboard.press("Enter")
    assert "#" not in page.url  # what stands there is the question


def test_every_stop_of_the_keyboard_has_a_name_and_is_in_sight(sized, open_page):
    page = open_page(size=sized(1366, 768))
    page.evaluate("for (const part of document.querySelectorAll('#question details')) part.open = true")
    script = """() => {
        const at = document.activeElement, box = at.getBoundingClientRect();
        const name = at.textContent || at.getAttribute("aria-label") || at.labels?.[0]?.textContent;
        const whole = box.top >= 0 && box.bottom <= innerHeight;
        const seen = at.closest("#question") ? whole : box.width && box.bottom > 0 && box.top < innerHeight;
        return [at === document.body, name?.trim() && seen ? null : at.outerHTML.slice(0, 99)];
    }"""
    stops = []
    while not (stop := page.keyboard.press("Tab") or page.evaluate(script))[0]:
        stops.append(stop[1])
    assert len(stops) > 90
    assert [html for html in stops if html] == []
