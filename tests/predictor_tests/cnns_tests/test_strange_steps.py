"""What cannot be followed is refused in a sentence with the way round; what can be borne is."""

import pytest

from predictor.answers.answer import answer
from predictor.answers.question import Question
from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.torch_step import record
from predictor.errors import SchemaError


@pytest.fixture
def net(torch):
    nn = torch.nn
    layers = nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16, 10))


@pytest.fixture
def steps(torch, net):
    images, labels = torch.zeros(4, 3, 32, 32), torch.zeros(4).long()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    loss = torch.nn.functional.cross_entropy

    def train():
        optimizer.zero_grad()
        torch.cuda.synchronize()  # as people do who time it
        loss(net(images), labels).backward()
        optimizer.step()

    def epoch():
        for _ in range(3):
            train()

    def per_sample(parameters, image, label):
        return loss(torch.func.functional_call(net, parameters, (image[None],)), label[None])

    gradients = torch.func.vmap(torch.func.grad(per_sample), (None, 0, 0))
    return {
        "train": train,
        "epoch": epoch,
        "no gradient": torch.no_grad()(lambda: net(images)),
        "torch.func": lambda: gradients(dict(net.named_parameters()), images, labels),
        "nothing": lambda: None,
        "argument": lambda images: net(images),
        "data": lambda: net(images)[labels > 0].sum().backward(),
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("epoch", r"updates its parameters 3 times: it is 3 iterations. Record one"),
        ("no gradient", r"Sequential computes no gradients.*loss.backward\(\)"),
        ("torch.func", r"torch.func .* not followed. Record the step with loss.backward\(\)"),
        ("nothing", r"runs no convolution and no linear layer. Give a function that trains"),
        ("argument", r"the step fails: TypeError.* missing 1 required .* Check that it runs by itself"),
        (
            "data",
            r"the step fails: DynamicOutputShape.*leave out what needs them, and give a measured iteration",
        ),
    ],
)
def test_a_step_that_cannot_be_followed_is_refused_with_the_way_round(steps, name, said):
    with pytest.raises(SchemaError, match=said):
        answer(Question(record(steps[name]), "H200"))


def test_a_step_that_waits_for_the_gpu_is_recorded_without_one(steps):
    assert record(steps["train"]).step.batch_size == 4


def test_a_module_that_cannot_be_followed_is_refused_with_the_way_round(torch, net):
    nn = torch.nn
    with pytest.raises(SchemaError, match=r"module '0' is scripted.*that it was made of"):
        resolve_cnn(nn.Sequential(torch.jit.script(net), nn.ReLU()), 32)
    with pytest.raises(SchemaError, match=r"float64, which is not counted. Give it as module.float\(\)"):
        resolve_cnn(nn.Conv2d(3, 8, 3).double(), 32)
    with pytest.raises(SchemaError, match=r"computes no gradients: nothing in it is trainable"):
        answer(Question(nn.AvgPool2d(2), "H200", 64, image_size=32))
    net[0].cached = net[0].weight * 0.5  # as torch.nn.utils.prune leaves it
    with pytest.raises(SchemaError, match=r"cannot be copied.*Give epochcast.record\(module, images\)"):
        resolve_cnn(net, 32)
    assert len(record(net, torch.zeros(4, 3, 32, 32))) > 5


def test_half_a_module_is_answered_in_the_precision_of_the_question_and_says_so(net):
    assert "float16" in str(resolve_cnn(net.half(), 32).warnings[0])


def test_a_module_of_products_alone_has_the_batch_of_its_images(torch):
    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(10, 3))

        def forward(self, images):
            return torch.einsum("bchw,oc->bo", images, self.weight)

    assert record(Product(), torch.zeros(4, 3, 32, 32)).step.batch_size == 4


def test_a_step_that_trains_pixels_alone_is_answered(torch, net):
    pixels = torch.nn.Parameter(torch.zeros(1, 3, 32, 32))
    net.requires_grad_(False)
    optimizer = torch.optim.Adam([pixels])

    def step():
        net(pixels).sum().backward()
        optimizer.step()

    assert answer(Question(record(step), "H200")).rows()[0].gpu_time_ms > 0
