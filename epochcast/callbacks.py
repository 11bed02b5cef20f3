"""Callbacks that watch trainings of PyTorch Lightning and Hugging Face's Trainer, as `epochcast.watch` does a loop."""

from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from typing import Any

from epochcast.signatures import takes_options
from epochcast.watching import Watch, Watched, check_seen, length_of
from predictor.answers.question import Question
from predictor.checks import as_list, whole_number
from predictor.errors import BackendUnavailableError


class _Watching:
    """Hooks that both frameworks' callbacks share; they do nothing before a training has begun."""

    watching: Watch | None = None

    @property
    def watched(self) -> Watched | None:
        """The last line as data; None before the first."""
        return None if self.watching is None else self.watching.watched

    def _waits(self, *_: Any, **__: Any) -> None:
        """The first batch of an epoch is asked for."""
        if self.watching is not None:
            self.watching.waits()

    def _starts(self, *batch: Any) -> None:
        """A batch is there."""
        if self.watching is not None:
            self.watching.starts(*batch)

    def _ends(self, *_: Any, **__: Any) -> None:
        """An iteration is over, and the next batch is asked for."""
        if self.watching is not None:
            self.watching.ends()
            self.watching.waits()

    def _ends_epoch(self, *_: Any, **__: Any) -> None:
        """An epoch is over."""
        if self.watching is not None:
            self.watching.ends_epoch()


@takes_options(Question, answer="watch")
def lightning_callback(
    model: object = None,
    *,
    gpu: str | None = None,
    out: str | PathLike[str] | None = None,
    report_after: int = 50,
    usd_per_hour: float | None = None,
    on: str | Sequence[str] = (),
    **options: Any,
) -> Any:
    """Make a callback of PyTorch Lightning that prints predicted beside actual time, as `epochcast.watch` does.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The CNN inside the LightningModule. By default its child that holds all parameters, else the module itself.
    gpu, out, report_after, usd_per_hour, on
        As for `epochcast.watch`.
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
    watch_options = _watch_arguments(gpu, out, report_after, usd_per_hour, on, options)
    base = _callback_class("Callback", "PyTorch Lightning", "lightning.pytorch", "pytorch_lightning")

    class EpochcastCallback(_Watching, base):  # type: ignore[misc, valid-type]
        """Watches `fit`."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Find the CNN and the training's length."""
            self.watching = Watch(
                _cnn_inside(pl_module) if model is None else model,
                n_batches=_finite(trainer.num_training_batches),
                epochs=max(1, trainer.max_epochs or 1),
                workers=getattr(trainer.train_dataloader, "num_workers", None),
                samples=length_of(getattr(trainer.train_dataloader, "dataset", None)),
                **watch_options,
            )

        on_train_epoch_start = _Watching._waits
        on_train_batch_end = _Watching._ends
        on_train_epoch_end = _Watching._ends_epoch

        def on_train_batch_start(self, _trainer: Any, _module: Any, batch: Any, _index: int) -> None:
            """A batch is there."""
            self._starts(batch)

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
    **options: Any,
) -> Any:
    """Make a callback of Hugging Face's `Trainer` that prints predicted beside actual time, as `epochcast.watch` does.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The CNN; by default the trainer's model. With gradient accumulation an iteration is one micro-batch.
    gpu, out, report_after, usd_per_hour, on
        As for `epochcast.watch`.
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
    watch_options = _watch_arguments(gpu, out, report_after, usd_per_hour, on, options)
    base = _callback_class("TrainerCallback", "transformers", "transformers")

    class EpochcastCallback(_Watching, base):  # type: ignore[misc, valid-type]
        """Watches `train`."""

        def on_train_begin(self, args: Any, state: Any, _control: Any, **training: Any) -> None:
            """Find the CNN and the training's length."""
            loader = training.get("train_dataloader")
            self.watching = Watch(
                training["model"] if model is None else model,
                n_batches=state.max_steps * args.gradient_accumulation_steps,
                workers=args.dataloader_num_workers,
                samples=length_of(getattr(loader, "dataset", None)),
                **watch_options,
            )

        on_epoch_begin = _Watching._waits
        on_substep_end = on_step_end = _Watching._ends
        on_epoch_end = _Watching._ends_epoch

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            """A batch is there."""
            self._starts()

    return EpochcastCallback()


def _watch_arguments(
    gpu: Any, out: Any, report_after: Any, usd_per_hour: Any, on: Any, options: Any
) -> dict[str, Any]:
    """Arguments of `Watch` from those of a callback, checked before the training begins."""
    check_seen(options)
    return {
        "gpu": gpu,
        "out": out,
        "report_after": whole_number("report_after", report_after),
        "usd_per_hour": usd_per_hour,
        "on": [str(name) for name in as_list(on)],
        "options": options,
    }


def _callback_class(name: str, framework: str, *packages: str) -> Any:
    """The class of a framework's callbacks, from the first of its packages that is installed."""
    for package in packages:
        try:
            return getattr(import_module(package), name)
        except ImportError:
            continue
    raise BackendUnavailableError(
        f"{framework} is not installed: pip install {packages[0].partition('.')[0]}."
    )


def _cnn_inside(module: Any) -> Any:
    """The child that holds all parameters of a LightningModule, which itself knows its trainer; else the module."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    for child in module.children():
        if parameters and sum(parameter.numel() for parameter in child.parameters()) == parameters:
            return child
    return module


def _finite(count: float) -> int | None:
    return int(count) if count != float("inf") else None
