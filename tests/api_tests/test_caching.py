"""What a client has already comes as 304, gzip only to those that take it, and no address of its own choosing."""

import subprocess
import sys

import pytest
from case_tables import each_row
from services import ROOT

KEEP = """
import os
from api.caching import in_json
from api.serving import ServedModel

def memory():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

kept = 32 * 2**20
snapshot, before, row = ServedModel(kept_bytes=kept).snapshot, memory(), [0.1] * 200
for n in range(kept // 3000):
    snapshot.answer(str(n).encode(), lambda: in_json({"rows": [row] * (1 + n % 10)}), None, packed=False)
print((memory() - before) / kept)
"""

PATHS = ["/v1/gpus", "/web/main.js", "/openapi.json"]


@pytest.mark.parametrize("path", PATHS)
@each_row
def test_an_answer_is_left_out_only_where_the_client_names_its_etag(client, path, sent, status):
    etag = client.get(path).headers["etag"]
    strong = etag.removeprefix("W/")
    etags = sent.format(etag=etag, strong=strong, inside=strong.strip('"'))
    answer = client.get(path, headers={"If-None-Match": etags})
    assert (answer.status_code, answer.headers["vary"]) == (status, "Accept-Encoding")


@pytest.mark.parametrize("path", PATHS)
@each_row
def test_gzip_comes_only_to_clients_that_take_it(client, path, accepted, packing):
    answer = client.get(path, headers={"Accept-Encoding": accepted})
    assert (answer.status_code, answer.headers.get("content-encoding")) == (200, packing)


def test_a_path_with_a_slash_too_many_leads_to_no_host_that_the_client_sent(client):
    answer = client.get("/v1/gpus/", follow_redirects=False)
    assert (answer.status_code, "'/v1/gpus'" in answer.json()["detail"]) == (404, True)
    answer = client.get("/v1/gpus/", headers={"Host": "elsewhere.example"}, follow_redirects=False)
    assert (answer.status_code, "elsewhere" in str(answer.headers)) == (400, False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory in /proc")
def test_kept_answers_take_the_memory_that_is_set_for_them():
    done = subprocess.run([sys.executable, "-c", KEEP], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 0.9 < float(done.stdout) < 1.4
