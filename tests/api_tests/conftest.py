"""A service in this process, without a store, for tests of everything that needs none."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from api.main import create_app
from api.settings import Settings
from predictor.models.roofline.model import Roofline

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # which HTTP library the test client will prefer one day
    from fastapi.testclient import TestClient


@pytest.fixture(scope="session")
def settings() -> Settings:
    """No store, and warnings alone in the log."""
    return Settings(store="", log_level="warning")


@pytest.fixture(scope="session")
def client(settings: Settings) -> Iterator[TestClient]:
    """A client of a running service."""
    with TestClient(create_app(settings)) as test_client:
        yield test_client


@pytest.fixture
def another_model(client: TestClient) -> Iterator[Callable[..., None]]:
    """Serve a model with another card until the test ends."""
    served = client.app.state.serving.model
    before = served.current

    def serve(**card: object) -> None:
        roofline = before.roofline
        if "trained_on" in card:  # answers quote the law, whose words come from the card when a file is read
            roofline = Roofline.of(roofline.law_, roofline.ranges_, str(card["trained_on"]))
        served.serve(replace(before, card=before.card | card, roofline=roofline))

    yield serve
    served.serve(before)
