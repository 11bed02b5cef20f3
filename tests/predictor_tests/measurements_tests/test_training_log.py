"""The speed that a training's log tells: the forms of well-known programs, and what none of them is."""

import pytest

from predictor.errors import SchemaError
from predictor.measurements.training_log import read_training_log

TIMM = (
    "Train: 0 [{n:4d}/1251 (  4%)]  Loss: 6.93 (6.94)  Time: {s:.3f}s,  {rate}/s  ({s:.3f}s,  {rate}/s)  "
    "LR: 1.000e-05  Data: {data:.3f} ({data:.3f})\n"
)
LOGS = {
    "timm": (
        "".join(TIMM.format(n=n, s=s, rate=1, data=0.1) for n, s in ((0, 9.0), (50, 0.4), (100, 0.4))),
        ("iteration_time_ms", 400.0, 0.25),
    ),
    "torchvision": (
        "Epoch: [0]  [  10/1251]  eta: 0:10:00  lr: 0.1  img/s: 80.0 (79)  loss: 6.9 (6.9)  time: 0.8000  data: 0.2000"
        "  max mem: 3000\n",
        ("iteration_time_ms", 800.0, 0.25),
    ),
    "ImageNet example": (
        "Epoch: [0][ 10/5005]\tTime  0.500 ( 0.600)\tData  0.100 ( 0.200)\tLoss 6.9e+00 (6.9e+00)\n",
        ("iteration_time_ms", 500.0, 0.2),
    ),
    "Keras": ("391/391 [======] - 25s 63ms/step - loss: 1.5\n", ("iteration_time_ms", 63.0, None)),
    "nnU-Net": ("2026-01-01 00:00:00: Epoch time: 151.2 s\n", ("epoch_time_s", 151.2, None)),
    "images/s": ("step 10: loss 2.1, 1,250.5 images/sec\n", ("images_per_s", 1250.5, None)),
    "progress bar": (
        "Epoch 1:  1%| | 1/50 [00:09<01:00, 9.00s/it]\rEpoch 1: 20%| | 10/50 [00:10<01:00, 4.00it/s, loss=2]\r"
        "Epoch 1: 30%| | 15/50 [00:11<01:00, 4.00it/s, loss=2]\n",
        ("iteration_time_ms", 250.0, None),
    ),
    "Lightning": (
        "epoch,step,train|device/batches_per_sec,train|loss\n0,1,,2.3\n0,10,1.0,\n0,20,5.0,\n0,30,5.0,\n",
        ("iteration_time_ms", 200.0, None),
    ),
}


@pytest.mark.parametrize("form", LOGS)
def test_each_form_tells_the_median_without_its_first_reading(form, tmp_path):
    text, (name, value, waiting) = LOGS[form]
    path = tmp_path / "train.log"
    path.write_text(text)
    speed = read_training_log(path)
    assert (speed.name, speed.value) == (name, pytest.approx(value))
    assert speed.waiting_share == (None if waiting is None else pytest.approx(waiting))


def test_a_file_without_a_speed_is_refused_with_the_forms_that_are_known(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("loss 2.3\nloss 2.2\n")
    with pytest.raises(SchemaError, match=r"timm.*progress bar.*Lightning"):
        read_training_log(path)
