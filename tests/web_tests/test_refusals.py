"""What the service refuses stands beside the field at fault, in its own words, and the keyboard is taken there."""

import pytest


@pytest.mark.parametrize(
    ("fragment", "field", "said"),
    [
        ("gpu=T5&gpu=T4", "gpus", "no GPU is called 'T5'. Nearest: 'Tesla T4'"),
        ("cnn=resnet51", "cnn", "Nearest: 'resnet50'"),
        ("batch_sizes=16%2C0", "batch_sizes", "greater than or equal to 1"),
        ("batch_sizes=16%2C+many", "batch_sizes", "given: 'many'"),
        ("batch_sizes=", "batch_sizes", "at least 1 item"),
        ("image_size=999999", "image_size", "16384"),
        ("data_set=imagenit", "data_set", "Nearest: 'imagenet'"),
        ("data_set=&samples=-3", "samples", "greater than or equal to 1"),
        ("data_set=", "samples", "needs the samples of an epoch"),
        ("precision=tf32&gpu=T4", "precision", "has no tf32"),
        ("budget_usd=-1", "budget_usd", "greater than 0"),
        ("deadline_h=soon", "deadline_h", "given: 'soon'"),
        ("epochs=1.5", "epochs", "integer"),
        ("validation_samples=x", "validation_samples", "integer"),
        ("setup_minutes=-1", "setup_minutes", "greater than or equal to 0"),
        ("host=8088", "host", "was not measured"),
    ],
)
def test_a_refusal_stands_beside_its_field(first_visit, fragment, field, said):
    first_visit.evaluate("fragment => { location.hash = fragment; }", fragment)
    first_visit.wait_for_selector(f"#{field}-error:not(:empty)")
    assert said in first_visit.inner_text(f"#{field}-error")
    assert first_visit.get_attribute(f"#{field}", "aria-invalid") == "true"
    assert f"{field}-error" in first_visit.get_attribute(f"#{field}", "aria-describedby")
    assert first_visit.is_visible(f"#{field}-error")
    assert first_visit.is_hidden("#problem")
    assert first_visit.evaluate("document.activeElement.id") == field


def test_the_first_field_at_fault_gets_the_focus_and_mending_it_takes_the_message_away(page):
    page.fill("#budget_usd", "-5")
    page.fill("#batch_sizes", "0")
    page.click("#ask")
    page.wait_for_selector("#budget_usd-error:not(:empty)")
    page.wait_for_selector("#batch_sizes-error:not(:empty)")
    page.wait_for_selector("#batch_sizes:focus")
    page.fill("#batch_sizes", "64")
    assert page.inner_text("#batch_sizes-error") == ""
    assert page.get_attribute("#batch_sizes", "aria-invalid") is None
    assert "refused" in page.inner_text("#status")


def test_a_service_that_is_gone_is_said(page):
    page.route("**/v1/predictions", lambda route: route.fulfill(status=503, body="busy"))
    page.route("**/v1/comparisons", lambda route: route.fulfill(status=503, body="busy"))
    page.click("#ask")
    page.wait_for_selector("#problem:not([hidden])")
    assert "503" in page.inner_text("#problem")
    assert page.evaluate("document.activeElement.id") == "problem"
