"""Artifacts: nothing is unpickled before its hash is known or its owner is trusted."""

import pickle
from pathlib import Path

import pytest
from sklearn.linear_model import LinearRegression

from predictor import artifacts
from predictor.artifacts import load_artifact, save_artifact, sha256_of
from predictor.errors import ArtifactError


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.fixture
def fitted(tmp_path):
    path = tmp_path / "line.joblib"
    digest = save_artifact(LinearRegression().fit([[1.0], [2.0]], [2.0, 4.0]), path)
    return path, digest


def test_an_unlisted_file_is_refused_with_its_hash_and_the_next_step(fitted):
    path, digest = fitted
    with pytest.raises(ArtifactError, match=f"SHA-256 {digest}.*Pass --trust"):
        load_artifact(path)


def test_nothing_is_unpickled_before_the_hash_is_checked(tmp_path):
    path = tmp_path / "bomb.joblib"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(ArtifactError):
        load_artifact(path)
    assert not (tmp_path / "exploded").exists()


def test_a_trusted_file_is_read(fitted):
    assert load_artifact(fitted[0], trust=True).predict([[3.0]]) == pytest.approx([6.0])


def test_a_listed_file_is_read(fitted, monkeypatch):
    path, digest = fitted
    monkeypatch.setitem(artifacts.TRUSTED_SHA256, digest, "a line")
    assert load_artifact(path).coef_ == pytest.approx([2.0])


def test_a_changed_file_is_no_longer_listed(fitted, monkeypatch):
    path, digest = fitted
    monkeypatch.setitem(artifacts.TRUSTED_SHA256, digest, "a line")
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ArtifactError, match=sha256_of(path)):
        load_artifact(path)


def test_a_damaged_file_is_an_artifact_error_even_when_trusted(tmp_path):
    path = tmp_path / "damaged.joblib"
    path.write_bytes(b"not a pickle")
    with pytest.raises(ArtifactError, match=r"damaged.joblib is damaged or of another version"):
        load_artifact(path, trust=True)


def test_a_missing_file_is_an_artifact_error(tmp_path):
    with pytest.raises(ArtifactError, match="cannot be read"):
        load_artifact(tmp_path / "none.joblib")
