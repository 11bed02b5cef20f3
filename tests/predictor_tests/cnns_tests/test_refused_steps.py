"""What cannot be recorded is refused with what to write instead: the steps that the page names, and others."""

import re
from pathlib import Path

import pytest
from case_tables import table

from predictor.cnns.torch_step import record
from predictor.errors import SchemaError

PAGE = (Path(__file__).resolve().parents[3] / "docs/recorded_steps.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.partition("| refused |")[2], re.MULTILINE))


@pytest.fixture
def steps(torch, tmp_path):
    nn, loss = torch.nn, torch.nn.functional.cross_entropy
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    images, labels, lines = torch.zeros(4, 3, 16, 16), torch.zeros(4).long(), torch.zeros(5, 2, 8)
    reads, projected = nn.LSTM(8, 4), nn.LSTM(8, 4, proj_size=2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    lbfgs = torch.optim.LBFGS(net.parameters(), max_iter=4)
    pack = nn.utils.rnn.pack_padded_sequence

    def train():
        optimizer.zero_grad()
        loss(net(images), labels).backward()
        optimizer.step()

    def of_a_search():
        lbfgs.zero_grad()
        value = loss(net(images), labels)
        value.backward()
        return value

    def while_it_is_large():
        train()
        while net[0].weight.grad.norm() > 1:
            train()

    def of_one(parameters, image, label):
        return loss(torch.func.functional_call(net, parameters, (image[None],)), label[None])

    def in_float64():
        net.double()(images.double()).sum().backward()

    def of_what_is_kept():
        kept = torch.nonzero(net(images) > 0.9)[:, 1]
        torch.split(kept, [3, 4])

    def and_saves():
        train()
        torch.save(net.state_dict(), tmp_path / "net.pt")

    def until_it_is_small():
        while net[0].weight.grad.norm().item() > 0.5:
            pass

    def by_no_optimizer():
        net(images).mean().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.data.add_(parameter.grad.data, alpha=-0.1)
                parameter.grad = None

    def failing():
        raise ValueError("a callback failed:\n\nno loss")

    class Trainer:
        def train(self):
            self.parts = 1
            return self.training_step()

        def training_step(self):
            return self.parts

    data = torch.utils.data
    batches = iter(data.DataLoader(data.TensorDataset(images, labels), batch_size=2))

    gradients = torch.func.vmap(torch.func.grad(of_one), (None, 0, 0))
    return {
        "`next(batches)` of an iterator over a loader made before": lambda: (
            net(next(batches)[0]).sum().backward()
        ),
        "packed sequences": lambda: reads(pack(lines, torch.tensor([5, 4])))[0].data.sum().backward(),
        "an LSTM with `proj_size`": lambda: projected(lines)[0].sum().backward(),
        "`while` and `if` on numbers of activations": while_it_is_large,
        "LBFGS": lambda: lbfgs.step(of_a_search),
        "an array made of activations": lambda: net(images).detach().numpy(),
        "per-sample gradients of `torch.func`": lambda: gradients(
            dict(net.named_parameters()), images, labels
        ),
        "a split of what numbers keep, such as RT-DETR's denoising": of_what_is_kept,
        "several iterations": lambda: [train() for _ in range(3)],
        "a step without a backward pass": lambda: loss(net(images), labels).item(),
        "float64": in_float64,
        "what writes files": and_saves,
        "no gradient": torch.no_grad()(lambda: net(images)),
        "nothing": lambda: None,
        "no image": lambda: net(images[:0]).sum().backward(),
        "argument": lambda images: net(images),
        "endless loop": lambda: (train(), until_it_is_small()),
        "several iterations by no optimizer": lambda: [by_no_optimizer() for _ in range(3)],
        "part of a trainer's loop": Trainer().training_step,
        "error of two lines": failing,
    }


WORDS = table(__file__, "words of refused steps")
"""What the error about a step says, as a pattern; the page says the same of those that it names."""

OF_PROCESSES = ("modules of `FullyShardedDataParallel`",)


def test_each_refusal_says_what_to_write_instead_as_the_page_does(steps):
    assert ROWS.keys() - {"---"} == {*steps.keys() & ROWS.keys(), *OF_PROCESSES}
    wrong = []
    for refused, step in steps.items():
        with pytest.raises(SchemaError) as error:
            record(step)
        if not re.search(WORDS.get(refused, ""), str(error.value), re.DOTALL):
            wrong.append(f"{refused}: {error.value}")
        if refused not in ROWS:
            continue
        instead = re.findall(r"`([^`]+)`", ROWS[refused]) or [ROWS[refused].partition(",")[0]]
        wrong += [f"{refused}: {word} in {error.value}" for word in instead if word not in str(error.value)]
    assert wrong == []


@pytest.fixture
def one_process(torch, tmp_path):
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_a_step_of_distributed_data_parallel_is_that_of_its_module(torch):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    parallel, images = nn.parallel.DistributedDataParallel(net), torch.zeros(8, 3, 16, 16)

    def accumulated(module, first):
        def step():
            with first():
                module(images[:4]).sum().backward()
            module(images[4:]).sum().backward()

        return record(step)

    from contextlib import nullcontext

    in_parallel, alone = accumulated(parallel, parallel.no_sync), accumulated(net, nullcontext)
    assert [row.type for row in in_parallel] == [row.type for row in alone]
    assert in_parallel.step == alone.step


@pytest.mark.usefixtures("one_process")
def test_a_sharded_module_is_refused_with_the_one_that_it_wraps(torch):
    from torch.distributed.fsdp import FullyShardedDataParallel

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 5))
    sharded = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    with pytest.raises(
        SchemaError, match=r"FullyShardedDataParallel.*the module that it wraps.*n_gpus.*anchor"
    ):
        record(lambda: sharded(torch.zeros(4, 3, 16, 16)).sum().backward())
