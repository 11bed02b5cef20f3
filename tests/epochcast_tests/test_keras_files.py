"""Keras models from the user's side: a file, a function, an object; one answer."""

import json
import os

import pytest

import epochcast as face

MODEL = """
import keras

def make_model():
    layers = keras.layers
    return keras.Sequential([keras.Input((32, 32, 3)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(10)])
"""


@pytest.fixture
def script(tmp_path):
    os.environ["KERAS_BACKEND"] = "torch"
    pytest.importorskip("torch", reason="Keras runs on it")
    pytest.importorskip("keras")
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path / "mine.py"


def test_a_file_a_function_and_an_object_are_one_cnn(epochcast, script):
    namespace = {}
    exec(MODEL, namespace)  # noqa: S102
    model = namespace["make_model"]()
    model.save(script.with_suffix(".keras"))
    times = face.predict(model, "T4", 64, data_set="imagenet")["iteration_time_ms"].tolist()
    for words in ([script.with_suffix(".keras")], [f"{script}:make_model"]):
        run = epochcast("predict", *words, "-g", "T4", "-b", 64, "--data-set", "imagenet", "--json")
        [row] = json.loads(run.out)["rows"]
        assert (row["image_size"], [row["iteration_time_ms"]]) == (32, times)
