"""A store becomes a file, and a file becomes the store that it was, on either database."""

import gzip
import json
import stat
from hashlib import sha256

import pytest

from api.store.backup import back_up, restore
from api.store.engine import open_store
from api.store.keys import add_key, find_key, revoke_key, rotate_key
from api.store.measurements import delete_upload, find_rows, store_rows
from predictor.errors import DataError


@pytest.fixture
def filled(store, key_id, make_rows):
    """A store with two keys, three uploads of which one repeats another's rows, and a deleted one."""
    store_rows(store, make_rows(700), key_id)
    store_rows(store, make_rows(5), key_id)
    gone = store_rows(store, make_rows(3, first=900), key_id)
    delete_upload(store, gone.upload)
    add_key(store, "bob", days=3)
    rotate_key(store, "bob")
    revoke_key(store, "bob")
    return store


@pytest.fixture
def other(tmp_path):
    """An empty store in SQLite."""
    engine = open_store(f"sqlite:///{tmp_path}/other.db")
    yield engine
    engine.dispose()


def all_rows(engine):
    return find_rows(engine, {}, limit=10_000).rows


def test_a_backup_restores_to_what_was_there(filled, other, secret, tmp_path):
    file = tmp_path / "backup.gz"
    counts = back_up(filled, file)
    assert counts == {"api_keys": 2, "uploads": 2, "measurements": 700, "repeats": 5}
    assert restore(other, file) == counts
    assert all_rows(other) == all_rows(filled)
    assert find_key(other, secret) == find_key(filled, secret)


def test_a_backup_of_sqlite_becomes_a_store_of_either_database(other, store, make_rows, tmp_path):
    add_key(other, "carol")
    store_rows(other, make_rows(3), 1)
    file = tmp_path / "backup.gz"
    back_up(other, file)
    restore(store, file)
    assert all_rows(store) == all_rows(other)
    add_key(store, "dora")  # numbers go on after those restored
    assert store_rows(store, make_rows(4), 2).stored == 1


def test_only_the_owner_reads_a_backup(filled, tmp_path):
    file = tmp_path / "backup.gz"
    back_up(filled, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".partial")] == []


def test_a_store_that_holds_something_is_not_restored_into(filled, tmp_path):
    file = tmp_path / "backup.gz"
    back_up(filled, file)
    with pytest.raises(DataError, match="not empty: it holds 2 api_keys, 2 uploads"):
        restore(filled, file)


def _cut(lines):
    return lines[:-2] + lines[-1:]


def _without_end(lines):
    return lines[:-1]


def _changed(lines):
    place = next(i for i, line in enumerate(lines) if "iteration_time_ms" in line)
    return [*lines[:place], lines[place].replace("224", "225"), *lines[place + 1 :]]


def _with_a_column_changed(lines):
    place = next(i for i, line in enumerate(lines) if "iteration_time_ms" in line)
    entry = json.loads(lines[place])
    entry["row"]["gpu"] = "NVIDIA H200"
    return [*lines[:place], json.dumps(entry), *lines[place + 1 :]]


def _attributed_to_another(lines):
    return [line.replace('"key_id": 1', '"key_id": 2') for line in lines]


def _of_another_format(lines):
    return ["{}", *lines[1:]]


def _with_a_row_of_an_older_table(lines):
    place = next(i for i, line in enumerate(lines) if "iteration_time_ms" in line)
    entry = json.loads(lines[place])
    content = json.dumps(json.loads(entry["row"]["content"]) | {"format_version": 1})
    entry["row"] |= {"content": content, "content_sha256": sha256(content.encode()).hexdigest()}
    return [*lines[:place], json.dumps(entry), *lines[place + 1 :]]


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _without_end,
        _changed,
        _with_a_column_changed,
        _attributed_to_another,
        _of_another_format,
        _with_a_row_of_an_older_table,
    ],
)
def test_a_damaged_backup_restores_nothing(filled, other, tmp_path, damage):
    file = tmp_path / "backup.gz"
    back_up(filled, file)
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    file.write_bytes(gzip.compress("\n".join(damage(lines)).encode()))
    with pytest.raises(DataError, match="Nothing was restored"):
        restore(other, file)
    assert all_rows(other) == []


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"no json", mtime=0), gzip.compress(b"[]\n", mtime=0)[:-4]]
)
def test_what_is_no_backup_is_refused(other, tmp_path, content):
    file = tmp_path / "backup.gz"
    file.write_bytes(content)
    with pytest.raises(DataError, match="not a whole backup"):
        restore(other, file)


def test_a_file_that_is_not_there_is_said_so(other, tmp_path):
    with pytest.raises(DataError, match="there is no backup"):
        restore(other, tmp_path / "nothing.gz")


def test_a_backup_holds_no_key(filled, secret, tmp_path):
    file = tmp_path / "backup.gz"
    back_up(filled, file)
    text = gzip.decompress(file.read_bytes()).decode()
    assert secret not in text
    assert json.loads(text.splitlines()[0])["epochcast_store"] == 2
