"""Trainings of PyTorch, PyTorch Lightning and Hugging Face on this machine's CPU, watched."""

import subprocess
import sys
from pathlib import Path

import pytest
from case_tables import each_row

import epochcast

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing is trained")

N, BATCH = 48, 4


class Images(torch.utils.data.Dataset):
    """Noise with labels."""

    def __init__(self, as_dict=False):
        self.as_dict = as_dict

    def __len__(self):
        return N

    def __getitem__(self, index):
        image, label = torch.randn(3, 16, 16), index % 10
        return {"pixel_values": image, "labels": label} if self.as_dict else (image, label)


def small_cnn():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))


def train(model, loader, autocast=False):
    """A plain loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()


def watched(batches, model, **options):
    """The loader of a watched training."""
    loader = epochcast.watch(batches, model, **options)
    train(model, loader)
    return loader


@pytest.fixture
def batches():
    return torch.utils.data.DataLoader(Images(), batch_size=BATCH)


def test_a_plain_loop_is_watched_and_its_module_read(batches, tmp_path):
    out = tmp_path / "mine.csv"
    loader = watched(batches, small_cnn(), gpu="T4", epochs=2, out=out)
    assert loader.watched.predicted_ms > 0
    assert loader.watched.iterations == N // BATCH - 5
    assert loader.watched.left_s > 0
    if out.exists():  # else it waited for the loader
        assert list(epochcast.load_measurements(out)["batch_size"]) == [BATCH]


def test_a_training_on_a_cpu_is_forecast_on_a_gpu_only_by_asking_and_needs_measurements(batches):
    loader = watched(batches, small_cnn(), on="H100 SXM")
    [forecast] = loader.watched.on
    assert forecast.iteration_time_ms is None
    assert "ask epochcast.predict" in forecast.why_not
    loader = watched(batches, small_cnn())
    assert loader.watched.gpu.startswith("cpu:")
    assert loader.watched.not_predicted
    loader = watched(batches, small_cnn(), gpu="H200")
    row, _ = loader._watch._predicted()
    why = list(loader._watch._why(26 * row.iteration_time_ms, 0.0, row))
    assert why[0] == "26 x the prediction"
    assert why[1].startswith("it trains on cpu:")
    assert why[1].endswith(", and the prediction is of NVIDIA H200")
    assert len(why) == 2


def compiled(model):
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize(
    ("change", "capture"),
    [
        (lambda model: model, "eager"),
        (compiled, "compile"),
        (lambda model: model.compile(backend="eager") or model, "compile"),
    ],
)
def test_a_compiled_module_is_seen(batches, change, capture):
    loader = watched(batches, change(small_cnn()), gpu="A10G")
    assert loader._watch.first_batch.capture == capture
    expected = epochcast.predict(small_cnn(), "A10G", BATCH, image_size=16, capture=capture)
    assert loader.watched.predicted_ms == pytest.approx(expected["iteration_time_ms"][0])


def test_a_module_compiled_after_it_is_watched_or_in_part_is_never_taken_as_eager(batches, tmp_path):
    model = small_cnn()
    loader = epochcast.watch(batches, model, gpu="A10G")
    train(compiled(model), loader)
    first_batch = loader._watch.first_batch
    assert first_batch is None or first_batch.capture == "compile"
    out = tmp_path / "mine.csv"
    model = small_cnn()
    model[0].compile(backend="eager")
    loader = watched(batches, model, gpu="A10G", out=out)
    assert "parts of the model are compiled" in loader.watched.not_predicted
    assert not out.exists()


@pytest.fixture
def processes(monkeypatch):
    """Let PyTorch say that so many processes train, so many of them on each machine."""

    def say(n, on_each_machine=None):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: n)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
        if on_each_machine:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", str(on_each_machine))

    return say


def test_all_processes_share_a_mini_batch_of_all_their_images(batches, processes):
    processes(2, on_each_machine=2)
    loader = watched(batches, small_cnn(), gpu="A10G")
    expected = epochcast.predict(small_cnn(), "A10G", 2 * BATCH, image_size=16, n_gpus=2)
    assert loader.watched.predicted_ms == pytest.approx(expected["iteration_time_ms"][0])


@each_row
def test_a_team_that_is_not_known_is_not_predicted(batches, processes, n_processes, options, why):
    processes(*n_processes)
    loader = watched(batches, small_cnn(), gpu="A10G", **options)
    assert loader.watched.not_predicted == why


def test_autocast_and_channels_last_are_seen_in_the_first_batch(batches):
    model = small_cnn().to(memory_format=torch.channels_last)
    loader = epochcast.watch(
        [(images.to(memory_format=torch.channels_last), labels) for images, labels in batches],
        model,
        gpu="A10G",
    )
    train(model, loader, autocast=True)
    first_batch = loader._watch.first_batch
    assert (first_batch.batch_size, first_batch.height, first_batch.precision, first_batch.memory_format) == (
        BATCH,
        16,
        "amp_bf16",
        "channels_last",
    )
    expected = epochcast.predict(
        small_cnn(), "A10G", BATCH, image_size=16, precision="amp_bf16", memory_format="channels_last"
    )
    assert loader.watched.predicted_ms == pytest.approx(expected["iteration_time_ms"][0])


@pytest.mark.parametrize("one_child", [True, False])
def test_lightning_is_watched(batches, tmp_path, one_child, torchvision_models):
    pl = pytest.importorskip("pytorch_lightning", reason="PyTorch Lightning is not installed")

    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            if one_child:
                self.cnn = small_cnn()
            else:
                self.body, self.head = small_cnn()[:-1], small_cnn()[-1]

        def forward(self, images):
            return self.cnn(images) if one_child else self.head(self.body(images))

        def training_step(self, batch, _index):
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trained(**limit):
        callback = epochcast.lightning_callback(gpu="T4", report_after=3, **limit)
        trainer = pl.Trainer(
            max_epochs=2,
            callbacks=[callback],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(Classifier(), batches)
        return trainer.global_step, callback.watched

    steps, watched = trained()
    assert watched.predicted_ms > 0
    assert watched.left_s == 0.0
    assert trained(deadline=1e-6)[0] == steps // 2
    assert not list(tmp_path.iterdir())
    assert trained(deadline=1e-6, on_exceeded="checkpoint")[0] < steps // 2
    assert (tmp_path / "epochcast.ckpt").exists()


def test_hugging_faces_trainer_is_watched_and_recorded_as_installed(tmp_path):
    """In a process that sees what is installed alone: `datasets` of a checkout is not Hugging Face's library."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed: Trainer needs it")
    folders = [str(folder) for folder in Path(__file__).parents[:2]]
    script = (
        f"import sys; sys.path += {folders}; import torchvision_import; torchvision_import.import_torchvision()\n"
        "import test_watched_frameworks, test_recorded_frameworks\n"
        "test_watched_frameworks.train_with_trainer(); test_recorded_frameworks.record_trainer()"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def train_with_trainer():
    """A training with Hugging Face's Trainer in this folder."""
    import transformers

    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=10
    )
    arguments = transformers.TrainingArguments(
        output_dir="trained",
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )

    def trained(**limit):
        callback = epochcast.trainer_callback(gpu="T4", report_after=3, **limit)
        trainer = transformers.Trainer(
            model=transformers.ResNetForImageClassification(config),
            args=arguments,
            train_dataset=Images(as_dict=True),
            callbacks=[callback],
        )
        trainer.train()
        return trainer.state.global_step, callback

    steps, callback = trained()
    assert callback.watched.predicted_ms > 0
    assert callback.watched.left_s == 0.0
    assert callback.watching.first_batch.batch_size == BATCH
    assert not list(Path("trained").glob("checkpoint-*"))
    assert trained(deadline=1e-6)[0] == steps // 2
    steps_at_limit, _ = trained(deadline=1e-6, on_exceeded="checkpoint")
    assert steps_at_limit < steps // 2
    assert Path("trained", f"checkpoint-{steps_at_limit}").is_dir()
