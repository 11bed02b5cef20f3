"""The page at `/`: what it shows is what the service answers, and links, tables, files and languages work."""

import json
import re
import subprocess
import sys

import pytest
from case_tables import each_row
from page_parts import answered, column, downloaded, predict, text_rows
from playwright.sync_api import expect

_FIRST = {
    "cnn": "resnet50",
    "batch_sizes": [16, 32, 64, 128, 256, 512],
    "data_set": "imagenet",
    "gpus": ["T4", "V100-SXM2-16GB", "A100-SXM4-40GB", "H200", "A10G", "H100 80GB HBM3"],
    "memory_formats": ["nchw"],
}
_OFFERS = {key: _FIRST[key] for key in ("cnn", "data_set")}  # at one batch size, as the command compares
_OFFERS |= {"memory_format": "nchw", "epochs": 90}


def _csv_of(rows):
    """Rows of an answer as the page writes them."""

    def text(value):
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            return "; ".join(map(text, value))
        if isinstance(value, dict):  # a reason, or what energy rests on
            return f"{value['kind']}: {value['text']}" if "remedy" in value else value["text"]
        return "" if value is None else value if isinstance(value, str) else float(value)

    return [{name: text(value) for name, value in row.items()} for row in rows]


def _downloads(page, button, rows):
    """Whether the CSV of a button holds these rows of an answer."""
    expected, read = _csv_of(rows), downloaded(page, button)
    for row, like in zip(read, expected, strict=True):
        row |= {name: float(text) for name, text in row.items() if isinstance(like[name], float)}
    return read == expected


def test_a_first_visit_shows_a_filled_answer_with_its_title_decision_chart_and_what_its_numbers_hold(
    first_visit, ask
):
    rows = ask("predictions", _FIRST)["rows"]
    assert len(text_rows(first_visit, "#rows-table")) == len({row["gpu"] for row in rows})
    for chart in ("#time-chart", "#cost-chart", "#why-chart"):
        expect(first_visit.locator(f"{chart} svg path").nth(5)).to_be_attached()
    expect(first_visit.locator("#status")).to_contain_text(str(len(rows)))
    best = ask("comparisons", _OFFERS)["verdict"]["best"]
    gpu = best["gpu"].removeprefix("NVIDIA ")
    expect(first_visit).to_have_title(re.compile(rf"^resnet50 on imagenet: {gpu}, .+, \$.+ – epochcast$"))
    recommended = f"{best['gpu'].removeprefix('NVIDIA ')}: recommended"
    expect(first_visit.locator("#cost-chart svg")).to_contain_text(recommended)
    rows = {(row[0].partition(" +")[0]) for row in text_rows(first_visit, "#rows-table")}
    expect(first_visit.locator("#time-chart .mark-rule.role-mark line")).to_have_count(5 * len(rows))
    (text,) = first_visit.locator("#covers p").all_inner_texts()
    assert len(re.findall(r"\.(?: |$)", text)) == 3
    (covers,) = ask("predictions", _FIRST)["covers"]
    assert first_visit.locator("#covers-full h3").all_text_contents() == ["Predictions", "Offers"]
    paragraphs = [covers, ask("comparisons", _OFFERS)["covers"]]
    assert first_visit.locator("#covers-full p").all_text_contents() == paragraphs


def test_a_new_option_of_the_service_has_a_field_and_is_asked(open_page, window):
    """The page is not changed for it: its name, help and questions come from the service."""
    new = {
        "name": "discount",
        "kind": "number",
        "help": "Share that is not paid.",
        "default": None,
        "usual": "",
    }
    new |= {"panel": "", "choices": [], "needs": {}, "low": 0, "high": 1, "listed": None}
    new |= {"answers": ["comparisons"]}

    def with_one_more(route):
        route.fulfill(json=[*route.fetch().json(), new])

    window.route("**/v1/options", with_one_more)
    try:
        page = open_page()
        page.click("#more summary")
        page.get_by_label("Share that is not paid.").fill("0.5")
        with (
            page.expect_request("**/v1/comparisons") as compared,
            page.expect_request("**/v1/predictions") as predicted,
        ):
            page.click("#ask")
        assert compared.value.post_data_json["discount"] == 0.5
        assert "discount" not in predicted.value.post_data_json
        assert "discount=0.5" in page.url
    finally:
        window.unroute("**/v1/options")


def test_the_csv_and_the_table_s_rows_hold_what_the_service_answers_in_the_order_chosen(first_visit, ask):
    rows = ask("predictions", _FIRST)["rows"]
    assert _downloads(first_visit, "#rows-csv", rows)
    first_visit.click("#rows-table th[data-key=cost_usd] button")
    first_visit.click("#rows-table th[data-key=cost_usd] button")
    dear = sorted(rows, key=lambda row: -row["cost_usd"])
    costs = [float(row["cost_usd"]) for row in downloaded(first_visit, "#rows-csv")]
    assert costs == [row["cost_usd"] for row in dear]
    best = [row for row in rows if row["best_batch"]]
    sizes = column(first_visit, "#rows-table", "batch_size")
    assert sorted(map(int, sizes)) == sorted(row["batch_size"] for row in best)
    first_visit.locator("#rows-table .unfold").first.click()
    expect(first_visit.locator("#rows-table tr.more")).to_have_count(5)
    first_visit.locator("#rows-table .unfold").first.click()
    expect(first_visit.locator("#rows-table tr.more")).to_have_count(0)
    head = first_visit.locator("#rows-table th[data-key=batch_size]")
    expect(head).to_have_attribute("aria-sort", "none")
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    sizes = [int(size) for size in column(first_visit, "#rows-table", "batch_size")]
    assert sizes == sorted(sizes)
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert [*map(int, column(first_visit, "#rows-table", "batch_size"))] == sorted(sizes, reverse=True)
    expect(first_visit.locator("#status")).to_contain_text("descending")


def test_offers_and_rows_are_the_service_s_with_estimated_energy_marked_and_a_button_for_all(
    first_visit, ask
):
    gpus, energy = (column(first_visit, "#rows-table", key) for key in ("gpu", "watt_hours"))
    measured = {gpu for gpu, text in zip(gpus, energy, strict=True) if not text.startswith("≈ ")}
    assert {gpu.partition(" +")[0] for gpu in measured} == {"H100 SXM", "H200"}
    assert all(text.endswith("Wh") for text in energy)
    rows = ask("comparisons", _OFFERS)["rows"]
    assert _downloads(first_visit, "#offers-csv", rows)
    shown = first_visit.locator("#offers-table tbody tr:visible")
    expect(shown).to_have_count(15)
    first_visit.click("#offers-table .all")
    expect(shown).to_have_count(len(rows))
    marked = [row for row in text_rows(first_visit, "#offers-table") if "Pareto front" in " ".join(row)]
    assert len(marked) == sum(row["pareto"] for row in rows)
    expect(first_visit.locator("#offers-table th[data-key=region]")).to_be_visible()
    first_visit.click("#offers-table .all")
    expect(first_visit.locator("#offers-table th[data-key=region]")).to_be_hidden()


def _hours(text):
    """What a duration says, in hours."""
    number, unit = text.replace(",", "").split()
    return float(number) * {"days": 24, "h": 1, "min": 1 / 60, "s": 1 / 3600}[unit]


def _dollars(text):
    return float(text.replace(",", "").lstrip("$"))


def test_the_decision_is_the_service_s_with_both_intervals_and_the_best_measured_beside_it(first_visit, ask):
    best = ask("comparisons", _OFFERS)["verdict"]["best"]
    decision = first_visit.locator("#decision")
    expect(decision.locator("h2")).to_contain_text(best["gpu"].removeprefix("NVIDIA "))
    time, cost = decision.locator("dd strong").all_inner_texts()
    assert _hours(time) == pytest.approx(best["total_time_h"], rel=6e-3)
    assert _dollars(cost) == pytest.approx(best["total_cost_usd"], rel=6e-3)
    hours, dollars = decision.locator("dd span").all_inner_texts()
    numbers, unit = hours.split()
    ends = [_hours(f"{end} {unit}") for end in numbers.split("–")]
    ends += [_dollars(end) for end in dollars.split("–")]
    names = ("total_low_h", "total_high_h", "total_low_usd", "total_high_usd")
    assert ends == pytest.approx([best[name] for name in names], rel=6e-3)
    verdict = ask("comparisons", _OFFERS)["verdict"]
    best, measured = verdict["best"], verdict["measured"]
    assert best["extrapolates"]
    assert measured["extrapolates"] == []
    expect(first_visit.locator("#decision h2 .badge")).to_have_text("extrapolated")
    caution = first_visit.locator(".caution p").inner_text()
    assert measured["offer"] in caution
    assert f"${measured['total_cost_usd']:.1f}" in caution
    first_visit.locator(".caution summary").click()
    expect(first_visit.locator(".caution li").first).to_be_visible()


def test_one_click_asks_with_a_change_and_the_answer_is_what_the_button_said(open_page):
    page = open_page(
        "#batch_sizes=256&chosen_only=1&gpu=NVIDIA+H200&loader=none"
    )  # more may fit with the change
    first = page.locator(".changes li").first
    expect(first.locator("button")).to_have_text("AMP bf16, channels last + torch.compile")
    promise = first.locator("strong").inner_text()
    with page.expect_response("**/v1/explanations"):
        first.locator("button").click()
    answered(page)
    applied = {"precision": "amp_bf16", "memory_format": "channels_last", "capture": "compile"}
    for field, value in applied.items():
        expect(page.locator(f"#{field}")).to_have_value(value)
    assert ", ".join(page.locator("#decision dd strong").all_inner_texts()) == promise


def test_a_phone_scrolls_one_way_only_and_folds_the_question_and_offers(open_page, sized):
    page = open_page(size=sized(390, 844))
    expect(page.locator("#batch_sizes")).to_be_hidden()
    page.click("#fold")
    expect(page.locator("#batch_sizes")).to_be_visible()
    rows = page.locator("#offers-table tbody tr:visible")
    assert {row.bounding_box()["height"] < 40 for row in rows.all()} == {True}
    page.click("#offers-table .all")
    cell = page.locator("#offers-table td[data-label=Precision]").first
    assert cell.evaluate("each => getComputedStyle(each, '::before').content") == '"Precision"'
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page = open_page(size=sized(360, 740))
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.click("#fold")
    predict(page)
    assert page.evaluate("document.getElementById('results').getBoundingClientRect().top") < 740
    page.evaluate("for (const part of document.querySelectorAll('details.card')) part.open = true")
    for chart in ("#time-chart", "#cost-chart", "#why-chart"):
        expect(page.locator(f"{chart} svg")).to_be_visible()
        box = page.locator(f"{chart} svg").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_the_list_of_gpus_begins_with_those_measured_and_for_rent_and_laptops_follow_their_cards(
    page, service
):
    names = page.eval_on_selector_all("#gpu_list input", "all => all.map(e => e.value)")
    gpus = page.request.get(f"{service}/v1/gpus").json()
    measured_by_gpu = {row["gpu"]["name"]: row["measured"] for row in gpus}
    offered = {row["gpu"] for row in page.request.get(f"{service}/v1/offers").json()}
    both = [name for name in reversed(measured_by_gpu) if measured_by_gpu[name] and name in offered]
    assert names[: len(both)] == both
    assert sorted(names) == sorted(measured_by_gpu)
    page.click("#picker summary")
    page.fill("#gpu_filter", "4090")
    first = page.locator("#gpu_list label:visible").first
    expect(first).to_contain_text(re.compile(r"^GeForce RTX 4090\s*24"))


def test_gpus_are_found_chosen_and_removed(page):
    expect(page.locator("#samples")).to_have_attribute("placeholder", "all 1,281,167")
    page.click("#picker summary")
    page.fill("#gpu_filter", "titan v")
    page.locator("#gpu_list label:visible").first.click()
    expect(page.locator("#chips li").last).to_contain_text(re.compile("^NVIDIA TITAN V"))
    page.click("#gpus_none")
    expect(page.locator("#chips button")).to_have_count(0)
    page.click("#gpus_on_offer")
    expect(page.locator("#chips button").nth(10)).to_be_visible()


def test_each_row_and_the_decision_name_the_precision_that_it_is_answered_in(first_visit, ask):
    named = {"fp32": "fp32", "tf32": "TF32"}
    expect(first_visit.locator("#precision option").first).to_have_text("the framework's default")
    expect(first_visit.locator("#precision")).to_have_value("")
    for table, rows in (
        ("#rows-table", ask("predictions", _FIRST)["rows"]),
        ("#offers-table", ask("comparisons", _OFFERS)["rows"]),
    ):
        assert {row["precision"] for row in rows} == {*named}
        first_visit.locator(f"{table} .all").click()
        shown = column(first_visit, table, "precision")
        best_rows = [row for row in rows if row["best_batch"] or "rank" in row]
        assert sorted(shown) == sorted(named[row["precision"]] for row in best_rows)
    assert first_visit.inner_text("#decision .instance").endswith(tuple(named.values()))


@pytest.mark.parametrize(("gpu", "precision"), [("Tesla T4", "fp32"), ("NVIDIA A100-SXM4-40GB", "tf32")])
def test_an_explanation_asks_for_the_precision_of_the_gpu_s_row(first_visit, gpu, precision):
    second_gpu = "NVIDIA H200" if gpu == "Tesla T4" else "Tesla T4"
    first_visit.select_option("#why_gpu", second_gpu)
    with first_visit.expect_request("**/v1/explanations") as waiting:
        first_visit.select_option("#why_gpu", gpu)
    expect(first_visit.locator("#why")).to_have_attribute("aria-busy", "false")
    assert waiting.value.post_data_json["gpus"] == [gpu]
    assert waiting.value.post_data_json["precision"] == precision


def test_what_extrapolates_says_why_and_a_point_tells_its_numbers(first_visit, ask):
    gpus, sizes, marks = (column(first_visit, "#rows-table", key) for key in ("gpu", "batch_size", "marks"))
    position = next(i for i, mark in enumerate(marks) if "extrapolates" in mark)
    gpu = gpus[position].rsplit(" +", 1)[0]  # its other batch sizes are folded away: "T4 +5"
    row = next(
        row
        for row in ask("predictions", _FIRST)["rows"]
        if row["gpu"].endswith(gpu) and row["batch_size"] == int(sizes[position])
    )
    mark = first_visit.locator("#rows-table tr", has_text="extrapolates").first.locator("details")
    expect(mark.locator("li").first).to_be_hidden()
    mark.locator("summary").click()
    expect(mark.locator("li").first).to_be_visible()
    reasons = [f"{reason['kind']}: {reason['text']}" for reason in row["extrapolates"]]
    assert mark.locator("li").all_inner_texts() == reasons
    first_visit.locator("#time-chart .mark-symbol path").last.hover()
    tip = re.compile("H100 SXM.*Batch.*90 % interval", re.DOTALL)
    expect(first_visit.locator("#tip")).to_contain_text(tip)


def test_a_link_brings_the_question_back(page, open_page):
    page.select_option("#cnn", "densenet121")
    page.fill("#batch_sizes", "8, 16")
    page.fill("#image_size", "160")
    page.select_option("#precision", "amp_fp16")
    page.fill("#epochs", "7")
    page.check("[name=spot]")
    page.click("#chips li:has-text('H200') button")
    predict(page)
    again = open_page(page.url.partition("/#")[2].join(["#", ""]))
    assert set(column(page, "#rows-table", "precision")) == {"AMP fp16"}
    values = {"cnn": "densenet121", "batch_sizes": "8, 16", "image_size": "160", "epochs": "7"}
    values["precision"] = "amp_fp16"
    for name, value in values.items():
        expect(again.locator(f"#{name}")).to_have_value(value)
    expect(again.locator("[name=spot]")).to_be_checked()
    assert again.locator("#chips li").all_inner_texts() == page.locator("#chips li").all_inner_texts()
    assert text_rows(again, "#rows-table") == text_rows(page, "#rows-table")


def test_back_shows_the_question_before(page):
    before = text_rows(page, "#rows-table")
    page.select_option("#cnn", "alexnet")
    predict(page)
    with page.expect_response("**/v1/explanations"):
        page.go_back()
    answered(page)
    expect(page.locator("#cnn")).to_have_value("resnet50")
    assert text_rows(page, "#rows-table") == before


def test_of_many_gpus_the_fastest_are_drawn_and_the_others_wait_in_the_legend(page, ask):
    page.click("#picker summary")
    page.click("#gpus_measured")
    page.select_option("#precision", "fp32")
    page.fill("#batch_sizes", "32")
    predict(page)
    pressed = page.locator("#time-legend button[aria-pressed=true]")
    expect(pressed).to_have_count(8)
    page.click("#rows-table .all")
    expect(page.locator("#time-legend button")).to_have_count(len(text_rows(page, "#rows-table")))
    page.locator("#time-legend button[aria-pressed=false]").first.click()
    expect(pressed).to_have_count(9)


def test_time_by_class_of_operators_is_the_service_s_explanation(first_visit, ask):
    first_visit.select_option("#why_gpu", "Tesla T4")
    expect(first_visit.locator("#why")).to_have_attribute("aria-busy", "false")
    expect(first_visit.locator("#why-chart")).to_have_attribute("aria-label", re.compile("T4"))
    question = {key: _FIRST[key] for key in ("cnn", "batch_sizes", "data_set")}
    question |= {"gpus": ["Tesla T4"], "precision": "fp32", "memory_format": "nchw"}
    (explanation,) = ask("explanations", question)["explanations"]
    shown = text_rows(first_visit, "#classes-table")
    names = [name.replace("_", " ") for name in explanation["classes"]]
    assert [row[0] for row in shown] == [*names, "GPU, together", "host's time"]
    rows_of_times = [*explanation["classes"].values(), explanation["gpu_time_ms"]]
    for row, times in zip(shown, rows_of_times, strict=False):
        assert [float(text.replace(",", "")) for text in row[1:]] == pytest.approx(times, rel=6e-3)
    assert len(text_rows(first_visit, "#modes-table")) == 1 + len(explanation["other_modes"])


@each_row
def test_the_call_shown_gets_the_page_s_answer(first_visit, ask, answer, language):
    first_visit.select_option("#request_what", answer)
    first_visit.select_option("#request_how", language)
    call = first_visit.inner_text("#request-text")
    if language == "command":
        call = f"{sys.executable} -m {call} --json"
    command = [sys.executable, "-c", call] if language == "python" else ["bash", "-c", call]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    if answer == "explanations":
        [shown] = printed["rows" if language == "command" else "explanations"]
        assert shown["gpu"] == first_visit.locator("#why_gpu").input_value()
    else:
        rows = ask(answer, _FIRST if answer == "predictions" else _OFFERS)["rows"]
        assert [alike(row) for row in printed["rows"]] == [alike(row) for row in rows]


def alike(row):
    """A row without what names its options as flags: only a command does."""
    return {name: value for name, value in row.items() if name not in ("extrapolates", "co2_basis")}


def test_it_speaks_japanese(page, open_page, sized):
    page.click("#language")
    expect(page.locator("html")).to_have_attribute("lang", "ja")
    expect(page.locator("#ask")).to_have_text("予測する")
    expect(page.locator("#rows-table thead")).to_contain_text("エポック")
    expect(page).to_have_url(re.compile("lang=ja"))
    left = page.evaluate(
        """() => [...document.querySelectorAll("[data-i18n]")]
        .filter(each => !/[ぁ-んァ-ヶ一-龥]/.test(each.textContent)).map(each => each.dataset.i18n)"""
    )
    assert left == ["nav_api", "unit_usd", "cnn", "gpus", "gpu"]  # the same in both languages
    japanese = open_page(size=sized(1280, 720, "ja-JP"))
    expect(japanese.locator("html")).to_have_attribute("lang", "ja")


@pytest.mark.parametrize("language", ["en-US", "ja-JP"])
def test_the_first_screen_of_a_phone_holds_the_answer_and_the_rest_unfolds(open_page, sized, language):
    page = open_page(size=sized(390, 844, language))
    for selector in ("h2", "dd >> nth=0", "dd >> nth=1", ".caution p", ".changes button >> nth=0"):
        box = page.locator(f"#decision {selector}").bounding_box()
        assert box["y"] + box["height"] <= 844
    assert page.evaluate("document.documentElement.scrollHeight") <= 5000
    assert page.locator("details.card[open]").count() == 0


@pytest.mark.parametrize("width", [1366, 1920])
def test_no_table_is_cut_off_on_a_desktop(open_page, sized, width):
    page = open_page(size=sized(width, 768))
    cut = "all => all.filter(each => each.scrollWidth > each.clientWidth).map(each => each.ariaLabel)"
    assert page.eval_on_selector_all(".scroll", cut) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.click("#more > summary")
    hidden = "(body => body.scrollWidth - body.clientWidth)(document.getElementById('question-body'))"
    assert page.evaluate(hidden) == 0


def test_it_turns_dark_with_the_system(page):
    body, light = page.locator("body"), page.evaluate("getComputedStyle(document.body).backgroundColor")
    series = page.get_attribute("#time-legend svg path", "fill")
    page.emulate_media(color_scheme="dark")
    expect(body).not_to_have_css("background-color", light)
    expect(page.locator("#time-legend button:first-child path")).not_to_have_attribute("fill", series)
    page.emulate_media(color_scheme="light")


def test_an_answer_says_what_it_is_to_and_that_the_question_has_changed(page):
    heading = page.locator("#asked")
    mode = "Precision: the framework's default"
    expect(heading).to_contain_text(f"resnet50 · 224 px · imagenet · {mode}")
    expect(heading.locator(".badge")).to_have_count(0)
    page.route("**/v1/*", lambda route: route.abort())
    page.select_option("#cnn", "alexnet")
    expect(heading.locator(".badge")).to_have_text("The question has changed since.")


def test_an_answer_follows_what_is_typed_with_the_focus_and_one_question_of_the_history(page):
    for epochs in "12":
        page.fill("#epochs", epochs)
    expect(page.locator("#decision")).to_contain_text("Time of 2 epochs")
    expect(page.locator("#epochs")).to_be_focused()
    page.fill("#epochs", "many")
    expect(page.locator("#epochs-error")).not_to_be_empty()
    expect(page.locator("#epochs")).to_be_focused()
    expect(page.locator("#decision")).to_contain_text("Time of 2 epochs")
    for epochs in ("7", "77"):
        page.fill("#epochs", epochs)
        expect(page.locator("#decision")).to_contain_text(f"Time of {epochs} epochs")
    page.go_back()
    expect(page.locator("#decision")).to_contain_text("Time of 90 epochs")


def test_filters_leave_their_offers_in_table_and_chart(page, ask):
    rows = ask("comparisons", _OFFERS)["rows"]
    page.click("#offers-table .all")
    shown = page.locator("#offers-table tbody tr")
    page.check("#measured-only")
    expect(shown).to_have_count(sum(not row["extrapolates"] for row in rows))
    provider = next(row["offer"] for row in rows if not row["extrapolates"]).split()[0]
    page.select_option("#offers-provider", provider)
    measured = [row for row in rows if not row["extrapolates"] and row["offer"].split()[0] == provider]
    expect(shown).to_have_count(len(measured))
    page.uncheck("#measured-only")
    page.select_option("#offers-provider", "aws")
    page.fill("#offers-find", "tesla t4")
    assert [name.removeprefix("4x ") for name in column(page, "#offers-table", "gpu")] == ["T4"]
    expect(page.locator("#cost-chart")).to_have_attribute("aria-label", re.compile("for 1 offers"))
    page.fill("#offers-find", "no such GPU")
    expect(page.locator("#offers-table")).to_contain_text("No offer is like that.")


def test_print_cuts_nothing_off(open_page, sized):
    page = open_page(size=sized(718, 1000))
    page.emulate_media(media="print")
    cut = "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.ariaLabel)"
    assert page.eval_on_selector_all(".scroll", cut) == []


_BY_PROXIES = (
    "#cnn=resnet50&gpu=NVIDIA+H200&gpu=NVIDIA+H100+80GB+HBM3&batch_sizes=64+128&chosen_only=1"
    "&method=proxy-times"
)


def test_a_named_method_is_explained_by_its_law_and_refused_outside_its_range(open_page, ask):
    page = open_page(_BY_PROXIES)
    question = {"cnn": "resnet50", "gpus": ["H100 80GB HBM3"], "batch_sizes": [64, 128]}
    (explanation,) = ask("explanations", question | {"method": "proxy-times"})["explanations"]
    page.select_option("#why_gpu", "NVIDIA H100 80GB HBM3")
    expect(page.locator("#why-chart")).to_have_attribute("aria-label", re.compile("H100"))
    names = ["times of proxies", "by layer", "by iteration", "elementwise work", "Iteration"]
    assert [row[0] for row in text_rows(page, "#classes-table")] == names
    (error,) = {
        reason["text"] for why in explanation["extrapolates"] for reason in why if reason["kind"] == "method"
    }
    expect(page.locator("#why-facts")).to_contain_text(error)
    page = open_page(_BY_PROXIES.replace("NVIDIA+H200", "Tesla+T4"), wait="#method-error:not(:empty)")
    expect(page.locator("#method-error")).to_contain_text("needs proxies measured on Tesla T4")


_ONE_EPOCH = (
    "#cnn=mobilenet_v2&data_set=cifar10&epochs=1&precision=amp_fp16&memory_format=channels_last"
    "&gpu=NVIDIA+H200&batch_sizes=64&chosen_only=1"
)


def test_an_offer_s_time_is_its_epochs_and_a_start_that_says_why_it_is_not_known(open_page):
    page = open_page(_ONE_EPOCH)
    epoch, start, total = (
        float(column(page, "#offers-table", key)[0].removesuffix(" s"))
        for key in ("epoch_time_s", "start_s", "total_time_h")
    )
    assert epoch + start == pytest.approx(total, rel=5e-3)
    expect(page.locator("#decision dt").first).to_have_text("Time of 1 epoch")
    expect(page.locator("#cost-chart svg")).to_contain_text("Time of 1 epoch")
    page = open_page(f"{_ONE_EPOCH}&autotune=1")
    why = re.compile("where no start was measured")
    for table in ("#rows-table", "#offers-table"):
        assert column(page, table, "start_s") == ["–"]
        expect(page.locator(f"{table} th[data-key=start_s] button")).to_have_attribute("title", why)
        expect(page.locator(f"{table} td span", has_text=re.compile("^–$")).first).to_have_attribute(
            "title", why
        )


def test_the_page_checks_compares_and_makes_a_training_fit_as_the_service_does(page, ask):
    page.click("#advice summary")
    page.fill("#check_speed", "fast")
    page.click("#checks-ask")
    expect(page.locator("#checks-problem")).to_contain_text("images_per_s")
    expect(page.locator("#checks-answer")).to_be_empty()
    page.select_option("#advice_gpu", "NVIDIA H200")
    page.select_option("#advice_batch", "64")
    page.fill("#check_speed", "1,200")
    page.select_option("#check_unit", "iteration_time_ms")
    page.click("#checks-ask")
    training = {"cnn": "resnet50", "gpus": ["H200"], "batch_sizes": [64], "data_set": "imagenet"}
    checkup = ask("checks", training | {"epochs": 90, "iteration_time_ms": 1200})["checkup"]
    answer = page.locator("#checks-answer")
    expect(answer).to_contain_text("Too slow")
    expect(answer.locator("li")).to_have_count(3)
    expect(answer.locator("li").first).to_contain_text(checkup["causes"][0]["what"])
    page.select_option("#diff_after", "resnet101")
    page.click("#differences-ask")
    [change] = ask("differences", training | {"after": {"cnn": "resnet101"}})["differences"]
    expect(page.locator("#differences-answer p")).to_contain_text(
        f"+{100 * (change['ratio'] - 1):.0f} % time"
    )
    layers = [row[0] for row in text_rows(page, "#differences-answer")]
    assert set(layers) <= {layer["layer"] for layer in (*change["layers"], change["rest"])}
    page.fill("#fit_memory", "3")
    page.click("#memory_plans-ask")
    plans = ask("memory_plans", training | {"epochs": 90, "memory_gib": 3})
    plan = page.locator("#memory_plans-answer")
    best, without = plans["best"], plans["without"]
    expect(plan.locator("p")).to_contain_text(f"{best['row']['peak_memory_gib']:.2f} of 3 GiB")
    expect(plan.locator("p")).to_contain_text(f"recompute {', '.join(best['recomputed'])}")
    expect(plan.locator("p")).not_to_contain_text("No plan")
    expect(plan.locator("li")).to_have_count(len(without))
    expect(plan.locator("pre")).to_have_text(best["code"])
    page.click("#language")
    expect(answer).to_contain_text("遅すぎます")
    expect(page.locator("#check_speed")).to_have_value("1,200")
    expect(plan.locator("p")).to_contain_text("再計算")
    expect(plan.locator("li").first).to_contain_text("混合精度なし")


def test_a_training_beside_the_question_s_is_asked_for_on_the_page(page, ask):
    page.fill("#batch_sizes", "64")
    page.click("#more summary")
    page.fill("#beside", "lenet5@32:8, resnet18:64")
    with page.expect_response("**/v1/predictions") as asked:
        page.click("#ask")
    sent, rows = asked.value.request.post_data_json, asked.value.json()["rows"]
    assert rows == ask("predictions", sent)["rows"]
    answered(page)
    assert column(page, "#rows-table", "cnn") == [f"{row['cnn']}@{row['image_size']}" for row in rows]
    assert {row["cnn"] for row in rows} == {"resnet50", "lenet5", "resnet18"}
    expect(page.locator("#covers p")).to_contain_text("of the training by itself")
    page.click("#advice summary")
    expect(page.locator("#advice_batch option")).to_have_text(["64"])


def test_what_few_visits_need_is_not_loaded_at_first(open_page, window):
    loaded = []
    window.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    page = open_page()
    assert {"advice.js", "upload.js", "onnx_strip.js", "layer_table.js", "offers"} & set(loaded) == set()
    page.click("#advice summary")
    expect(page.locator("#check_speed")).to_be_visible()
    assert "advice.js" in loaded
