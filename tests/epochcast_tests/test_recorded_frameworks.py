"""Loops of PyTorch Lightning, Hugging Face's Trainer and accelerate, recorded for one iteration as a user runs them."""

import pytest
from case_tables import each_row

import epochcast
from predictor.errors import SchemaError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: no step is recorded")
nn = torch.nn


def small_cnn():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))


def batches(as_dict=False):
    images = [(torch.zeros(3, 16, 16), index % 10) for index in range(48)]
    names = "pixel_values", "labels"
    return [dict(zip(names, image, strict=True)) for image in images] if as_dict else images


@each_row
@pytest.mark.usefixtures("torchvision_models")
def test_fit_of_lightning_is_recorded(options, batch_size, precision):
    pl = pytest.importorskip("pytorch_lightning", reason="PyTorch Lightning is not installed")

    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.cnn = small_cnn()

        def training_step(self, batch, _index):
            loss = nn.functional.cross_entropy(self.cnn(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    quiet = ("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "logger")
    trainer = pl.Trainer(max_steps=1, accelerator="cpu", **dict.fromkeys(quiet, False), **options)
    module, loader = Classifier(), torch.utils.data.DataLoader(batches(), 4)
    step = epochcast.record(lambda: trainer.fit(module, loader)).step
    assert (step.batch_size, step.precision, step.optimizer) == (batch_size, precision, "adamw")


def record_trainer():
    """A training of one iteration with Hugging Face's Trainer, recorded; its inner method is refused.

    `test_watched_frameworks` runs it in the process that has imported transformers.
    """
    import transformers

    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=10
    )
    arguments = transformers.TrainingArguments(
        output_dir="trained", per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=1,
        save_strategy="no", report_to=[], use_cpu=True, bf16=True, disable_tqdm=True,
    )  # fmt: skip
    model = transformers.ResNetForImageClassification(config)
    trainer = transformers.Trainer(model, arguments, train_dataset=batches(as_dict=True))
    batch = torch.utils.data.default_collate(batches(True)[:4])
    with pytest.raises(SchemaError, match=r"`Trainer.train`.*`max_steps=1`"):
        epochcast.record(lambda: trainer.training_step(model, batch))
    step = epochcast.record(trainer.train).step
    assert (step.batch_size, step.parts, step.precision, step.optimizer) == (8, 2, "amp_bf16", "adamw")


def test_a_loop_with_accelerate_is_recorded():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
    cnn = small_cnn()
    loader = torch.utils.data.DataLoader(batches(), 4)
    model, optimizer, loader = accelerator.prepare(cnn, torch.optim.Adam(cnn.parameters()), loader)

    def step():
        images, labels = next(iter(loader))
        accelerator.backward(nn.functional.cross_entropy(model(images), labels))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    recorded = epochcast.record(step).step
    assert (recorded.batch_size, recorded.precision, recorded.optimizer) == (4, "amp_bf16", "adam")
