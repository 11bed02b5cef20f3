"""README.md answers first and stays short; test_pages.py runs what it shows."""

import re

from page_runner import ROOT, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_at_most_700_words_beside_its_examples():
    assert len(re.sub(r"```.*?```|<!--.*?-->", "", README, flags=re.DOTALL).split()) <= 700


def test_the_answer_comes_first_and_fits_half_a_screen():
    first = next(block.text for block in blocks("README.md") if block.language == "console")
    assert first.startswith("$ make predict\n")
    assert len(first.splitlines()) <= 23
