"""Rows are stored once, wholly or not at all, and say who sent them; on both databases."""

import pytest

from api.store import measurements
from api.store.keys import add_key, find_key, list_keys, revoke_key
from api.store.measurements import Deletion, delete_upload, find_rows, store_rows, stored_frame
from predictor.errors import DataError, SchemaError


def test_rows_come_back_as_they_were_sent_and_are_stored_once(store, key_id, make_rows):
    first = store_rows(store, make_rows(5), key_id)
    assert {stored.content for stored in find_rows(store, {}).rows} == {row.content for row in make_rows(5)}
    second = store_rows(store, make_rows(7), key_id)
    assert (first.stored, first.duplicates, second.stored, second.duplicates) == (5, 0, 2, 5)
    assert second.ids[:5] == first.ids
    rows = make_rows(2, first=9, gpu="Tesla T4") + make_rows(2, first=9, gpu="t4")
    in_one = store_rows(store, rows, key_id)
    assert (in_one.stored, in_one.duplicates) == (2, 2)  # another name of the same GPU is the same row
    assert in_one.ids[:2] == in_one.ids[2:]


def test_every_row_names_the_key_that_sent_it_first_revoked_or_not(store, key_id, make_rows):
    bob = find_key(store, add_key(store, "bob"))
    store_rows(store, make_rows(3), key_id)
    store_rows(store, make_rows(5), bob.id)
    revoke_key(store, "alice")
    assert [row.key for row in find_rows(store, {}).rows] == ["alice"] * 3 + ["bob"] * 2


def test_concurrent_uploads_of_the_same_rows_store_them_once(store, key_id, make_rows, in_threads):
    rows, receipts = make_rows(1200), []
    orders = [rows, rows[::-1], rows[600:] + rows[:600], rows[::2] + rows[1::2]] * 2
    in_threads(lambda batch: receipts.append(store_rows(store, batch, key_id)), orders)
    assert sum(receipt.stored for receipt in receipts) == 1200
    assert len(find_rows(store, {}, limit=10_000).rows) == 1200


def test_an_upload_that_fails_midway_leaves_nothing(store, key_id, make_rows, monkeypatch):
    insert, calls = measurements._insert, []

    def fail_at_second(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the disk is full")
        insert(*arguments)

    monkeypatch.setattr(measurements, "_insert", fail_at_second)
    with pytest.raises(OSError, match="full"):
        store_rows(store, make_rows(600), key_id)
    assert find_rows(store, {}).rows == []


def test_rows_are_found_by_what_they_are(store, key_id, make_rows):
    store_rows(store, make_rows(2), key_id)
    store_rows(store, make_rows(3, gpu="H200"), key_id)
    for filters, n in (
        ({"gpu": "Tesla T4"}, 2), ({"gpu": "NVIDIA H200"}, 3), ({"kind": "target"}, 5), ({"kind": "proxy"}, 0),
        ({"batch_size": 1, "cnn": "resnet50"}, 2), ({"key": "alice"}, 5), ({"key": "bob"}, 0), ({"upload": 1}, 2),
    ):  # fmt: skip
        assert len(find_rows(store, filters).rows) == n, filters
    with pytest.raises(SchemaError, match=r"by 'gpus'. Valid: gpu, cnn"):
        find_rows(store, {"gpus": "T4"})


def test_paging_gives_every_row_once_and_says_whether_more_follows(store, key_id, make_rows):
    store_rows(store, make_rows(25), key_id)
    pages, after = [], 0
    while page := find_rows(store, {}, after, 10).rows:
        pages.append(page)
        after = page[-1].id
    assert [len(page) for page in pages] == [10, 10, 5]
    assert len({row.id for page in pages for row in page}) == 25
    assert [find_rows(store, {}, limit=limit).more for limit in (24, 25, 26)] == [True, False, False]


def test_a_page_of_large_rows_is_short(store, key_id, make_rows):
    store_rows(store, make_rows(5, conv_algorithms="x" * 10_000), key_id)
    page = find_rows(store, {}, max_bytes=15_000)
    assert (len(page.rows), page.more) == (2, True)


def test_a_fit_gets_a_checked_table_or_is_told_what_to_do(store, key_id, make_rows):
    with pytest.raises(DataError, match=r"no such measurement. Upload some"):
        stored_frame(store)
    store_rows(store, make_rows(3, autotune=True), key_id)
    frame = stored_frame(store)
    assert sorted(frame["batch_size"]) == [1, 2, 3]
    assert frame["autotune"].tolist() == [True] * 3


def test_a_deleted_upload_takes_the_rows_that_it_alone_brought(store, key_id, make_rows):
    first = store_rows(store, make_rows(3), key_id)
    second = store_rows(store, make_rows(3, first=2), key_id)
    assert delete_upload(store, first.upload) == Deletion(first.upload, deleted=2, kept=1)
    assert [row.upload for row in find_rows(store, {}).rows] == [second.upload] * 3
    assert delete_upload(store, second.upload) == Deletion(second.upload, deleted=3, kept=0)
    assert find_rows(store, {}).rows == []
    assert list_keys(store)[0].rows == 0
    assert store_rows(store, make_rows(3), key_id).stored == 3  # they may be stored again


def test_an_upload_that_is_not_there_or_another_s_is_not_deleted(store, key_id, make_rows):
    upload = store_rows(store, make_rows(3), key_id).upload
    for wrong in ({"upload": upload + 1}, {"upload": upload, "key_id": key_id + 1}):
        with pytest.raises(DataError, match="there is no upload"):
            delete_upload(store, **wrong)
    assert len(find_rows(store, {}).rows) == 3
