"""Peak memory of steps that overwrite maps, derive weights or free gradients late, beside PyTorch's own storages."""

import weakref

import numpy as np
import pytest
from own_module import own_module

import epochcast
from predictor.catalogue.modes import Mode
from predictor.operators.memory import CONTEXT_GIB, _law, peak_memory_gib

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional


class Storages(torch.utils._python_dispatch.TorchDispatchMode):
    """Bytes of the tensors that are alive, and the most that were."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self._known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        torch.utils._pytree.tree_map_only(torch.Tensor, self._add, result)
        return result

    def _add(self, tensor):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key, size):
        self._known.discard(key)
        self.now -= size


def sgd(*modules):
    return torch.optim.SGD([p for module in modules for p in module.parameters()], 0.1, momentum=0.9)


def trained(module, shape):
    images, optimizer = torch.zeros(shape), sgd(module)

    def step():
        optimizer.zero_grad()
        module(images).mean().backward()
        optimizer.step()

    return step


def convolutions(*between, conv=nn.Conv2d):
    """Three convolutions with something behind each of the first two."""
    return nn.Sequential(
        conv(3, 32, 3, padding=1), *between, conv(32, 32, 3, padding=1), *between, conv(32, 8, 3, padding=1)
    )


def leaky(in_place):
    return trained(convolutions(nn.BatchNorm2d(32), nn.LeakyReLU(0.1, in_place)), (8, 3, 64, 64))


def instance_norms(in_place):
    norm = nn.InstanceNorm3d(32, affine=True)
    return trained(convolutions(norm, nn.LeakyReLU(0.1, in_place), conv=nn.Conv3d), (2, 3, 16, 24, 24))


class Standardised(nn.Conv2d):
    def forward(self, x):
        weight = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        weight = weight / (self.weight.std(dim=(1, 2, 3), keepdim=True) + 1e-5)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


def normalised_classes():
    def forward(self, x):
        features = self.body(x).mean(dim=(2, 3))
        return functional.linear(functional.normalize(features), functional.normalize(self.weight))

    parts = {"body": nn.Conv2d(3, 64, 3), "weight": nn.Parameter(torch.zeros(20_000, 64))}
    return own_module(torch, forward, **parts)


def standardised():
    layers = [Standardised(256, 256, 3, padding=1) for _ in range(4)]
    return trained(nn.Sequential(nn.Conv2d(3, 256, 1), *layers), (1, 3, 8, 8))


def freed_before_the_backward_pass():
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 30 * 30, 500))
    images, optimizer = torch.zeros(64, 3, 32, 32), sgd(module)

    def step():
        loss = module(images).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def two_networks():
    """A generator whose gradients are freed after the discriminator's step, as in pix2pix."""
    wide = nn.Sequential(
        nn.Conv2d(3, 600, 1), *(nn.Conv2d(600, 600, 3, padding=1) for _ in range(2)), nn.Conv2d(600, 3, 1)
    )
    judge = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.Conv2d(64, 1, 3))
    images, optimizers = torch.zeros(2, 3, 64, 64), [sgd(wide), sgd(judge)]

    def step():
        made = wide(images)
        optimizers[1].zero_grad()
        (judge(made.detach()).mean() - judge(images).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        judge(made).mean().backward()
        optimizers[0].step()

    return step


STEPS = {
    "leaky, in place": lambda: leaky(True),
    "leaky": lambda: leaky(False),
    "instance norms, in place": lambda: instance_norms(True),
    "instance norms": lambda: instance_norms(False),
    "standardised weights": standardised,
    "normalised classes": lambda: trained(normalised_classes(), (4, 3, 16, 16)),
    "freed before the backward pass": freed_before_the_backward_pass,
    "two networks": two_networks,
}


def measured_bytes(make):
    """The most bytes of storages in a second step, without numbers."""
    with torch._subclasses.fake_tensor.FakeTensorMode(), Storages() as storages:
        step = make()
        step()
        storages.peak = storages.now
        step()
    return storages.peak


@pytest.mark.parametrize("name", STEPS)
def test_the_peak_is_that_of_pytorchs_storages_within_3_percent(name):
    table = epochcast.record(STEPS[name]())
    law = _law(table, Mode(optimizer="momentum"))
    kept, gradients, workspace = law.images
    copies = [0.0 if layer.overwrites != 2 else need for layer, need in zip(table, workspace, strict=False)]
    copies += [0.0] * (len(workspace) - len(table))  # convolutions' workspaces are cuDNN's
    steps = law.fixed + table.step.batch_size * (kept + gradients + np.array(copies))
    expected = law.weights + law.optimizer_state + steps.max()
    assert expected == pytest.approx(measured_bytes(STEPS[name]), rel=0.03)


def twice(ins, outs):
    pairs = ((nn.Conv2d(a, outs, 3, padding=1, bias=False), nn.BatchNorm2d(outs)) for a in (ins, outs))
    return nn.Sequential(*(layer for pair in pairs for layer in (*pair, nn.ReLU(True))))


class UNet(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.last = dtype, nn.Conv2d(64, 2, 1)
        self.down = nn.ModuleList(map(twice, (3, 64, 128, 256), (64, 128, 256, 512)))
        self.up = nn.ModuleList(map(twice, (768, 384, 192), (256, 128, 64)))

    def forward(self, x):
        with torch.autocast("cuda", self.dtype, enabled=self.dtype is not None):
            maps = [self.down[0](x)]
            for down in self.down[1:]:
                maps.append(down(functional.max_pool2d(maps[-1], 2)))
            x = maps.pop()
            for up in self.up:
                x = up(torch.cat([functional.interpolate(x, scale_factor=2), maps.pop()], 1))
            return self.last(x)


@pytest.mark.parametrize(("dtype", "measured_gib"), [(None, 4.935), (torch.float16, 2.924)])
def test_a_u_net_whose_maps_autocast_widens_takes_what_an_h100_took(dtype, measured_gib):
    """`torch.cuda.max_memory_allocated` of PyTorch 2.11 on 2026-11-28."""
    table = epochcast.record(trained(UNet(dtype), (16, 3, 224, 224)))
    estimate = peak_memory_gib(table, 16, Mode(precision="amp_fp16" if dtype else "tf32"))
    assert estimate - CONTEXT_GIB == pytest.approx(measured_gib, rel=0.01)
