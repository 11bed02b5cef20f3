#!/usr/bin/env bash
# With gradients accumulated over 4 mini-batches and 391 mini-batches an epoch, Keras 3 and Ignite step 97 times in the
# first epoch and 98 times in the second: the rest of an epoch is joined to the next one's. accelerate steps the rest at
# each epoch's end, 98 and 98.
# Guess before: all of them begin an epoch with empty gradients, and step or drop the rest.
# Seen: keras 3.15.1 on torch 2.13.0, pytorch-ignite 0.5.5, accelerate 1.15.0, CPU, 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6 keras==3.15.1 pytorch-ignite==0.5.5 accelerate==1.15.0
cd "$folder"
KERAS_BACKEND=torch CUDA_VISIBLE_DEVICES= env/bin/python -W ignore - <<'PYTHON'
import keras
import numpy as np
import torch
from accelerate import Accelerator
from ignite.engine import create_supervised_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, EPOCHS, ACCUMULATED = 391, 2, 4


def by_keras():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=ACCUMULATED), "mse")
    weights, steps = [model.get_weights()[0]], []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weights.append(self.model.get_weights()[0].copy())
            steps.append(bool((weights[-1] != weights[-2]).any()))

    images, labels = np.random.rand(SAMPLES, 4).astype("float32"), np.zeros((SAMPLES, 1), "float32")
    model.fit(images, labels, batch_size=1, epochs=EPOCHS, verbose=0, callbacks=[Count()])
    return steps


def loader():
    return DataLoader(TensorDataset(torch.rand(SAMPLES, 4), torch.zeros(SAMPLES, 1)), batch_size=1)


class CountedSgd(torch.optim.SGD):
    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


def by_ignite():
    module = nn.Linear(4, 1)
    optimizer, steps = CountedSgd(module.parameters(), 0.1), []
    trainer = create_supervised_trainer(
        module, optimizer, nn.functional.mse_loss, gradient_accumulation_steps=ACCUMULATED
    )
    from ignite.engine import Events

    trainer.on(Events.EPOCH_COMPLETED)(lambda engine: steps.append(optimizer.steps))
    trainer.run(loader(), max_epochs=EPOCHS)
    return steps[0], steps[1] - steps[0]


def by_accelerate():
    accelerator, module = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED), nn.Linear(4, 1)
    stepped = []
    inner = CountedSgd(module.parameters(), 0.1)
    module, optimizer, batches = accelerator.prepare(module, inner, loader())
    for _ in range(EPOCHS):
        before = inner.steps
        for images, labels in batches:
            with accelerator.accumulate(module):
                accelerator.backward(nn.functional.mse_loss(module(images), labels))
                optimizer.step()
                optimizer.zero_grad()
        stepped.append(inner.steps - before)
    return tuple(stepped)


keras_steps = by_keras()
seen = {
    "keras": (sum(keras_steps[:SAMPLES]), sum(keras_steps[SAMPLES:])),
    "ignite": by_ignite(),
    "accelerate": by_accelerate(),
}
print(seen)
assert seen == {"keras": (97, 98), "ignite": (97, 98), "accelerate": (98, 98)}
PYTHON
