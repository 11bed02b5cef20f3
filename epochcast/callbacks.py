"""Callbacks that watch trainings of PyTorch Lightning and Hugging Face's Trainer, as `epochcast.watch` does a loop."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from epochcast.budgets import CHECKPOINT, STOP, Limit
from epochcast.signatures import takes_options
from epochcast.watching import Watch, Watched, length_of
from predictor.answers.question import Question
from predictor.errors import BackendUnavailableError


class _Watching:
    """What both frameworks' callbacks share; their hooks do nothing before a training has begun."""

    watching: Watch | None = None
    _stoppable: int
    """Position of what can end the run among the arguments of a hook."""

    @property
    def watched(self) -> Watched | None:
        """The last line as data; None before the first."""
        return None if self.watching is None else self.watching.watched

    def _stops(self, run: Any) -> None:
        """End the run as the framework ends runs."""


def _hook(*steps: str, epoch_ends: bool | None = None) -> Callable[..., None]:
    """A method of a callback that takes these steps of its `Watch`.

    `epoch_ends`: whether the run ends there, where it is to: after an epoch (True) or at its limit (False).
    """

    def hook(callback: _Watching, *arguments: Any, **__: Any) -> None:
        watching = callback.watching
        if watching is None:
            return
        for step in steps:
            getattr(watching, step)()
        if epoch_ends is None or not watching.is_unfinished:
            return
        run = arguments[callback._stoppable]
        if getattr(run, "should_stop", False):
            return
        if epoch_ends:
            watching.exceeds(epoch_ends=True)
        if watching.limit.exceeded_after_s is not None and not callable(watching.limit.on_exceeded):
            callback._stops(run)

    return hook


@takes_options(Question, answer="watch")
def lightning_callback(
    model: object = None,
    *,
    gpu: str | None = None,
    out: str | PathLike[str] | None = None,
    report_after: int = 50,
    usd_per_hour: float | None = None,
    on: str | Sequence[str] = (),
    budget_usd: float | str | None = None,
    deadline: float | str | None = None,
    on_exceeded: str | Callable[[Watched], object] = STOP,
    **options: Any,
) -> Any:
    """Make a callback of PyTorch Lightning that prints predicted beside actual time, as `epochcast.watch` does.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The CNN inside the LightningModule. By default its child that holds all parameters, else the module itself.
    gpu, out, report_after, usd_per_hour, on, budget_usd, deadline
        As for `epochcast.watch`.
    on_exceeded : str or callable
        ``"stop"``: the run ends after the last epoch within the limit; ``"checkpoint"``: at the limit, with a
        checkpoint, ``epochcast.ckpt`` in the trainer's folder; a function is called with the last `Watched` there,
        and the run goes on unless it ends it.
    **options
        Those of `predictor.answers.question.Question`; they replace what was seen.

    Returns
    -------
    lightning.pytorch.Callback
        Its attribute `watched` holds the last `epochcast.watching.Watched`.

    Raises
    ------
    BackendUnavailableError
        If PyTorch Lightning is not installed.

    Examples
    --------
    >>> import epochcast
    >>> trainer = pl.Trainer(callbacks=[epochcast.lightning_callback(out="mine.csv")])  # doctest: +SKIP
    """
    limit = Limit(budget_usd, deadline, on_exceeded)
    prepared = _prepared(gpu, out, report_after, usd_per_hour, on, limit, options)
    base = _callback_class("Callback", "PyTorch Lightning", "lightning.pytorch", "pytorch_lightning")

    class EpochcastCallback(_Watching, base):  # type: ignore[misc, valid-type]
        """Watches `fit`."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Find the CNN and the training's length."""
            cnn = _cnn_inside(pl_module) if model is None else model
            loader, n_batches = trainer.train_dataloader, trainer.num_training_batches
            endless = n_batches == float("inf") or trainer.max_epochs == -1
            count = None if endless else int(n_batches)
            images, workers = getattr(loader, "dataset", None), getattr(loader, "num_workers", None)
            self.watching = prepared(cnn, count, max(1, trainer.max_epochs or 1), length_of(images), workers)

        _stoppable = 0  # the trainer
        on_train_epoch_start = _hook("waits")
        on_train_batch_end = _hook("ends", "waits", epoch_ends=False)
        on_train_epoch_end = _hook("ends_epoch", epoch_ends=True)

        def _stops(self, run: Any) -> None:
            run.should_stop = True
            if on_exceeded == CHECKPOINT:
                run.save_checkpoint(Path(run.default_root_dir) / "epochcast.ckpt")

        def on_train_batch_start(self, _trainer: Any, _module: Any, batch: Any, _index: int) -> None:
            """A batch is there."""
            if self.watching is not None:
                self.watching.starts(batch)

    return EpochcastCallback()


@takes_options(Question, answer="watch")
def trainer_callback(
    model: object = None,
    *,
    gpu: str | None = None,
    out: str | PathLike[str] | None = None,
    report_after: int = 50,
    usd_per_hour: float | None = None,
    on: str | Sequence[str] = (),
    budget_usd: float | str | None = None,
    deadline: float | str | None = None,
    on_exceeded: str | Callable[[Watched], object] = STOP,
    **options: Any,
) -> Any:
    """Make a callback of Hugging Face's `Trainer` that prints predicted beside actual time, as `epochcast.watch` does.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The CNN; by default the trainer's model. With gradient accumulation an iteration is one micro-batch.
    gpu, out, report_after, usd_per_hour, on, budget_usd, deadline
        As for `epochcast.watch`.
    on_exceeded : str or callable
        ``"stop"``: the run ends after the last epoch within the limit; ``"checkpoint"``: at the limit, with a
        checkpoint of the trainer; a function is called with the last `Watched` there, and the run goes on unless it
        ends it.
    **options
        Those of `predictor.answers.question.Question`; they replace what was seen.

    Returns
    -------
    transformers.TrainerCallback
        Its attribute `watched` holds the last `epochcast.watching.Watched`.

    Raises
    ------
    BackendUnavailableError
        If transformers is not installed.

    Examples
    --------
    >>> import epochcast
    >>> trainer = Trainer(..., callbacks=[epochcast.trainer_callback(out="mine.csv")])  # doctest: +SKIP
    """
    limit = Limit(budget_usd, deadline, on_exceeded)
    prepared = _prepared(gpu, out, report_after, usd_per_hour, on, limit, options)
    base = _callback_class("TrainerCallback", "transformers", "transformers")

    class EpochcastCallback(_Watching, base):  # type: ignore[misc, valid-type]
        """Watches `train`."""

        def on_train_begin(self, args: Any, state: Any, _control: Any, **training: Any) -> None:
            """Find the CNN and the training's length."""
            cnn, loader = training["model"] if model is None else model, training.get("train_dataloader")
            samples = length_of(getattr(loader, "dataset", None))
            epochs = 1 if samples is None else state.num_train_epochs
            n_batches = Fraction(state.max_steps * args.gradient_accumulation_steps, epochs)
            self.watching = prepared(cnn, n_batches, epochs, samples, args.dataloader_num_workers)

        _stoppable = 2  # the control
        on_epoch_begin = _hook("waits")
        on_step_begin = _hook("starts")
        on_substep_end = _hook("ends", "waits")
        on_step_end = _hook("ends", "waits", epoch_ends=False)
        on_epoch_end = _hook("ends_epoch", epoch_ends=True)

        def _stops(self, run: Any) -> None:
            run.should_save = run.should_training_stop = True

    return EpochcastCallback()


def _prepared(*about: Any) -> Callable[..., Watch]:
    """What makes a `Watch` of a CNN and its training's length; `about`, its other arguments, is checked now."""
    names = ("gpu", "out", "report_after", "usd_per_hour", "on", "limit", "options")
    prepared: Callable[..., Watch] = partial(Watch, **dict(zip(names, about, strict=True)))
    prepared()
    return prepared


def _callback_class(name: str, framework: str, *packages: str) -> Any:
    """The class of a framework's callbacks, from the first of its packages that is installed."""
    for package in packages:
        try:
            return getattr(import_module(package), name)
        except ImportError:
            continue
    message = f"{framework} is not installed: pip install {packages[0].partition('.')[0]}."
    raise BackendUnavailableError(message)


def _cnn_inside(module: Any) -> Any:
    """The child that holds all parameters of a LightningModule, which itself knows its trainer; else the module."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    for child in module.children():
        if parameters and sum(parameter.numel() for parameter in child.parameters()) == parameters:
            return child
    return module
