"""Published tables brought from a server: whole, cut, resumed, wrong, absent, unreachable."""

import gzip
import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

from epochcast import fetching
from epochcast.fetching import Source, fetch_published
from predictor.errors import DataError, SchemaError
from predictor.measurements.published import upstream
from predictor.measurements.published.upstream import PublishedTable, UpstreamFile, published_tables

REPOSITORY, COMMIT = "someone/models", "0123456789abcdef0123456789abcdef01234567"
HEADER = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
NCHW = (HEADER + "tiny,10001.12,50.423,512,106,2.04\n" + "large,3.42,287.247,1,800,480.31\n").encode()
NHWC = (HEADER + "tiny,20000.5,25.25,512,106,2.04\n").encode()
TEXT = b"""gpu,framework,precision,memory_format,cnn,image_size,batch_size,iteration_time_ms,samples_per_s,parameters_m
GeForce RTX 3090,pytorch-1.12,amp,nchw,tiny,106,512,50.423,10001.12,2.04
GeForce RTX 3090,pytorch-1.12,amp,nchw,large,800,1,287.247,3.42,480.31
GeForce RTX 3090,pytorch-1.12,amp,nhwc,tiny,106,512,25.25,20000.5,2.04
"""
PATHS = {
    "results/benchmark-train-amp-nchw-of the test.csv": NCHW,
    "results/benchmark-train-amp-nhwc-of the test.csv": NHWC,
}
TABLE = "timm_training_rtx3090.csv.gz"


def digest(content):
    return hashlib.sha256(content).hexdigest()


def table_of(files, *, missing="", sha256=None):
    return PublishedTable("timm", TABLE, 3, sha256 or digest(TEXT), missing, tuple(files))


def upstream_files(contents=PATHS):
    return [
        UpstreamFile(REPOSITORY, COMMIT, path, len(text), digest(text)) for path, text in contents.items()
    ]


class Server(ThreadingHTTPServer):
    """Serves `contents` by path, and remembers what was asked for."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = {f"/{REPOSITORY}/{COMMIT}/{path}": text for path, text in PATHS.items()}
        self.cut_after = {}  # path -> bytes after which the first answer ends
        self.statuses = []  # of the next answers, before any content
        self.ranges = True
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, server = unquote(self.path), self.server
        range_asked = self.headers.get("Range")
        server.asked.append((path.rsplit("/", 1)[-1], range_asked))
        if server.statuses:
            return self.send_error(server.statuses.pop(0))
        if path not in server.contents:
            return self.send_error(404)
        content, status, headers = server.contents[path], 200, {}
        if range_asked and server.ranges:
            start = int(range_asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return self.send_error(416)
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content, status = content[start:], 206
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = content[: server.cut_after.pop(path, len(content))]
        self.wfile.write(sent)
        self.close_connection = len(sent) < len(content)
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def bring(tmp_path, server, monkeypatch):
    def run(table=None, tries=3, **source):
        asked = table or table_of(upstream_files())
        monkeypatch.setattr(fetching, "published_tables", lambda _: [asked])
        chosen = Source(**{"upstream": server.url, "tries": tries, "pause_s": 0.0} | source)
        (outcome,) = fetch_published((), tmp_path, chosen)
        return outcome

    return run


def text_of(folder):
    return gzip.decompress((folder / TABLE).read_bytes())


def test_a_table_is_made_from_its_files_byte_for_byte(bring, tmp_path):
    outcome = bring()
    assert (outcome.is_there, outcome.text) == (
        True,
        "made from 2 files (274 bytes) of github.com/someone/models",
    )
    assert text_of(tmp_path) == TEXT


def test_a_table_that_is_there_is_left_as_it_is_without_asking_anybody(bring, tmp_path, server):
    (tmp_path / TABLE.removesuffix(".gz")).write_bytes(TEXT)
    assert bring().text == "is there already"
    assert server.asked == []


def test_files_that_are_there_are_not_asked_for_again(bring, tmp_path, server):
    bring()
    (tmp_path / TABLE).unlink()
    server.asked.clear()
    assert bring().is_there
    assert server.asked == []


def test_a_cut_transfer_goes_on_in_the_same_call(bring, tmp_path, server):
    server.cut_after = {path: 60 for path in server.contents if "nchw" in path}
    assert bring().is_there
    assert [asked for name, asked in server.asked if "nchw" in name] == [None, "bytes=60-"]
    assert text_of(tmp_path) == TEXT


def test_a_cut_transfer_goes_on_in_the_next_call(bring, tmp_path, server):
    server.cut_after = {path: 60 for path in server.contents if "nchw" in path}
    outcome = bring(tries=1)
    assert not outcome.is_there
    assert "the connection ended after 60 of" in outcome.text
    server.asked.clear()
    assert bring(tries=1).is_there
    assert server.asked[0] == ("benchmark-train-amp-nchw-of the test.csv", "bytes=60-")


def test_a_server_that_ignores_ranges_sends_all_again(bring, tmp_path, server):
    server.ranges = False
    server.cut_after = {path: 60 for path in server.contents if "nchw" in path}
    assert bring().is_there
    assert text_of(tmp_path) == TEXT


def part_in(folder):
    """Where a cut transfer of the first file is kept, in a new folder."""
    results = folder / "upstream" / REPOSITORY / COMMIT / "results"
    results.mkdir(parents=True)
    return results / "benchmark-train-amp-nchw-of the test.csv.part"


def test_parts_that_do_not_belong_together_are_asked_for_as_a_whole(bring, tmp_path, server):
    part = part_in(tmp_path)
    part.write_bytes(b"of another file")
    assert bring().is_there
    assert [asked for name, asked in server.asked if "nchw" in name] == ["bytes=15-", None]


def test_a_part_that_is_longer_than_the_file_is_begun_anew(bring, tmp_path, server):
    part = part_in(tmp_path)
    part.write_bytes(NCHW + b"more")
    assert bring().is_there


def test_a_passing_fault_of_the_server_is_asked_again(bring, server):
    server.statuses = [503, 429]
    assert bring().is_there


def test_a_wrong_checksum_is_refused_with_both_values_and_deletes_nothing_good(bring, tmp_path, server):
    bring()
    good = (tmp_path / TABLE).read_bytes()
    changed = NHWC.replace(b"25.25", b"26.25")
    server.contents = {path: changed if "nhwc" in path else text for path, text in server.contents.items()}
    kept = next((tmp_path / "upstream").rglob("*nhwc*"))
    kept.write_bytes(b"damaged")
    (tmp_path / TABLE).rename(tmp_path / "elsewhere.gz")
    outcome = bring()
    assert not outcome.is_there
    assert digest(changed) in outcome.text
    assert digest(NHWC) in outcome.text
    assert (tmp_path / "elsewhere.gz").read_bytes() == good
    assert not list(tmp_path.rglob("*.part"))


def test_a_wrong_size_is_refused_where_no_checksum_is_known(bring):
    files = [UpstreamFile(REPOSITORY, COMMIT, path, len(text) + 1, "") for path, text in PATHS.items()]
    assert "has 154 bytes; at commit" in bring(table_of(files)).text


def test_a_table_that_differs_from_the_released_one_is_refused_and_the_one_there_kept(bring, tmp_path):
    (tmp_path / TABLE).write_bytes(b"of the user")
    outcome = bring(table_of(upstream_files(), sha256=digest(b"other")))
    assert not outcome.is_there
    assert digest(TEXT) in outcome.text
    assert digest(b"other") in outcome.text
    assert (tmp_path / TABLE).read_bytes() == b"of the user"


def test_upstream_of_another_form_is_refused(bring, server):
    text = NCHW.replace(b"train_step_time", b"step_time")
    changed = {path: text if "nchw" in path else old for path, old in PATHS.items()}
    server.contents = {f"/{REPOSITORY}/{COMMIT}/{path}": each for path, each in changed.items()}
    assert "have another form: KeyError('train_step_time')" in bring(table_of(upstream_files(changed))).text


def test_a_file_that_is_not_there_says_so_at_once(bring, server):
    server.contents.clear()
    outcome = bring()
    assert not outcome.is_there
    assert "is not there: HTTP 404" in outcome.text
    assert len(server.asked) == 1


def test_without_a_network_the_next_step_is_said(bring):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    outcome = bring(upstream=url, tries=2)
    assert not outcome.is_there
    assert "could not be read in 2 tries" in outcome.text
    assert "--from URL" in outcome.text


def test_a_table_without_upstream_says_why_and_what_to_ask_for(bring):
    outcome = bring(table_of([], missing="upstream keeps it in a pickle"))
    assert not outcome.is_there
    assert outcome.text.startswith("cannot be fetched: upstream keeps it in a pickle. Ask somebody")
    assert digest(TEXT) in outcome.text


def test_a_finished_table_is_brought_from_a_folder_that_has_it(bring, tmp_path, server):
    server.contents = {f"/tables/{TABLE}": gzip.compress(TEXT)}
    outcome = bring(table_of([], missing="upstream keeps it in a pickle"), tables=f"{server.url}/tables/")
    assert outcome.is_there
    assert text_of(tmp_path) == TEXT


def test_a_damaged_finished_table_is_refused(bring, server):
    server.contents = {f"/{TABLE}": gzip.compress(TEXT)[:-9]}
    assert "is a damaged gzip file" in bring(tables=server.url).text


def test_what_no_published_table_can_be_is_cut_off(bring, server, monkeypatch):
    server.contents = {f"/{TABLE}": gzip.compress(bytes(5_000))}
    monkeypatch.setattr(upstream, "_MOST_BYTES", 4_000)
    assert "unzips to more than 4,000 bytes" in bring(tables=server.url).text
    monkeypatch.setattr(fetching, "_MOST_BYTES", 10)
    assert "sends more than 10 bytes" in bring(tables=server.url).text


def test_upstream_is_asked_where_the_folder_lacks_the_table(bring, server):
    outcome = bring(tables=f"{server.url}/tables")
    assert outcome.is_there
    assert outcome.text.startswith("made from 2 files")


@pytest.mark.parametrize(
    "address", ["ftp://somewhere", "/a/folder", "http://", "http://:80", "http://h:99999"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(SchemaError, match="is not the address of published tables"):
        Source(upstream=address)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(DataError, match="Nearest: 'profet'"):
        published_tables(["profit"])


def test_the_command_brings_what_it_can_and_fails_naming_what_is_absent(
    tmp_path, server, monkeypatch, epochcast
):
    with_files = table_of(upstream_files())
    without = PublishedTable("justus", "justus_single_conv.csv.gz", 1, digest(b""), "it is a pickle", ())
    monkeypatch.setattr(fetching, "published_tables", lambda _: [with_files, without])
    done = epochcast("data", "fetch", "--to", tmp_path / "new", "--upstream", server.url)
    assert done.code == 2
    assert f"{TABLE}: made from 2 files" in done.out
    assert "1 of 2 tables are not in" in done.err
    assert text_of(tmp_path / "new") == TEXT


def test_the_list_says_where_tables_come_from_and_whether_the_folder_has_them(tmp_path, epochcast):
    done = epochcast("data", "list", "--to", tmp_path, "--format", "json")
    assert done.code == 0
    assert '"state": "missing"' in done.out
    assert '"repository": "huggingface/pytorch-image-models"' in done.out
