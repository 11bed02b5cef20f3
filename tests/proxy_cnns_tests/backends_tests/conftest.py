"""The frameworks, or a skip that says that one is missing."""

from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def chainer() -> ModuleType:
    """Chainer, imported beside a current numpy."""
    from predictor.errors import BackendUnavailableError
    from predictor.sources.chainer_compat import install

    try:
        return install()
    except BackendUnavailableError as error:
        pytest.skip(f"Chainer is not installed here ({error})")
