"""A file is replaced in one step, or not at all; what cannot be replaced is written to."""

import os
import stat
import subprocess
import sys

import pytest
from waiting import PATIENCE_S

from predictor.files import replace_file, replacing


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


@pytest.mark.parametrize("mode", [0o640, 0o600])
def test_an_old_file_keeps_its_permissions_and_what_replaces_it_is_never_readable_by_others(mode, tmp_path):
    path = tmp_path / "a.json"
    path.write_text("one")
    path.chmod(mode)
    with replacing(path) as file:
        file.write(b"two")
        modes = {stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()}
    assert modes == {0o600, mode}
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_gets_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_text("")
    replace_file(tmp_path / "a.json", "one")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_no_write_changes_what_other_threads_new_files_may_be_read_by(tmp_path, monkeypatch):
    def refuse(_mask):
        raise AssertionError("the umask is the whole process's")

    monkeypatch.setattr(os, "umask", refuse)
    replace_file(tmp_path / "a.json", "one")
    replace_file(tmp_path / "a.json", "two")


@pytest.mark.parametrize("old", ["one", None])
def test_a_link_stays_a_link_to_the_replaced_file_or_to_the_new_one(old, tmp_path):
    if old is not None:
        (tmp_path / "a.json").write_text(old)
    (tmp_path / "current").symlink_to("a.json")
    replace_file(tmp_path / "current", "two")
    assert (tmp_path / "current").is_symlink()
    assert (tmp_path / "a.json").read_text() == "two"


def test_a_fifo_stays_one_and_its_reader_gets_the_content(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # before there is a writer
    replace_file(tmp_path / "pipe", "one")
    assert os.read(reader, 100) == b"one"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_fifo_takes_more_than_it_holds(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "copy").open("wb") as copy:
        reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=copy)
    try:
        replace_file(tmp_path / "pipe", b"x" * 2**20)
        reader.wait(PATIENCE_S)
    finally:
        reader.kill()
    assert (tmp_path / "copy").read_bytes() == b"x" * 2**20


def test_a_device_is_written_to():
    ours, terminal = os.openpty()
    replace_file(os.ttyname(terminal), "one")
    assert os.read(ours, 100) == b"one"
    os.close(ours)
    os.close(terminal)


@pytest.fixture
def run_writing():
    """Run Python that writes "one" to a path, between two lines of its own on standard output."""

    def run(path, **where):
        code = (
            "from predictor.files import replace_file\n"
            f"print('before', flush=True); replace_file({str(path)!r}, 'one\\n'); print('after')"
        )
        return subprocess.run([sys.executable, "-c", code], check=True, **where)

    return run


@pytest.fixture
def link_to_stdout(tmp_path):
    """A link of our own, so that no failing test can replace the machine's."""
    (tmp_path / "out").symlink_to("/dev/stdout")
    return tmp_path / "out"


def test_standard_output_gets_the_content_in_its_turn_through_a_link_too(run_writing, link_to_stdout):
    for path in ("/dev/fd/1", "/proc/self/fd/1", link_to_stdout):
        assert run_writing(path, stdout=subprocess.PIPE).stdout == b"before\none\nafter\n"
    assert link_to_stdout.is_symlink()


def test_a_redirected_output_stays_the_file_that_the_shell_opened(run_writing, link_to_stdout, tmp_path):
    (tmp_path / "log").write_bytes(b"old\n")
    with (tmp_path / "log").open("ab") as log:
        run_writing(link_to_stdout, stdout=log)
    assert (tmp_path / "log").read_bytes() == b"old\nbefore\none\nafter\n"


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("folder", IsADirectoryError),
        ("link", IsADirectoryError),
        ("loop", OSError),
        ("missing/a.json", FileNotFoundError),
        ("/dev/fd/987", FileNotFoundError),  # a descriptor that is not open
    ],
)
def test_what_can_be_no_file_is_refused_by_its_name(name, refused, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(refused) as error:
        replace_file(tmp_path / name, "one")
    assert error.value.filename == str(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "loop"]
