"""Recording a step changes nothing that the step reaches, whatever it assigns, also when it fails."""

import csv
import random
from contextlib import nullcontext

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
        self.shadow = {name: p.data.clone() for name, p in self.model.named_parameters()}
        self.rng = pytest.importorskip("numpy").random.default_rng(0)
        for name in ("last.pt", "log.txt", "old.pt"):
            (folder / name).write_text("before\n")
        self.log = (folder / "log.csv").open("w", newline="")
        self.rows, calls = csv.writer(self.log), 0

        def count():
            nonlocal calls
            calls += 1

        self.count, self.calls = count, lambda: (calls, World.calls)
        self.train()

    def train(self):
        self.optimizer.zero_grad()
        loss = self.torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def tensors(self):
        state = [tensor for state in self.optimizer.state.values() for tensor in state.values()]
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
    w.train()
    for p in w.model.parameters():
        p.data = p.data - 0.1 * p.grad


def average_applied_and_restored(w):
    w.train()
    parameters = dict(w.model.named_parameters())
    for name, p in parameters.items():
        w.shadow[name] = 0.99 * w.shadow[name] + 0.01 * p.data
    backup = {name: p.data for name, p in parameters.items()}
    for name, p in parameters.items():
        p.data = w.shadow[name]
    w.model(w.images)
    for name, p in parameters.items():
        p.data = backup[name]


def vector_of_parameters(w):
    w.train()
    vector = w.torch.nn.utils.parameters_to_vector(w.model.parameters())
    w.torch.nn.utils.vector_to_parameters(vector * 0.9, w.model.parameters())


def buffer_assigned(w):
    w.train()
    w.model.center = 0.9 * w.model.center + 0.1 * w.model(w.images).detach().mean(0)


def new_parameter_of_a_layer(w):
    w.model[0].weight = w.torch.nn.Parameter(w.model[0].weight * 0.5)
    w.train()


def attributes_and_schedule(w):
    w.model.last_features = w.model[0](w.images)
    w.model.steps = getattr(w.model, "steps", 0) + 1
    w.loss = w.train()
    w.scheduler.step()


def random_numbers(w):
    random.shuffle(w.order)
    pytest.importorskip("numpy").random.rand(3)
    w.rng.random()
    w.torch.manual_seed(3)
    w.images = w.images + w.torch.randn_like(w.images)
    w.train()


def saved_to_a_file(w):
    w.train()
    w.torch.save(w.model.state_dict(), w.folder / "last.pt")


def opened_for_writing(w):
    w.train()
    with (w.folder / "log.txt").open("a") as file:
        file.write("2.0\n")


def checkpoint_removed(w):
    w.train()
    (w.folder / "old.pt").unlink()


def logged(w):
    loss = w.train()
    w.losses.append(loss.item())
    w.meter["total"] += loss.item()
    w.rows.writerow([loss.item()])
    w.log.flush()


def fails_half_way(w):
    w.model[0].weight.data = w.model[0].weight.data * 2
    w.model.steps = 1
    w.losses.append(w.train())
    raise RuntimeError("half way")


def state_of_the_optimizer(w):
    w.train()
    for group in w.optimizer.param_groups:
        group["lr"] *= 0.5
    w.optimizer.state[w.model[0].weight]["momentum_buffer"] = w.torch.zeros_like(w.model[0].weight)
    w.optimizer.add_param_group({"params": w.other.parameters()})


def counters_around(w):
    global CALLS
    CALLS += 1
    World.calls = CALLS
    w.count()
    w.train()


IDIOMS = (
    *(data_of_parameters, average_applied_and_restored, vector_of_parameters, buffer_assigned),
    *(new_parameter_of_a_layer, attributes_and_schedule, random_numbers, saved_to_a_file, opened_for_writing),
    *(checkpoint_removed, logged, fails_half_way, state_of_the_optimizer, counters_around),
)
REFUSED = {
    "saved_to_a_file": r"the step writes '.*last.pt'",
    "opened_for_writing": r"the step writes '.*log.txt'",
    "checkpoint_removed": r"the step writes '.*old.pt'",
    "fails_half_way": "half way",
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_what_a_recorded_step_reaches_is_as_it_was(torch, tmp_path, monkeypatch, idiom):
    monkeypatch.setattr(World, "calls", None, raising=False)
    world, refusal = World(torch, tmp_path), REFUSED.get(idiom.__name__)
    step = lambda: idiom(world)  # noqa: E731
    before, variables = world.picture(), dict(vars(world))
    with pytest.raises(SchemaError, match=refusal) if refusal else nullcontext():
        assert record(step).step.batch_size == 4
    after = world.picture()
    assert [key for key in before if after[key] != before[key]] == []
    assert vars(world) == variables
    assert {(type(tensor), tensor.device.type) for tensor in world.shadow.values()} == {(torch.Tensor, "cpu")}
    assert world.calls() == (0, None)
    assert world.rng.random() == pytest.importorskip("numpy").random.default_rng(0).random()
    if not refusal:
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
