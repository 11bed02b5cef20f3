"""Chainer beside a current numpy: what numpy dropped works inside Chainer, and numpy stays as it is."""

import warnings

import numpy as np
import pytest


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
