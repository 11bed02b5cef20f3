"""Nineteen steps of networks that resize maps or freeze norms: `--forecast FILE` here, then `--measure FOLDER SECONDS` on a GPU."""
# ruff: noqa
FORECAST = r"""import sys, warnings; warnings.simplefilter("ignore"); sys.path[:0] = ["tests", "benchmarks"]
from torchvision_import import import_torchvision; import_torchvision()
import csv, epochcast
from resizing_steps import STEPS
with open(sys.argv[1], "w", newline="") as f:
    w = csv.writer(f); w.writerow("step gpu host gpu_time_ms gpu_low_ms gpu_high_ms iteration_time_ms peak_memory_gib error".split())
    for name, make in STEPS.items():
        try:
            table = epochcast.record(make())
            for gpu in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"):
                r = epochcast.predict(table, gpu).iloc[0]; w.writerow([name, gpu, "", r.gpu_time_ms, r.gpu_low_ms, r.gpu_high_ms, r.iteration_time_ms, r.peak_memory_gib, ""])
        except Exception as e: w.writerow([name, "NVIDIA H100 80GB HBM3", *[""] * 6, str(e)[:200]]); print(name, str(e)[:200])
        f.flush()
"""
MEASURE = r"""import csv, sys, time, warnings, gc; warnings.simplefilter("ignore"); sys.path.insert(0, "benchmarks")
from pathlib import Path
import torch; from resizing_steps import STEPS
out = Path(sys.argv[1]); limit = float(sys.argv[2]); began = time.perf_counter()
with open(out / "resizers.csv", "w", newline="") as f:
    w = csv.writer(f); w.writerow("step gpu torch gpu_time_ms iteration_time_ms kernels peak_allocated_gib error".split())
    for name, make in STEPS.items():
        if time.perf_counter() - began > limit: print("over at", name); break
        torch.manual_seed(0); row = [name, torch.cuda.get_device_name(), torch.__version__]
        try:
            with torch.device("cuda"): step = make()
            for _ in range(5): step()
            torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
            t = time.perf_counter()
            for _ in range(8): step()
            torch.cuda.synchronize(); wall = (time.perf_counter() - t) / 8e-3; peak = torch.cuda.max_memory_allocated() / 2**30
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
                for _ in range(3): step()
                torch.cuda.synchronize()
            events = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            w.writerow([*row, round(sum(e.time_range.elapsed_us() for e in events) / 3e3, 4), round(wall, 3), len(events) // 3, round(peak, 4), ""])
        except Exception as e: w.writerow([*row, "", "", "", "", repr(e)[:150]]); print(name, repr(e)[:200])
        f.flush(); step = None; gc.collect(); torch.cuda.empty_cache()
print(time.perf_counter() - began)
"""
"""Steps of networks that resize maps, and frozen norms under AMP."""
import torch, torchvision
from torch import nn
from torch.nn import functional as F
def loop(model, images, loss, amp=None, last=False, optimizer=None):
    if last: model = model.to(memory_format=torch.channels_last); images = images.contiguous(memory_format=torch.channels_last)
    opt = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=amp is torch.float16)
    def step():
        opt.zero_grad()
        with torch.autocast("cuda", amp or torch.bfloat16, enabled=amp is not None):
            value = loss(model(images))
        scaler.scale(value).backward(); scaler.step(opt); scaler.update()
    return step
class Unet(nn.Module):
    def __init__(self, mode, widths=(32, 64, 128, 256, 512)):
        super().__init__(); self.mode = mode
        def block(a, b): return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True), nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))
        self.down = nn.ModuleList(block(a, b) for a, b in zip((3, *widths), widths)); self.up = nn.ModuleList(block(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1])); self.head = nn.Conv2d(widths[0], 21, 1)
    def forward(self, x):
        maps = []
        for i, d in enumerate(self.down):
            x = d(F.max_pool2d(x, 2) if i else x); maps.append(x)
        for u, skip in zip(self.up, maps[-2::-1]):
            x = u(torch.cat([F.interpolate(x, scale_factor=2, mode=self.mode), skip], 1))
        return self.head(x)
BF, HF = torch.bfloat16, torch.float16
def segment(make, n, side, classes=21, out=False, **more):
    def step():
        model = make().train(); x, y = torch.rand(n, 3, side, side), torch.randint(classes, (n, side, side))
        return loop(model, x, lambda o: F.cross_entropy(o["out"] if out else o, y), **more)
    return step
def classify(make, n, side=224, **more):
    def step():
        model = make().train(); x, y = torch.rand(n, 3, side, side), torch.randint(1000, (n,))
        return loop(model, x, lambda o: F.cross_entropy(o, y), **more)
    return step
def timm_(name, **k):
    import timm; return timm.create_model(name, pretrained=False, **k)
class Pyramid(nn.Module):
    def __init__(self):
        super().__init__(); self.net = torchvision.models.detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5)
    def forward(self, x): return sum(v.float().square().mean() for v in self.net(x).values())
class Frozen(nn.Module):
    def __init__(self, name):
        super().__init__(); self.net = getattr(torchvision.models, name)(norm_layer=torchvision.ops.FrozenBatchNorm2d)
    def forward(self, x): return self.net(x)
class Hr(nn.Module):
    def __init__(self):
        super().__init__(); self.net = timm_("hrnet_w18", features_only=True, feature_location=""); 
    def forward(self, x): return sum(v.float().square().mean() for v in self.net(x))
def plain(make, n, side, **more):
    def step():
        model = make().train(); x = torch.rand(n, 3, side, side)
        return loop(model, x, lambda o: o, **more)
    return step
seg = torchvision.models.segmentation
STEPS = {
    "unet_bilinear_tf32": segment(lambda: Unet("bilinear"), 8, 256),
    "unet_nearest_tf32": segment(lambda: Unet("nearest"), 8, 256),
    "unet_bilinear_amp_cl": segment(lambda: Unet("bilinear"), 16, 256, amp=HF, last=True),
    "unet_bilinear_amp": segment(lambda: Unet("bilinear"), 8, 256, amp=HF),
    "unet_nearest_amp_cl": segment(lambda: Unet("nearest"), 16, 256, amp=BF, last=True),
    "deeplab_tf32": segment(lambda: seg.deeplabv3_resnet50(weights=None, weights_backbone=None), 8, 256, out=True),
    "deeplab_amp_cl": segment(lambda: seg.deeplabv3_resnet50(weights=None, weights_backbone=None), 8, 256, out=True, amp=HF, last=True),
    "fcn_amp": segment(lambda: seg.fcn_resnet50(weights=None, weights_backbone=None), 16, 224, out=True, amp=HF),
    "lraspp_tf32": segment(lambda: seg.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None), 32, 256, out=True),
    "ghostnetv2_tf32": classify(lambda: timm_("ghostnetv2_100"), 64),
    "ghostnetv2_amp_cl": classify(lambda: timm_("ghostnetv2_100"), 64, amp=HF, last=True),
    "hrnet_tf32": plain(Hr, 32, 224),
    "hrnet_amp_cl": plain(Hr, 32, 224, amp=BF, last=True),
    "fpn_tf32": plain(Pyramid, 16, 320),
    "fpn_amp": plain(Pyramid, 16, 320, amp=HF),
    "frozen_resnet50_amp": classify(lambda: Frozen("resnet50"), 64, amp=HF),
    "frozen_resnet50_tf32": classify(lambda: Frozen("resnet50"), 64),
    "pvt_amp": classify(lambda: timm_("pvt_v2_b1"), 32, amp=BF),
    "convnext_adam": classify(lambda: torchvision.models.convnext_tiny(), 32, optimizer=None),
}
