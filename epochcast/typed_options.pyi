"""The options of each function as type checkers and completion read them.

`epochcast.predict(cnn, gpu, **options)` takes `PredictOptions`, and so on. What an option means is declared once
(`predictor.answers.question`): `python -m epochcast.signatures` prints this file, and a test compares.
"""
# fmt: off
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import pandas as pd

    from predictor.catalogue.offers import Offer
    from predictor.models.forecast import Anchor
    from predictor.models.served import Model


class _OfPredictCompareExplainParallelMemoryWatch(TypedDict, total=False):
    image_size: int | None
    """Side of the square images in pixels. By default the data set's or the CNN's."""
    data_set: str | None
    """A known data set, such as cifar100 or imagenet."""
    precision: Literal["fp32", "tf32", "fp16", "amp_fp16", "amp_bf16"] | None
    """fp32, tf32, fp16, amp_fp16, amp_bf16. By default what the framework does: tf32 where the GPU has it, else fp32."""


class _OfPredictCompareExplain(TypedDict, total=False):
    samples: int | None
    """Training samples per epoch; of a data set, if one is given. By default all of the data set's."""


class _OfPredictCompare(TypedDict, total=False):
    validation_samples: int
    """Add a forward pass over N samples to each epoch."""
    drop_last: bool
    """An epoch has no last mini-batch of fewer images."""
    framework_loop: Literal["timm", "fastai", "lightning", "transformers", "accelerate", "ultralytics", "nnunet", "keras"] | None
    """Whose loop trains, which counts an epoch's iterations in its own way: timm, fastai, lightning, transformers, accelerate, ultralytics, nnunet, keras. By default a PyTorch loader's."""
    no_cudnn: bool
    """Chainer without cuDNN: im2col and matrix products."""
    workspace_mib: float
    """Memory that Chainer allows cuDNN for a convolution, in MiB."""
    marketplaces: bool
    """Count marketplaces, whose hosts differ, for GPUs that clouds rent, too."""
    usd_per_hour: float | str | None
    """US$ per hour of a machine of your own, instead of offers (`epochcast offer own` works it out). By default the offers' prices."""
    region: str | None
    """Whose electricity CO2 is counted of: a cloud's region (us-central1), or a country's ISO code (FRA). By default the offer's, where it is known."""


class _OfPredictCompareExplainParallelWatch(TypedDict, total=False):
    float32_matmul_precision: Literal["highest", "high"] | None
    """PyTorch's matrix products in tf32: highest computes them in fp32, high in TF32. By default highest, as PyTorch does."""
    memory_format: Literal["nchw", "channels_last"] | None
    """nchw, channels_last. By default what the framework does: channels_last in TensorFlow's AMP, else nchw."""
    framework: Literal["pytorch", "tensorflow", "chainer"]
    """pytorch, tensorflow, chainer."""
    autotune: bool
    """cuDNN times its algorithms and takes the fastest."""
    capture: Literal["eager", "graph", "static_graph", "compile", "compile_graph"]
    """eager, graph, static_graph, compile, compile_graph."""
    host: str | None
    """The machine around the GPU, which enqueues its kernels: a name, or a file of `epochcast host` or `profile`. By default a usual machine."""
    anchors: Iterable[Anchor | Mapping[str, Any]]
    """Measurements of this CNN to predict from."""
    measurements: pd.DataFrame | str | PathLike[str] | None
    """A measurement table of your own (epochcast profile): its operators are summed, its CNNs are anchors."""
    method: Literal["auto", "gpu-specs", "proxy-times", "layer-times", "roofline", "anchored", "flops-ratio"]
    """auto, gpu-specs, proxy-times, layer-times, roofline, anchored, flops-ratio."""


class _OfPredictCompareExplainMemoryWatch(TypedDict, total=False):
    optimizer: Literal["sgd", "momentum", "adam", "adamw", "nadam", "rmsprop", "adadelta", "adagrad", "lamb"]
    """sgd, momentum, adam, adamw, nadam, rmsprop, adadelta, adagrad, lamb."""


class _OfPredictCompareExplainMemory(TypedDict, total=False):
    gradient_accumulation: int
    """Parts of each GPU's share of the batch size, which run one after the other before the optimizer steps."""


class _OfPredictCompareParallelWatch(TypedDict, total=False):
    n_gpus: int
    """GPUs that train together; the batch size is that of all of them."""
    nodes: int
    """Machines that these GPUs are spread over evenly."""
    link: str | None
    """What joins the GPUs, or the machines: a name of links.csv, such as nvlink4 or ethernet_25g. By default the offer's, else the usual one of the GPU."""
    sync_batch_norm: bool
    """Batch norms take the statistics of all GPUs' images."""
    offers: str | PathLike[str] | Sequence[Offer] | None
    """Your own price file, with the columns of offers.csv. By default the shipped prices."""
    spot: bool
    """Use spot prices."""
    provider: str | Sequence[str] | None
    """Offers of these providers only (aws,gcp), or of all but those with ! (!vast); marketplaces count if named. By default all."""
    offer_region: str | Sequence[str] | None
    """Offers there only: a provider's region or its beginning (us-east), eu, europe, us, america, asia, australia, africa, or any, of offers that name no place; ! leaves out. By default everywhere."""


class _OfPredictCompareWatch(TypedDict, total=False):
    parallel: Literal["ddp", "dp"]
    """What spreads the mini-batch over GPUs: ddp, PyTorch's DistributedDataParallel with a process per GPU, or dp, nn.DataParallel with one process."""
    workers: int | str | None
    """Processes that load images for each GPU (num_workers of a DataLoader), or on each machine: 6/machine; 0 loads between iterations. By default loading is not counted; if another of these options is given, as many as the offer's vCPUs keep busy."""
    loader: str | PathLike[str] | None
    """What decodes images (torchvision, pillow_simd, dali), or images/s of a worker (300/worker) or of all of a machine (2000/machine), or the .json file of `epochcast profile input`; none leaves loading out, as with images on the GPU. By default torchvision."""
    data_source: Literal["folder", "nfs", "lmdb", "hdf5", "memory"] | None
    """Where images are read from: folder, nfs, lmdb, hdf5, memory. By default reading is taken as faster than decoding."""


class _OfPredictCompareExplainWatch(TypedDict, total=False):
    deterministic: bool
    """torch.use_deterministic_algorithms(True), which fills each new tensor with NaN."""
    detect_anomaly: bool
    """torch.autograd.set_detect_anomaly(True), which looks for NaN in gradients."""


class _OfPredictCompareMemory(TypedDict, total=False):
    per_gpu: int | str
    """Trainings that share each GPU, a process each, without MPS; auto takes the number that costs least."""


class _OfPredict(TypedDict, total=False):
    beside: str | Sequence[str] | None
    """What else trains on each GPU, without MPS: CNN:BATCH or CNN@SIZE:BATCH, such as resnet50:64; of several resnet50:64,vgg16:32."""


class _OfPredictCompareExplainParallel(TypedDict, total=False):
    model: Model | str | PathLike[str] | None
    """A model that `epochcast fit` wrote. By default the shipped one."""


class _OfCompare(TypedDict, total=False):
    epochs: int
    """Epochs to train."""
    budget_usd: float | str | None
    """US$ that the training may cost."""
    deadline_h: float | str | None
    """Hours that it may take; 90min, 1h30m, 2d and 3 weeks are understood, too."""
    trials: int | None
    """Trainings of a parameter search, per_gpu at a time on each GPU of an offer. By default one, or as many as share a GPU."""
    setup_minutes: float
    """Minutes that are paid before training starts."""
    interruptions_per_day: float | None
    """How often spot machines are taken away, as you expect it; a restart takes the set-up minutes. By default none are counted."""
    checkpoint_seconds: float | None
    """Seconds that writing a checkpoint takes."""
    checkpoint_minutes: float | None
    """Minutes of training between checkpoints. By default those that lose the least, by Young's formula."""
    relative_to: str | None
    """GPU to compare the others with."""
    rank_by: Literal["cost", "time"]
    """cost, time."""
    all_offers: bool
    """Rank every offer, not only the cheapest of each GPU."""


class _OfProfile(TypedDict, total=False):
    framework: str
    """pytorch or chainer."""
    precisions: str | Sequence[str]
    """fp32, tf32, amp_fp16, amp_bf16; repeat it, or write tf32,amp_bf16. By default the preset's."""
    memory_formats: str | Sequence[str]
    """nchw or channels_last; repeat it. By default the preset's."""
    capture: str
    """eager, graph, static_graph, compile, or some: eager,compile."""
    autotune: bool
    """cuDNN times its algorithms first."""
    batch_sizes: int | str | Sequence[int | str]
    """Mini-batch size; repeat it, or write 32,64. By default the preset's."""
    limit: int | None
    """Measure only the first N configurations."""
    device: str
    """cuda, cuda:N or cpu."""
    gpus: str | None
    """Several GPUs at once: all, or 0,1. They must be alike."""
    scheduler: str | None
    """Work on the Dask cluster of this scheduler, such as tcp://10.0.0.5:8786; needs epochcast[fleet]."""
    time_limit: str | None
    """Stop after this time: 180s, 3min, 1h."""
    longest: str
    """A longer iteration ends the batch sizes of its CNN."""
    allow_noise: bool
    """Measure on a busy GPU, and note it in the rows, as is always done on a CPU."""


class PredictOptions(_OfPredictCompareExplainParallelMemoryWatch, _OfPredictCompareExplain, _OfPredictCompare, _OfPredictCompareExplainParallelWatch, _OfPredictCompareExplainMemoryWatch, _OfPredictCompareExplainMemory, _OfPredictCompareParallelWatch, _OfPredictCompareWatch, _OfPredictCompareExplainWatch, _OfPredictCompareMemory, _OfPredict, _OfPredictCompareExplainParallel, total=False):
    """Options of `predict`."""


class CompareOptions(_OfPredictCompareExplainParallelMemoryWatch, _OfPredictCompareExplain, _OfPredictCompare, _OfPredictCompareExplainParallelWatch, _OfPredictCompareExplainMemoryWatch, _OfPredictCompareExplainMemory, _OfPredictCompareParallelWatch, _OfPredictCompareWatch, _OfPredictCompareExplainWatch, _OfPredictCompareMemory, _OfPredictCompareExplainParallel, _OfCompare, total=False):
    """Options of `compare`."""


class ExplainOptions(_OfPredictCompareExplainParallelMemoryWatch, _OfPredictCompareExplain, _OfPredictCompareExplainParallelWatch, _OfPredictCompareExplainMemoryWatch, _OfPredictCompareExplainMemory, _OfPredictCompareExplainWatch, _OfPredictCompareExplainParallel, total=False):
    """Options of `explain`."""


class ParallelOptions(_OfPredictCompareExplainParallelMemoryWatch, _OfPredictCompareExplainParallelWatch, _OfPredictCompareParallelWatch, _OfPredictCompareExplainParallel, total=False):
    """Options of `parallel`."""


class MemoryOptions(_OfPredictCompareExplainParallelMemoryWatch, _OfPredictCompareExplainMemoryWatch, _OfPredictCompareExplainMemory, _OfPredictCompareMemory, total=False):
    """Options of `memory`."""


class WatchOptions(_OfPredictCompareExplainParallelMemoryWatch, _OfPredictCompareExplainParallelWatch, _OfPredictCompareExplainMemoryWatch, _OfPredictCompareParallelWatch, _OfPredictCompareWatch, _OfPredictCompareExplainWatch, total=False):
    """Options of `watch`."""


class ProfileOptions(_OfProfile, total=False):
    """Options of `profile`."""
