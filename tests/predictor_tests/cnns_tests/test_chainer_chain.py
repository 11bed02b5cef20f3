"""Chainer chains: every function that runs, the user's chain left alone, refusals that help."""

import subprocess
import sys
import warnings
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from own_module import own_chain

from predictor.answers.question import Question
from predictor.cnns.chainer_chain import from_chainer
from predictor.cnns.chainer_compat import install
from predictor.cnns.torch_step import record
from predictor.errors import BackendUnavailableError, OutOfRangeError, SchemaError


@pytest.fixture
def chain_of(chainer: ModuleType) -> Any:
    """Build a chain of these links with this forward."""
    return partial(own_chain, chainer)


def test_the_users_chain_and_random_numbers_are_left_as_they_were(chainer, chain_of):
    F, L = chainer.functions, chainer.links
    chain = chain_of(lambda self, x: self.fc(F.dropout(x)), fc=L.Linear(None, 10))
    before = np.random.get_state()[1].tolist()  # noqa: NPY002  # Chainer draws from numpy's global state
    from_chainer(chain, 8)
    assert chain.fc.W.array is None
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_a_classifier_is_taken_for_its_predictor(chainer):
    link = chainer.links.Convolution2D(3, 4, 1)
    assert from_chainer(chainer.links.Classifier(link), 8).layers == from_chainer(link, 8).layers


def test_what_is_no_chain_or_does_not_run_on_such_images_is_refused(chainer):
    convolution = chainer.links.Convolution2D
    for chain, size, channels, error, message in (
        (convolution(3, 4, 7), 4, None, OutOfRangeError, "larger image_size"),
        (convolution(3, 4, 1), 8, 1, SchemaError, "Check image_size"),
        (3, 8, None, SchemaError, r"int is not a chainer\.Chain"),
    ):
        with pytest.raises(error, match=message):
            from_chainer(chain, size, in_channels=channels)


def test_installing_twice_gives_the_same_chainer(chainer):
    assert install() is install() is chainer


def test_a_fresh_import_of_chainer_leaves_numpy_unpatched(chainer):
    code = (
        "import numpy, types; before = dict(vars(numpy))\n"
        "from predictor.cnns.chainer_compat import install; install()\n"
        "new = {k: v for k, v in vars(numpy).items() if before.get(k) is not v}\n"
        "own = {k for k, v in new.items() if isinstance(v, types.ModuleType)} | {'__warningregistry__'}\n"
        "assert new.keys() <= own, new.keys() - own"  # numpy loads its own submodules late
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)


def test_a_missing_chainer_is_said_with_how_to_install_it(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "chainer"]:
        monkeypatch.delitem(sys.modules, name)

    def fail(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr("predictor.cnns.chainer_compat.importlib.import_module", fail)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'epochcast\[chainer\]'"):
        install()


CHAIN = """
import chainer
from chainer import functions, links

class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv, self.out = links.Convolution2D(3, 8, 3), links.Linear(None, 10)

    def forward(self, x):
        return self.out(functions.relu(self.conv(x)))

def make_model():
    return Net()
"""
FAILS_FIRST = """
try:
    import chainer
except AttributeError:
    pass
import epochcast
"""


@pytest.mark.parametrize("before", ["import epochcast", FAILS_FIRST])
def test_ones_own_import_of_chainer_works_beside_epochcast(chainer, before):
    code = (
        before
        + CHAIN
        + "print(epochcast.predict(Net(), 'T4', 32, image_size=16, framework='chainer').cnn[0])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("Net\n", 0), run.stderr


def test_a_file_that_imports_chainer_is_predicted(chainer, tmp_path):
    (tmp_path / "mine.py").write_text(CHAIN)
    words = ("predict", "mine.py:make_model@16", "--framework", "chainer", "-g", "T4", "-b", "32")
    command = [sys.executable, "-m", "epochcast", *words]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "mine.make_model, 16 x 16 px, chainer" in run.stdout


def test_recording_a_step_of_chainer_says_what_to_give_and_changes_nothing(chainer):
    pytest.importorskip("torch")
    chain = chainer.links.Linear(3, 2)
    optimizer = chainer.optimizers.SGD().setup(chain)
    images, weights = np.ones((4, 3), np.float32), chain.W.array.copy()

    def step() -> None:
        loss = chainer.functions.sum(chain(images))
        chain.cleargrads()
        loss.backward()
        optimizer.update()

    for arguments in ((step,), (chain, images), (chain,)):
        with pytest.raises(SchemaError, match=r"Give the chain itself: epochcast\.predict"):
            record(*arguments)
    assert (chain.W.array == weights).all()


def test_recurrent_links_are_refused_by_name(chainer, chain_of):
    link = chainer.links.NStepLSTM(1, 3, 8, 0.0)
    chain = chain_of(lambda self, x: self.reads(None, None, list(x.reshape(len(x), -1, 3)))[0], reads=link)
    with pytest.raises(SchemaError, match=r"link 'reads': NStepLSTM layers .* anchor"):
        from_chainer(chain, 16)


@pytest.mark.parametrize("channels", [1, 4])
def test_images_have_the_channels_that_the_first_link_reads(chainer, channels):
    links = chainer.links
    first, *_ = from_chainer(
        chainer.Sequential(links.Convolution2D(channels, 8, 3), links.Linear(None, 10)), 28
    )
    assert first.in_channels == channels
    flat, *_ = from_chainer(links.Linear(channels * 28 * 28, 10), 28)
    assert flat.in_channels == channels


def test_a_chain_that_takes_labels_has_the_layers_before_its_loss(chainer, chain_of):
    F, L = chainer.functions, chainer.links

    class WithLoss(chainer.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.conv, self.aside, self.fc = (
                    L.Convolution2D(3, 8, 3),
                    L.Linear(None, 10),
                    L.Linear(None, 10),
                )

        def forward(self, x: Any, t: Any) -> Any:
            h = F.relu(self.conv(x))
            loss = 0.3 * F.softmax_cross_entropy(self.aside(h), t) + F.softmax_cross_entropy(
                y := self.fc(h), t
            )
            chainer.report({"loss": loss, "accuracy": F.accuracy(y, t)}, self)
            return loss

    table = from_chainer(WithLoss(), 16)
    assert [layer.type for layer in table] == [
        "conv2d",
        "activation",
        "flatten",
        "linear",
        "flatten",
        "linear",
    ]
    assert not table.warnings


def test_pooling_elu_and_norms_across_channels_are_known(chainer, chain_of):
    F, L = chainer.functions, chainer.links

    def forward(self: Any, x: Any) -> Any:
        h = F.local_response_normalization(F.elu(self.conv(x)), n=5)
        return self.fc(F.average_pooling_2d(h, 3, stride=2, pad=1))

    table = from_chainer(chain_of(forward, conv=L.Convolution2D(3, 8, 3, pad=1), fc=L.Linear(None, 10)), 16)
    assert not table.warnings
    kinds = ["conv2d", "clamp", "multiply", "clamp", "clamp", "multiply", "avg_pool", "flatten", "linear"]
    assert [layer.type for layer in table] == kinds
    pooling = table.layers[6]
    assert (pooling.kernel_height, pooling.stride_width, pooling.padding_height) == (3, 2, 1)


def test_a_chain_is_asked_about_in_chainer_unless_another_framework_is_named(chainer):
    chain = chainer.links.Convolution2D(3, 4, 3)
    for cnn in (chain, from_chainer(chain, 32)):
        assert Question(cnn, "T4", 8, image_size=32).framework == "chainer"
    assert Question(chain, "T4", 8, image_size=32, framework="tensorflow").framework == "tensorflow"
    with pytest.raises(SchemaError, match="Ask about one at a time"):
        Question([chain, "resnet18"], "T4", 8, image_size=32)


def test_dropped_names_are_not_lent_for_longer_than_the_import(chainer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dropped = [name for name in ("sctypes", "float") if name in vars(np)]
    assert dropped == []


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_images_are_resized(chainer, mode):
    images = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
    resized = chainer.functions.resize_images(images, (7, 5), mode=mode)
    assert resized.shape == (2, 3, 7, 5)


def test_resizing_to_the_same_size_changes_nothing(chainer):
    images = np.random.default_rng(0).random((1, 2, 5, 6), np.float32)
    same = chainer.functions.resize_images(images, (5, 6)).array
    np.testing.assert_allclose(same, images, rtol=1e-6)


def test_strided_views_have_gradients(chainer):
    x = chainer.Variable(np.arange(6, dtype=np.float32))
    chainer.functions.sum(chainer.functions.as_strided(x, (3, 2), (1, 1), 0)).backward()
    assert x.grad.tolist() == [1, 2, 2, 1, 0, 0]
