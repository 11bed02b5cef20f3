"""A running service takes up a model that `epochcast fit` writes, and no request notices but by its answer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from services import Service
from waiting import PATIENCE_S, wait_until

import epochcast
from predictor.models.served import Model

QUESTION = {"cnn": "resnet18", "gpus": ["T4"], "batch_sizes": [32]}


@pytest.fixture
def measurements(tmp_path):
    """Two CNNs on two GPUs, enough to fit on."""
    lines = ["gpu,cnn,image_size,batch_size,precision,iteration_time_ms"]
    for i, (gpu, cnn) in enumerate((g, c) for g in ("T4", "V100-SXM2-16GB") for c in ("resnet18", "vgg11")):
        lines += [f"{gpu},{cnn},224,{8 * 2**j},fp32,{(100 + i) * 2.0**j}" for j in range(5)]
    (tmp_path / "measurements.csv").write_text("\n".join(lines))
    return tmp_path / "measurements.csv"


def test_a_model_is_replaced_under_requests_and_none_is_dropped(tmp_path, measurements):
    path = tmp_path / "model.json"
    Model.load().save(path)
    answers, stop = [], threading.Event()

    def ask(url):
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            while not stop.is_set():
                answer = client.post("/v1/predictions", json=QUESTION)
                answers.append((answer.status_code, answer.json()["rows"][0]["iteration_time_ms"]))

    with Service(EPOCHCAST_MODEL=str(path)) as service, ThreadPoolExecutor(2) as threads:
        askers = [threads.submit(ask, service.url) for _ in range(2)]
        try:
            wait_until(lambda: answers, alive=lambda: all(asker.running() for asker in askers))
            before = answers[0][1]
            fitted = epochcast.fit(measurements, out=path)
            expected = float(epochcast.predict("resnet18", "T4", 32, model=fitted)["iteration_time_ms"][0])
            wait_until(lambda: answers[-1][1] == expected, lambda: all(asker.running() for asker in askers))
        finally:
            stop.set()
        for asker in askers:
            asker.result()
    assert {status for status, _ in answers} == {200}
    assert {time for _, time in answers} == {before, expected}
