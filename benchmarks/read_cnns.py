"""Reads CNNs of torchvision, timm and Hugging Face, and lists the operators that are not counted.

All of torchvision that trains on single images, popular ones of timm, image models of Hugging Face.

Run it as `python benchmarks/read_cnns.py [torchvision] [timm] [transformers]`; a package that is not installed is left
out. Modules are made on PyTorch's meta device, so no weights are downloaded; each takes about a second.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from predictor.cnns.torch_module import from_torch
from predictor.errors import EpochcastError

NOT_IMAGES = ("mc3", "mvit", "r2plus1d", "r3d", "raft", "s3d", "swin3d", "quantized")  # clips, pairs, int8
COMPUTED = ("regnet_",)  # torchvision computes their widths with tensors
DETECTORS = (
    "fasterrcnn",
    "fcos",
    "keypoint",
    "maskrcnn",
    "retinanet",
    "ssd",
)  # refused, with the wrapper to write
TIMM = """
resnet18 resnet34 resnet50 resnet101 resnet18d resnet26d resnet50d resnet50t resnetaa50 resnetblur50
resnetrs50 resnetv2_50 resnetv2_50x1_bit seresnet50 seresnext50_32x4d ecaresnet50d ecaresnet50t
ecaresnetlight skresnet18 skresnet34 skresnext50_32x4d resnext50_32x4d resnest14d resnest50d
res2net50_26w_4s res2next50 gcresnet50t legacy_seresnet50 cspresnet50 cspresnext50 cspdarknet53
darknet53 densenet121 densenetblur121d vgg11 vgg16_bn efficientnet_b0 efficientnet_b3
efficientnet_lite0 efficientnet_em efficientnetv2_s tf_efficientnet_b0 tf_efficientnetv2_s
mobilenetv1_100 mobilenetv2_100 mobilenetv3_large_100 mobilenetv3_small_100 mobilenetv4_conv_small
mobilenetv4_hybrid_medium mobileone_s0 mobilevit_s mobilevitv2_100 mnasnet_100 semnasnet_100
spnasnet_100 fbnetc_100 mixnet_s mixnet_l regnetx_032 regnety_032 regnetz_d8 regnetv_040
convnext_tiny convnextv2_tiny convnextv2_atto inception_v3 inception_v4 inception_resnet_v2
inception_next_tiny xception41 nasnetalarge pnasnet5large dpn68 dla34 dla60 hrnet_w18 selecsls42b
rexnet_100 ghostnet_100 ghostnetv2_100 repvgg_a0 repghostnet_100 hardcorenas_a lcnet_050 tinynet_a
tresnet_m vovnet39a ese_vovnet19b_dw nf_resnet50 dm_nfnet_f0 eca_nfnet_l0 bat_resnext26ts
botnet26t_256 halonet26t lambda_resnet26t coatnet_0_rw_224 maxvit_tiny_rw_224 edgenext_small
focalnet_tiny_srf poolformer_s12 repvit_m1 fastvit_t8 starnet_s1 hgnet_tiny rdnet_tiny levit_128
efficientformer_l1 efficientvit_b0 convmixer_768_32 cs3darknet_m mambaout_tiny gernet_s
"""
TRANSFORMERS = """
ResNet ConvNext ConvNextV2 RegNet MobileNetV1 MobileNetV2 MobileViT MobileViTV2 EfficientNet Bit ViT
DeiT Beit Swin Swinv2 Pvt PvtV2 PoolFormer Segformer Levit Cvt FocalNet SwiftFormer Hiera TextNet
HGNetV2
"""
OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

Made = Iterator[tuple[str, Callable[[], Any], int]]


def main() -> int:
    import torch

    wanted = sys.argv[1:] or list(SOURCES)
    library = torch.library.Library(
        "torchvision", "DEF"
    )  # beside a PyTorch that its compiled part is not made for
    if not torch._C._dispatch_has_kernel("torchvision::nms"):
        for operator in OPERATORS:
            library.define(operator)
    failed = 0
    for source in wanted:
        try:
            importlib.import_module(source)
        except ImportError:
            print(f"{source}: not installed, left out")
            continue
        failed += report(source)
    return int(failed > 0)


def report(source: str) -> int:
    """Read every CNN of a source; prints those with operators of no known type, and counts them."""
    import torch

    read, lacking = 0, 0
    for name, make, image_size in SOURCES[source]():
        try:
            with torch.device("cpu" if name.startswith(COMPUTED) else "meta"):
                module = make()
            table = from_torch(module, image_size)
            unknown = [layer.name for layer in table if layer.type == "other"]
            said = f"not counted: {', '.join(unknown[:3])}" if unknown else ""
        except (EpochcastError, RuntimeError) as error:
            said = str(error)[:200]
        read += 1
        if said:
            lacking += 1
            print(f"{source} {name}: {said}")
    print(f"{source}: {read} read, {read - lacking} with every operator counted")
    return lacking


def of_torchvision() -> Made:
    import torchvision

    for name in torchvision.models.list_models():
        if name.startswith((*NOT_IMAGES, *DETECTORS)):
            continue
        options: dict[str, Any] = {"weights": None}
        options |= {"weights_backbone": None} if name.startswith(("deeplab", "fcn", "lraspp")) else {}
        options |= {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        size = 299 if name == "inception_v3" else 224
        yield name, lambda name=name, options=options: torchvision.models.get_model(name, **options), size


def of_timm() -> Made:
    import timm

    for name in TIMM.split():
        size = timm.get_pretrained_cfg(name).input_size[-1] if timm.is_model(name) else 224
        yield name, lambda name=name: timm.create_model(name, pretrained=False), size


def of_transformers() -> Made:
    import transformers

    for name in TRANSFORMERS.split():
        config = getattr(transformers, f"{name}Config")()
        size = getattr(config, "image_size", None) or 224
        model = getattr(transformers, f"{name}ForImageClassification")
        yield (
            name,
            lambda model=model, config=config: model(config),
            size if isinstance(size, int) else size[0],
        )


SOURCES: dict[str, Callable[[], Made]] = {
    "torchvision": of_torchvision,
    "timm": of_timm,
    "transformers": of_transformers,
}


if __name__ == "__main__":
    sys.exit(main())
