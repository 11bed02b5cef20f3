"""Chainer chains: every function that runs, the user's chain left alone, refusals that help."""

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from predictor.cnns.chainer_chain import from_chainer
from predictor.cnns.chainer_compat import install
from predictor.cnns.layer_table import IMAGE, TableWarning
from predictor.errors import BackendUnavailableError, OutOfRangeError, SchemaError


@pytest.fixture
def chain_of(chainer: ModuleType) -> Any:
    """Build a chain of these links with this forward."""

    def build(forward: Any, **links: Any) -> Any:
        class Own(chainer.Chain):  # type: ignore[misc,name-defined]
            def forward(self, x: Any) -> Any:
                return forward(self, x)

        chain = Own()
        with chain.init_scope():
            for name, link in links.items():
                setattr(chain, name, link)
        return chain

    return build


def test_functions_become_rows_with_the_names_of_their_links(chainer: ModuleType, chain_of: Any) -> None:
    F, L = chainer.functions, chainer.links
    chain = chain_of(
        lambda self, x: self.fc(F.max_pooling_2d(F.relu(self.bn(self.conv(x))), 2)),
        conv=L.Convolution2D(3, 8, 3, stride=2, pad=1),
        bn=L.BatchNormalization(8),
        fc=L.Linear(None, 10),
    )
    table = from_chainer(chain, 32, "own")
    assert [(row.name, row.type) for row in table] == [
        ("conv", "conv2d"),
        ("bn", "batch_norm"),
        ("relu", "activation"),
        ("max_pool2d", "max_pool"),
        ("fc.flatten", "flatten"),
        ("fc", "linear"),
    ]
    assert [row.inputs for row in table] == [(IMAGE,), (0,), (1,), (2,), (3,), (4,)]
    assert [row.parameters for row in table] == [224, 16, 0, 0, 0, 8 * 64 * 10 + 10]
    assert (table.cnn, table.image_size, table.source, table.warnings) == ("own", 32, "chainer", ())


def test_squeeze_and_excitation_is_a_mean_a_gate_and_a_product(chainer: ModuleType, chain_of: Any) -> None:
    F = chainer.functions

    def forward(_self: Any, x: Any) -> Any:
        gate = F.sigmoid(F.average(x, axis=(2, 3)))
        return x * F.broadcast_to(gate[:, :, None, None], x.shape) + x

    table = from_chainer(chain_of(forward), 16)
    assert [row.type for row in table] == ["avg_pool", "activation", "multiply", "add"]
    assert table.layers[0].kernel_height == 16


def test_grouped_and_transposed_convolutions_keep_their_shape(chainer: ModuleType, chain_of: Any) -> None:
    L = chainer.links
    chain = chain_of(
        lambda self, x: self.up(self.dw(x)),
        dw=L.Convolution2D(6, 6, 3, pad=2, dilate=2, groups=6, nobias=True),
        up=L.Deconvolution2D(6, 4, 4, stride=2, pad=1),
    )
    grouped, up = from_chainer(chain, 16, in_channels=6)
    assert (grouped.groups, grouped.dilation, grouped.out_height, grouped.parameters) == (6, 2, 16, 54)
    assert (up.type, up.out_height, up.parameters) == ("conv_transpose2d", 32, 6 * 4 * 16 + 4)


def test_the_users_chain_and_random_numbers_are_left_as_they_were(chainer: ModuleType, chain_of: Any) -> None:
    F, L = chainer.functions, chainer.links
    chain = chain_of(lambda self, x: self.fc(F.dropout(x)), fc=L.Linear(None, 10))
    before = np.random.get_state()[1].tolist()  # noqa: NPY002  # Chainer draws from numpy's global state
    from_chainer(chain, 8)
    assert chain.fc.W.array is None
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_a_classifier_is_taken_for_its_predictor(chainer: ModuleType) -> None:
    link = chainer.links.Convolution2D(3, 4, 1)
    assert from_chainer(chainer.links.Classifier(link), 8).layers == from_chainer(link, 8).layers


def test_a_function_of_unknown_cost_is_named_and_warned_of(chainer: ModuleType, chain_of: Any) -> None:
    table = from_chainer(chain_of(lambda _self, x: chainer.functions.exp(x)), 8)
    assert [row.type for row in table] == ["other"]
    assert table.warnings == (TableWarning("operator", "Exp"),)


def test_too_small_an_image_is_out_of_range(chainer: ModuleType) -> None:
    with pytest.raises(OutOfRangeError, match="larger image_size"):
        from_chainer(chainer.links.Convolution2D(3, 4, 7), 4)


def test_wrong_channels_are_refused(chainer: ModuleType) -> None:
    with pytest.raises(SchemaError, match="Check image_size"):
        from_chainer(chainer.links.Convolution2D(3, 4, 1), 8, in_channels=1)


def test_what_is_no_chain_is_refused(chainer: ModuleType) -> None:
    with pytest.raises(SchemaError, match=r"int is not a chainer\.Chain"):
        from_chainer(3, 8)  # type: ignore[arg-type]


def test_installing_twice_gives_the_same_chainer(chainer: ModuleType) -> None:
    assert install() is install() is chainer


def test_a_fresh_import_of_chainer_leaves_numpy_unpatched(chainer: ModuleType) -> None:
    code = (
        "import numpy, types; before = dict(vars(numpy))\n"
        "from predictor.cnns.chainer_compat import install; install()\n"
        "new = {k: v for k, v in vars(numpy).items() if before.get(k) is not v}\n"
        "own = {k for k, v in new.items() if isinstance(v, types.ModuleType)} | {'__warningregistry__'}\n"
        "assert new.keys() <= own, new.keys() - own"  # numpy loads its own submodules late
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)


def test_a_missing_chainer_is_said_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "chainer"]:
        monkeypatch.delitem(sys.modules, name)

    def fail(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr("predictor.cnns.chainer_compat.importlib.import_module", fail)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'epochcast\[chainer\]'"):
        install()


def test_recurrent_links_are_refused_by_name(chainer: ModuleType, chain_of: Any) -> None:
    link = chainer.links.NStepLSTM(1, 3, 8, 0.0)
    chain = chain_of(lambda self, x: self.reads(None, None, list(x.reshape(len(x), -1, 3)))[0], reads=link)
    with pytest.raises(SchemaError, match=r"link 'reads': NStepLSTM layers .* anchor"):
        from_chainer(chain, 16)


@pytest.mark.parametrize("channels", [1, 4])
def test_images_have_the_channels_that_the_first_link_reads(chainer: ModuleType, channels: int) -> None:
    links = chainer.links
    first, *_ = from_chainer(
        chainer.Sequential(links.Convolution2D(channels, 8, 3), links.Linear(None, 10)), 28
    )
    assert first.in_channels == channels
    flat, *_ = from_chainer(links.Linear(channels * 28 * 28, 10), 28)
    assert flat.in_channels == channels
