"""A hundred and more uploads that mean harm, each as a request: method, path, headers and body.

Those that need no program are lines of ``hostile.json``: method and path, type, and parts of the body, a text or
a text and how often it is repeated: deep, too long, of numbers that are none, paths, broken forms and tables.
"""

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

from onnx_files import node, onnx_file

Request = tuple[str, str, dict[str, str], bytes]

JSON, CSV = {"Content-Type": "application/json"}, {"Content-Type": "text/csv"}
QUESTION = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [32]}
_DOCUMENT = Path(__file__).with_name("hostile.json")


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return open, (str(self.path), "w")


def hostile_requests(trace: Path, file: bytes) -> Iterator[tuple[str, Request]]:
    """Each with its name; `trace` is what a pickle makes where it is unpickled, `file` an ONNX file to be damaged."""
    for kind, requests in (
        ("told", _told()),
        ("packed", _packed()),
        ("pickles", _pickles(trace)),
        ("onnx", map(_form, (*_damaged(file), *_graphs(), bytes(17 * 2**20)))),
        ("long", _long()),
    ):
        for number, request in enumerate(requests):
            yield f"{kind} {number}", request


def _told() -> Iterator[Request]:
    for asked, content_type, parts in json.loads(_DOCUMENT.read_text(encoding="utf-8")):
        pairs = [(part, 1) if isinstance(part, str) else part for part in parts]
        body = b"".join(text.encode("latin-1") * count for text, count in pairs)
        method, path = asked.split()
        yield method, path, {"Content-Type": content_type} if content_type else {}, body


def _predict(body: bytes, headers: dict[str, str] = JSON) -> Request:
    return "POST", "/v1/predictions", headers, body


def _upload(body: bytes, headers: dict[str, str] = CSV) -> Request:
    return "POST", "/v1/measurements", headers, body


def _form(file: bytes, name: str = "x.onnx", image_size: str = "8") -> Request:
    parts = (
        f'--b\r\nContent-Disposition: form-data; name="image_size"\r\n\r\n{image_size}\r\n'
        f'--b\r\nContent-Disposition: form-data; name="onnx"; filename="{name}"\r\n\r\n'
    )
    body = parts.encode() + file + b"\r\n--b--\r\n"
    return "POST", "/v1/cnns", {"Content-Type": "multipart/form-data; boundary=b"}, body


def _zipped(name: str, content: bytes) -> bytes:
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return zipped.getvalue()


def _packed() -> Iterator[Request]:
    bomb = gzip.compress(bytes(2**28), 1)
    bodies = (bomb, gzip.compress(bomb), gzip.compress(b"{}" * 1000)[:-9], gzip.compress(b"{}") + b"garbage")
    for bodied, headers in ((_predict, JSON), (_upload, CSV), (_upload, JSON)):
        for body in bodies:
            yield bodied(body, headers | {"Content-Encoding": "gzip"})
        for packing in ("deflate", "br", "zstd", "gzip, gzip", "x" * 1000):
            yield bodied(bomb[:1000], headers | {"Content-Encoding": packing})
    yield _upload(gzip.compress(b"a," * 2**25), CSV | {"Content-Encoding": "gzip"})
    yield _form(_zipped("zeros", bytes(2**26)))
    yield "POST", "/v1/cnns", JSON | {"Content-Encoding": "gzip"}, bomb


def _pickles(trace: Path) -> Iterator[Request]:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        bomb = pickle.dumps(Bomb(trace), protocol)
        yield from (_upload(bomb), _upload(bomb, JSON), _predict(bomb))
    yield _form(bomb)
    yield _form(_zipped("archive/data.pkl", pickle.dumps(Bomb(trace))), "model.pt")  # as torch.save writes


def _long() -> Iterator[Request]:
    """Names and keys that are all different, and numbers in order."""
    beginning = json.dumps(QUESTION)[:-1].encode() + b',"measurements":{'
    yield _upload(",".join(f"c{i}" for i in range(1_000_000)).encode())
    yield _predict(json.dumps(QUESTION | {"batch_sizes": list(range(1, 10_000))}).encode())
    yield _predict(json.dumps({f"k{i}": 1 for i in range(100_000)}).encode())
    columns = (b'"c%d":[' % i + b"0.5," * 18_999 + b"0.5]" for i in range(70))
    yield _predict(beginning + b",".join(columns) + b"}}")
    yield _predict(beginning + b"}," + b",".join(b'"k%d"\t:1' % i for i in range(390_000)) + b"}")


def _damaged(good: bytes) -> Iterator[bytes]:
    for cut in (1, len(good) // 2, len(good) - 1):
        yield good[:cut]
    yield b""
    yield b"\xff" * 1_000_000
    yield b"\x3a\xff\xff\xff\xff\x0f" + b"x" * 100  # a graph of 4 GiB, it says
    yield b"<?xml version='1.0'?><!DOCTYPE l [<!ENTITY a 'aaa'>]><l>&a;</l>"


def _graphs() -> Iterator[bytes]:
    """Files that are well formed and of no use: too much, of no size, in circles."""
    from onnx import TensorProto, helper

    relu, conv = node("Relu", "x", "y"), node("Conv", "x w", "y")
    yield onnx_file([])
    yield onnx_file([relu] * 100_001)
    for image in ((1, 3), (1, -3, -8, 8), (1, "c", "h", "w")):
        yield onnx_file([relu], image=image)
    yield onnx_file([node("Relu", "y", "y")])
    yield onnx_file([conv])
    shape = helper.make_tensor("s", TensorProto.INT64, [4], [2**40, 2**40, 2**40, 2**40])
    yield onnx_file([node("ConstantOfShape", "s", "big"), node("Add", "x big", "y")], [shape])
    for dims in ([2**62, 2**62], [-1, 3, 3, 3]):
        yield onnx_file([conv], [TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)])
    graph = b""
    for _ in range(5_000):  # graphs within conditions within graphs, deeper than any parser should go
        attribute = _message(1, b"then_branch") + _message(6, graph) + b"\xa0\x01\x05"
        condition = _message(1, b"x") + _message(2, b"y") + _message(4, b"If") + _message(5, attribute)
        graph = _message(1, condition)
    yield b"\x08\x08" + _message(7, graph)
    itself = helper.make_function("own", "F", ["a"], ["b"], [node("F", "a", "b", domain="own")], [])
    yield onnx_file([node("F", "x", "y", domain="own")], functions=[itself])


def _message(number: int, content: bytes) -> bytes:
    """A field of a protobuf message that holds bytes."""
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content
