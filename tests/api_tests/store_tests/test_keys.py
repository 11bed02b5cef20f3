"""Keys are random, shown once, kept as hashes, and refused once revoked."""

import hashlib

import pytest
from sqlalchemy import text

from api.store.keys import add_key, find_key, list_keys, revoke_key, rotate_key
from api.store.measurements import store_rows
from predictor.errors import SchemaError


def test_a_key_of_256_bits_finds_its_name_and_the_store_holds_only_its_hash(store, secret):
    assert find_key(store, secret).name == "alice"
    assert add_key(store, "bob") != secret
    assert len(secret.removeprefix("epochcast_")) == 43
    with store.connect() as connection:
        rows = [str(value) for row in connection.execute(text("SELECT * FROM api_keys")) for value in row]
    assert hashlib.sha256(secret.encode()).hexdigest() in rows
    assert not any(secret in value for value in rows)


@pytest.mark.parametrize(
    "wrong", ["", "epochcast_", "epochcast_x", "nonsense", "epochcast_" + "a" * 10**6, "\ud800"]
)
def test_a_wrong_key_finds_nobody(store, secret, wrong):
    assert find_key(store, wrong) is None


def test_a_revoked_key_says_when_and_its_name_cannot_be_taken_again(store, secret):
    with pytest.raises(SchemaError, match=r"'alicf'. Nearest: 'alice'"):
        revoke_key(store, "alicf")
    revoke_key(store, "alice")
    assert find_key(store, secret).revoked_at is not None
    with pytest.raises(SchemaError, match="'alice' already"):
        add_key(store, "alice")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 101, "<script>", " a"])
def test_an_odd_name_is_refused(store, name):
    with pytest.raises(SchemaError, match="cannot be called"):
        add_key(store, name)


def test_the_list_counts_what_each_key_uploaded(store, key_id, make_rows):
    for count in (3, 4):
        store_rows(store, make_rows(count), key_id)
    assert [(key.name, key.uploads, key.rows) for key in list_keys(store)] == [("alice", 2, 4)]


def test_a_key_expires(store):
    assert find_key(store, add_key(store, "brief", days=-1)).problem.startswith("expired on 20")
    assert find_key(store, add_key(store, "long", days=1)).problem is None


def test_a_key_is_replaced_and_the_old_one_refused_at_once_or_later(store, secret):
    second = rotate_key(store, "alice")
    assert find_key(store, secret) is None
    third = rotate_key(store, "alice", keep_old_days=1)
    assert [find_key(store, valid_secret).name for valid_secret in (second, third)] == ["alice", "alice"]
    fourth = rotate_key(store, "alice", days=-1)
    assert find_key(store, third) is None
    assert find_key(store, fourth).problem.startswith("expired")


def test_a_revoked_key_is_revoked_in_its_old_form_too(store, secret):
    rotate_key(store, "alice", keep_old_days=1)
    revoke_key(store, "alice")
    assert find_key(store, secret).problem.startswith("was revoked")
    with pytest.raises(SchemaError, match="no valid key is called 'alice'"):
        rotate_key(store, "alice")
