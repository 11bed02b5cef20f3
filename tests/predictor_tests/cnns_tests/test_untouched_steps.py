"""Recording a step changes nothing that the step reaches, whatever it assigns, also when it fails."""

import csv
import random

import pytest

from predictor.cnns.torch_step import record
from predictor.errors import SchemaError

CALLS = 0


class World:
    """A model in training, and things around it that steps change."""

    def __init__(self, torch, folder):
        nn = torch.nn
        self.torch, self.folder = torch, folder
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)
        )
        self.other = nn.Conv2d(3, 8, 3)
        self.model.register_buffer("center", torch.ones(5))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, 0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.images, self.labels = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
        self.losses, self.meter, self.order = [], {"total": 0.0}, [*range(9)]
        self.train()

    def train(self):
        self.optimizer.zero_grad()
        loss = self.torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def tensors(self):
        state = [
            tensor
            for state_of_parameter in self.optimizer.state.values()
            for tensor in state_of_parameter.values()
        ]
        grads = [p.grad for p in self.model.parameters()]
        kept = [*self.model.parameters(), *self.model.buffers(), *self.other.parameters(), *state, *grads]
        return [tensor for tensor in kept if self.torch.is_tensor(tensor)]

    def picture(self):
        numpy = pytest.importorskip("numpy")
        tensors = self.tensors()
        return {
            "identity": list(map(id, tensors)),
            "place": [(t.device.type, t.data_ptr(), t.shape, t.dtype, t.requires_grad) for t in tensors],
            "values": [t.tolist() for t in tensors],
            "attributes": [sorted(vars(m)) for m in self.model.modules()],
            "names": [name for name, _ in self.model.named_parameters()],
            "training": [m.training for m in self.model.modules()],
            "groups": [{k: v for k, v in g.items() if k != "params"} for g in self.optimizer.param_groups],
            "scheduler": self.scheduler.state_dict(),
            "random": (random.getstate(), str(numpy.random.get_state()), self.torch.get_rng_state().tolist()),
            "log": (list(self.losses), dict(self.meter), list(self.order), CALLS),
            "files": {path.name: path.read_bytes() for path in self.folder.iterdir()},
        }


def data_of_parameters(w):
    def step():
        w.train()
        for p in w.model.parameters():
            p.data = p.data - 0.1 * p.grad

    return step


def average_applied_and_restored(w):
    shadow = {name: p.data.clone() for name, p in w.model.named_parameters()}

    def step():
        w.train()
        for name, p in w.model.named_parameters():
            shadow[name] = 0.99 * shadow[name] + 0.01 * p.data
        backup = {name: p.data for name, p in w.model.named_parameters()}
        for name, p in w.model.named_parameters():
            p.data = shadow[name]
        w.model(w.images)
        for name, p in w.model.named_parameters():
            p.data = backup[name]

    w.shadow = shadow
    return step


def vector_of_parameters(w):
    utils = w.torch.nn.utils

    def step():
        w.train()
        vector = utils.parameters_to_vector(w.model.parameters())
        utils.vector_to_parameters(vector * 0.9, w.model.parameters())

    return step


def buffer_assigned(w):
    def step():
        w.train()
        w.model.center = 0.9 * w.model.center + 0.1 * w.model(w.images).detach().mean(0)

    return step


def new_parameter_of_a_layer(w):
    def step():
        w.model[0].weight = w.torch.nn.Parameter(w.model[0].weight * 0.5)
        w.train()

    return step


def sharpness_aware(w):
    torch = w.torch

    class SAM(torch.optim.Optimizer):
        def __init__(self, params, base, **kwargs):
            super().__init__(params, {"rho": 0.05, **kwargs})
            self.base_optimizer = base(self.param_groups, **kwargs)
            self.param_groups = self.base_optimizer.param_groups
            self.defaults.update(self.base_optimizer.defaults)

        @torch.no_grad()
        def first_step(self):
            grads = [p.grad.norm(p=2) for group in self.param_groups for p in group["params"]]
            norm = torch.norm(torch.stack(grads), p=2)
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["old_p"] = p.data.clone()
                    p.add_(p.grad * (group["rho"] / (norm + 1e-12)).to(p))
            self.zero_grad()

        @torch.no_grad()
        def second_step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data = self.state[p]["old_p"]
            self.base_optimizer.step()
            self.zero_grad()

        def step(self, closure=None):
            raise NotImplementedError

    w.optimizer = SAM(w.model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)

    def loss():
        torch.nn.functional.cross_entropy(w.model(w.images), w.labels).backward()

    def step():
        loss()
        w.optimizer.first_step()
        loss()
        w.optimizer.second_step()

    return step


def plain_attributes(w):
    def step():
        w.model.last_features = w.model[0](w.images)
        w.model.steps = getattr(w.model, "steps", 0) + 1
        w.loss = w.train()

    return step


def scheduler(w):
    def step():
        w.train()
        w.scheduler.step()

    return step


def random_of_python(w):
    def step():
        w.train()
        random.shuffle(w.order)

    return step


def random_of_numpy(w):
    numpy = pytest.importorskip("numpy")
    w.rng = numpy.random.default_rng(0)

    def step():
        numpy.random.rand(3)
        w.rng.random()
        w.train()

    return step


def random_of_torch(w):
    def step():
        w.torch.manual_seed(3)
        w.images = w.images + w.torch.randn_like(w.images)
        w.train()

    return step


def saved_to_a_file(w):
    path = w.folder / "last.pt"
    path.write_bytes(b"a checkpoint")

    def step():
        w.train()
        w.torch.save(w.model.state_dict(), path)

    return step


def opened_for_writing(w):
    path = w.folder / "log.txt"
    path.write_text("1.0\n")

    def step():
        w.train()
        with path.open("a") as file:
            file.write("2.0\n")

    return step


def checkpoint_removed(w):
    path = w.folder / "old.pt"
    path.write_bytes(b"a checkpoint")

    def step():
        w.train()
        path.unlink()

    return step


def logged(w):
    file = (w.folder / "log.csv").open("w", newline="")
    table = csv.writer(file)
    table.writerow(["loss"])
    file.flush()

    def step():
        loss = w.train()
        w.losses.append(loss.item())
        w.meter["total"] += loss.item()
        table.writerow([loss.item()])
        file.flush()

    return step


def momentum_encoder(w):
    q, k = w.model[0], w.other

    def step():
        w.train()
        for a, b in zip(q.parameters(), k.parameters(), strict=True):
            b.data = b.data * 0.99 + a.data * 0.01

    return step


def fails_half_way(w):
    def step():
        w.model[0].weight.data = w.model[0].weight.data * 2
        w.model.steps = 1
        w.losses.append(w.train())
        raise RuntimeError("half way")

    return step


def state_of_the_optimizer(w):
    def step():
        w.train()
        for group in w.optimizer.param_groups:
            group["lr"] *= 0.5
        w.optimizer.state[w.model[0].weight]["momentum_buffer"] = w.torch.zeros_like(w.model[0].weight)
        w.optimizer.add_param_group({"params": w.other.parameters()})

    return step


def counters_around(w):
    calls = 0

    def step():
        global CALLS
        nonlocal calls
        calls, CALLS = calls + 1, CALLS + 1
        World.calls = calls
        w.train()

    w.calls = lambda: (calls, getattr(World, "calls", None))
    return step


IDIOMS = {
    step.__name__: step
    for step in (
        *(data_of_parameters, average_applied_and_restored, vector_of_parameters, buffer_assigned),
        *(new_parameter_of_a_layer, sharpness_aware, plain_attributes, scheduler, random_of_python),
        *(random_of_numpy, random_of_torch, saved_to_a_file, opened_for_writing, checkpoint_removed, logged),
        *(momentum_encoder, fails_half_way, state_of_the_optimizer, counters_around),
    )
}
REFUSED = {
    "saved_to_a_file": r"the step writes '.*last.pt'",
    "opened_for_writing": r"the step writes '.*log.txt'",
    "checkpoint_removed": r"the step writes '.*old.pt'",
    "fails_half_way": "half way",
}


@pytest.mark.parametrize("name", IDIOMS)
def test_what_a_recorded_step_reaches_is_as_it_was(torch, tmp_path, name):
    world = World(torch, tmp_path)
    step = IDIOMS[name](world)
    before, variables = world.picture(), dict(vars(world))
    if name in REFUSED:
        with pytest.raises(SchemaError, match=REFUSED[name]):
            record(step)
    else:
        assert record(step).step.batch_size == 4
    after = world.picture()
    assert [key for key in before if after[key] != before[key]] == []
    assert vars(world) == variables
    if name == "average_applied_and_restored":
        assert {tensor.device.type for tensor in world.shadow.values()} == {"cpu"}
        assert all(type(tensor) is torch.Tensor for tensor in world.shadow.values())
    if name == "counters_around":
        assert world.calls() == (0, None)
    if name == "random_of_numpy":
        assert world.rng.random() == pytest.importorskip("numpy").random.default_rng(0).random()
    if name not in REFUSED:
        step()


def test_a_module_imported_by_the_step_may_write(torch, tmp_path, monkeypatch):
    """PyTorch imports parts of itself late, which look for a folder to write in."""
    (tmp_path / "late.py").write_text("open(__file__ + '.probe', 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    world = World(torch, tmp_path)

    def step():
        import late  # noqa: F401

        world.train()

    assert record(step).step.batch_size == 4
    assert (tmp_path / "late.py.probe").exists()
