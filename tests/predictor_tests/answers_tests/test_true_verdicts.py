"""No word of a verdict and no rank is untrue of a plain loop: a part of what `benchmarks/verdicts.py` asks in full."""

import pytest
from verdicts import untrue_of


@pytest.mark.slow
def test_no_verdict_or_rank_of_seeded_questions_is_untrue():
    assert untrue_of(15, seed=2) == {}
