"""A file is replaced in one step, or not at all."""

import os
import stat

import pytest

from predictor.files import replace_file


def test_the_new_text_is_there_and_nothing_else(tmp_path):
    replace_file(tmp_path / "a.json", "one")
    replace_file(tmp_path / "a.json", "zwei äöü")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "zwei äöü"


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    replace_file(tmp_path / "a.json", "one")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "a.json", "two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "one")]


def test_an_old_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("one")
    path.chmod(0o640)
    replace_file(path, "two")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_gets_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_text("")
    replace_file(tmp_path / "a.json", "one")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_stays_a_link_to_the_replaced_file(tmp_path):
    (tmp_path / "a.json").write_text("one")
    (tmp_path / "current").symlink_to("a.json")
    replace_file(tmp_path / "current", "two")
    assert (tmp_path / "current").is_symlink()
    assert (tmp_path / "a.json").read_text() == "two"


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "a.json", "one")
