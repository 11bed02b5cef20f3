"""What runs beside a recorded step, or outlives it, goes on as if nothing had been recorded."""

import copy
import threading

import pytest

from predictor.cnns.torch_step import record
from predictor.errors import SchemaError


def small_cnn(torch, seed=0):
    """A module and what trains it once; both give the same numbers for the same seed."""
    nn = torch.nn
    draws = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draws) * 0.1)
    images = torch.randn(4, 3, 8, 8, generator=draws)
    labels = torch.randint(5, (4,), generator=draws)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, step


def in_thread(function):
    """Start a function in a thread; what it raised, once joined."""
    errors = []

    def run():
        try:
            function()
        except BaseException as error:
            errors.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_a_thread_that_trains_and_saves_is_not_touched(torch, tmp_path):
    """Hooks on all modules and optimizers, and functions of PyTorch that are replaced, belong to the recorded step."""
    started, ended, iterations = threading.Event(), threading.Event(), 0
    trained, train = small_cnn(torch)

    def loop():
        nonlocal iterations
        while not ended.is_set() or iterations < 20:
            train()
            torch.save(trained.state_dict(), tmp_path / "checkpoint.pt")
            iterations += 1
            started.set()

    thread, errors = in_thread(loop)
    started.wait()
    _, step = small_cnn(torch, 1)
    alone = record(step)
    beside = [record(step) for _ in range(5)]
    ended.set()
    thread.join()
    assert errors == []
    assert all(table == alone for table in beside)
    same, train = small_cnn(torch)
    for _ in range(iterations):
        train()
    assert all(map(torch.equal, same.state_dict().values(), trained.state_dict().values()))


counted = 0


def test_what_a_thread_counts_beside_the_step_is_not_counted_back(torch):
    """A variable of the step's own module, which the step does not name."""
    _, train = small_cnn(torch)
    ended, own = threading.Event(), 0

    def step():
        train()

    def count():
        global counted
        nonlocal own
        while not ended.wait(1e-4):
            counted += 1
            own += 1

    thread, errors = in_thread(count)
    for _ in range(3):
        record(step)
    ended.set()
    thread.join()
    assert (errors, counted) == ([], own)


def test_two_threads_record_one_after_the_other(torch):
    steps = [small_cnn(torch, seed)[1] for seed in range(2)]
    alone, tables = [record(step) for step in steps], {}

    def recorded(number):
        tables[number] = [record(steps[number]) for _ in range(4)]

    threads = [in_thread(lambda number=number: recorded(number)) for number in range(2)]
    for thread, _ in threads:
        thread.join()
    assert [errors for _, errors in threads] == [[], []]
    assert all(table == alone[number] for number in range(2) for table in tables[number])


def test_a_loss_computed_before_is_differentiated_afterwards(torch):
    gradients = []
    for recorded in (False, True):
        model, step = small_cnn(torch)
        loss = model(torch.ones(4, 3, 8, 8)).square().mean()
        if recorded:
            record(step)
        loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(map(torch.equal, *gradients))


def test_running_statistics_stay_where_a_small_loss_is_read(torch):
    """The loss of small maps follows from constants: what computed it wrote the statistics that it was lent."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    images, losses = torch.randn(16, 8), []

    def step():
        with torch.autograd.set_detect_anomaly(True):
            loss = model(images).square().mean()
            losses.append(f"{loss.item():.3f}")
            loss.backward()

    before = copy.deepcopy(model.state_dict())
    assert record(step).step.batch_size == 16
    assert losses == []
    assert all(map(torch.equal, before.values(), model.state_dict().values()))


def test_a_step_may_copy_its_model_and_set_what_holds_everywhere(torch):
    (model, step), copies = small_cnn(torch), []

    def copying():
        step()
        copies.append(copy.deepcopy(model))
        copies[0](torch.ones(4, 3, 8, 8)).mean().backward()
        torch.backends.cudnn.benchmark = True
        torch.use_deterministic_algorithms(True)
        torch.set_default_dtype(torch.bfloat16)
        torch.set_grad_enabled(False)

    flags = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    assert [row.type for row in record(copying)].count("conv2d") == 2
    assert flags == (torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled())
    assert (copies, torch.get_default_dtype(), torch.is_grad_enabled()) == ([], torch.float32, True)


def loader_of(torch, workers=0):
    images = torch.utils.data.TensorDataset(torch.randn(24, 3, 8, 8), torch.arange(24))
    return torch.utils.data.DataLoader(
        images, 4, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )


def step_on(model, batch):
    images, labels = batch()
    model(images).square().mean().backward()
    return labels


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_lent_to_a_step_are_not_taken(torch, workers):
    (model, _), loader = small_cnn(torch), loader_of(torch, workers)
    batches = iter(loader)
    with pytest.raises(SchemaError, match=r"DataLoader of TensorDataset .* outside the step"):
        record(lambda: step_on(model, lambda: next(batches)))
    labels = torch.cat([labels for _, labels in batches])
    assert sorted(labels.tolist()) == [*range(24)]
    assert record(lambda batch: step_on(model, lambda: batch), next(iter(loader))).step.batch_size == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_that_begins_an_epoch_loads_real_batches(torch, workers, capfd):
    """Workers that persist go on with the epoch that they are lent in, and write nothing of a step that is recorded."""
    (model, _), loader = small_cnn(torch), loader_of(torch, workers)
    lent = iter(loader)
    labels = [next(lent)[1]]

    def step():
        labels = step_on(model, lambda: next(iter(loader))).tolist()
        if len({*labels}) != 4:
            raise ValueError(f"an epoch gives each image once, and this one {labels}")

    assert record(step).step.batch_size == 4
    labels += [labels for _, labels in lent]
    assert sorted(torch.cat(labels).tolist()) == [*range(24)]
    assert capfd.readouterr().err == ""
