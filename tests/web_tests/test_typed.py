"""What people type is understood or asked back about, never guessed; and what is wrong is in view."""

import pytest
from case_tables import each_row
from page_parts import choose, follow
from playwright.sync_api import expect

NOT_COVERED = """id => {
    const [message, field] = [`${id}-error`, id].map(each => document.getElementById(each).getBoundingClientRect());
    return field.top >= 0 && message.top >= field.bottom - 1 && message.bottom <= innerHeight;
}"""


@each_row
def test_a_number_with_separators_that_may_mean_two_things_is_asked_back_about(
    first_visit, fragment, field, words
):
    follow(first_visit, fragment)
    expect(first_visit.locator(f"#{field}-error")).to_contain_text(words)
    expect(first_visit.locator(f"#{field}")).to_be_focused()


def test_the_page_understands_what_it_prints_and_lists_without_spaces(page):
    page.select_option("#data_set", "")
    page.fill("#samples", "1,281,167")
    page.fill("#batch_sizes", "64,128,256")
    with page.expect_request(  # an answer to what was typed so far may be on its way
        lambda request: request.url.endswith("/v1/predictions") and "[64,128,256]" in request.post_data
    ) as predicted:
        page.click("#ask")
    sent = predicted.value.post_data_json
    assert (sent["samples"], sent["batch_sizes"]) == (1281167, [64, 128, 256])


@pytest.mark.parametrize(("width", "height"), [(375, 740), (1366, 700)])
@pytest.mark.parametrize("field", ["batch_sizes", "budget_usd", "validation_samples"])
def test_a_field_at_fault_and_its_message_are_in_sight(sized, open_page, width, height, field):
    page = open_page(size=sized(width, height))
    if width < 900:
        page.click("#fold")
    page.evaluate("document.getElementById('more').open = true")
    page.fill(f"#{field}", "64, 999999" if field == "batch_sizes" else "-5")
    page.click("#ask")
    expect(page.locator(f"#{field}-error")).not_to_be_empty()
    expect(page.locator(f"#{field}")).to_be_focused()
    assert page.evaluate(NOT_COVERED, field)


def test_a_copied_link_says_every_field(page):
    page.evaluate(
        "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }"
    )
    page.click("#share")
    expect(page.locator("#status")).to_have_text("The link is copied.")
    copied = page.evaluate("window.copied")
    fields = (
        "cnn=resnet50",
        "precision=&memory_format=&",
        "gpu=Tesla+T4",
        "epochs=90",
        "optimizer=momentum",
        "lang=en",
    )
    assert [field for field in fields if field not in copied] == []


def test_a_measurement_table_is_no_cnn_and_a_second_wrong_file_replaces_what_was_said(page):
    table = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms,type\nT4,a,8,8,fp32,1,conv2d\n"
    choose(page, {"name": "q.csv", "mimeType": "text/csv", "buffer": table.encode()})
    message = page.locator("#file-error")
    expect(message).to_contain_text("q.csv is a measurement table, not a CNN")
    page.set_input_files("#file", {"name": "b.json", "mimeType": "text/json", "buffer": b"{}"})
    expect(message).to_contain_text("b.json")
    expect(message).not_to_contain_text("q.csv")
