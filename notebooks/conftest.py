"""A notebook about PyTorch modules is not run where PyTorch is not installed, and says so."""

from importlib.util import find_spec

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs PyTorch where there is none."""
    if find_spec("torch") is None:
        for test in items:
            if test.path.name == "05-your-own-cnn.ipynb":
                test.add_marker(pytest.mark.skip(reason="PyTorch is not installed here"))
