"""What the service loads to answer: numpy, and nothing heavier."""

import subprocess
import sys

CODE = """
import sys
from fastapi.testclient import TestClient
from api.main import create_app
from api.settings import Settings

with TestClient(create_app(Settings(store="", log_level="error"))) as client:
    for path, question in (
        ("/v1/predictions", {"cnn": "resnet18", "gpus": ["all"], "batch_sizes": [8, 16], "data_set": "imagenet"}),
        ("/v1/comparisons", {"cnn": "resnet18", "batch_sizes": [8], "data_set": "imagenet"}),
    ):
        assert client.post(path, json=question).status_code == 200
    for path in ("/v1/gpus", "/v1/offers", "/v1/cnns", "/v1/models", "/docs", "/metrics", "/readyz"):
        assert client.get(path).status_code == 200
print("LOADED", *[name for name in ("numpy", "pandas", "sklearn", "scipy", "onnx", "torch") if name in sys.modules])
"""


def test_answering_loads_neither_pandas_nor_scikit_learn():
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, check=True
    )
    assert run.stdout.split()[-2:] == ["LOADED", "numpy"]
