"""A hundred and more uploads that mean harm, each as a request: method, path, headers and body."""

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from onnx_files import node, onnx_file

Request = tuple[str, str, dict[str, str], bytes]

PREDICTIONS, EXPLANATIONS, CNNS = "/v1/predictions", "/v1/explanations", "/v1/cnns"

JSON, CSV = {"Content-Type": "application/json"}, {"Content-Type": "text/csv"}
QUESTION = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [32]}
_DOCUMENT: dict[str, Any] = json.loads(Path(__file__).with_name("hostile.json").read_text(encoding="utf-8"))
"""Texts and changes of questions that need no program to make."""

ROW = _DOCUMENT["row"]
LINE = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms\nT4,resnet50,224,32,fp32,"


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return open, (str(self.path), "w")


def hostile_requests(trace: Path, file: bytes) -> Iterator[tuple[str, Request]]:
    """Each with its name; `trace` is what a pickle makes where it is unpickled, `file` an ONNX file to be damaged."""
    for kind, requests in (
        ("packed", _packed()),
        ("deep", _deep()),
        ("numbers", _numbers()),
        ("paths", _paths()),
        ("pickles", _pickles(trace)),
        ("onnx", map(_form, (*_damaged(file), *_graphs()))),
        ("forms", _forms()),
        ("tables", _tables()),
        ("long", _long()),
        ("own", _own(file)),
        ("explained", _explained()),
    ):
        for number, request in enumerate(requests):
            yield f"{kind} {number}", request


def _at(path: str, request: Request) -> Request:
    """The same request elsewhere."""
    method, _, headers, body = request
    return method, path, headers, body


def _get(path: str) -> Request:
    return "GET", path, {}, b""


def _predict(body: bytes, headers: dict[str, str] = JSON) -> Request:
    return "POST", PREDICTIONS, headers, body


def _ask(**change: object) -> Request:
    return _predict(json.dumps(QUESTION | change).encode())


def _layers(*layers: dict[str, object]) -> Request:
    return _ask(cnn=None, layer_table={"layers": layers})


def _upload(body: bytes | str, headers: dict[str, str] = CSV) -> Request:
    return "POST", "/v1/measurements", headers, body if isinstance(body, bytes) else body.encode()


def _rows(rows: object) -> Request:
    return _upload(json.dumps({"rows": rows}), JSON)


def _form(file: bytes, name: str = "x.onnx", image_size: str = "8") -> Request:
    parts = (
        f'--b\r\nContent-Disposition: form-data; name="image_size"\r\n\r\n{image_size}\r\n'
        f'--b\r\nContent-Disposition: form-data; name="onnx"; filename="{name}"\r\n\r\n'
    )
    body = parts.encode("utf-8", "surrogatepass") + file + b"\r\n--b--\r\n"
    return "POST", CNNS, {"Content-Type": "multipart/form-data; boundary=b"}, body


def _zipped(name: str, content: bytes) -> bytes:
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return zipped.getvalue()


@cache
def _bomb() -> bytes:
    """A quarter of a gibibyte of zeros, packed."""
    return gzip.compress(bytes(2**28), 1)


def _packed() -> Iterator[Request]:
    bomb = _bomb()
    bodies = (bomb, gzip.compress(bomb), gzip.compress(b"{}" * 1000)[:-9], gzip.compress(b"{}") + b"garbage")
    for bodied, headers in ((_predict, JSON), (_upload, CSV), (_upload, JSON)):
        for body in bodies:
            yield bodied(body, headers | {"Content-Encoding": "gzip"})
        for packing in ("deflate", "br", "zstd", "gzip, gzip", "x" * 1000):
            yield bodied(bomb[:1000], headers | {"Content-Encoding": packing})
    yield _upload(gzip.compress(b"a," * 2**25), CSV | {"Content-Encoding": "gzip"})
    yield _form(_zipped("zeros", bytes(2**26)))
    yield _form(bomb)


def _deep() -> Iterator[Request]:
    for opened in (b"[", b'{"a":', b'{"cnn":[', b'{"measurements":[{"gpu":'):
        yield _predict(opened * 200_000)
        yield _upload(opened * 200_000, JSON)
    nested: object = {}
    for _ in range(900):
        nested = {"a": nested}
    yield _ask(measurements=[{"gpu": nested}])
    yield _ask(anchors=[nested])
    yield _upload('{"rows":[{"gpu":' + "[" * 500 + "]" * 500 + "}]}", JSON)


def _numbers() -> Iterator[Request]:
    question = '{"cnn":"resnet50","gpus":["T4"],"batch_sizes":'
    for text in (*_DOCUMENT["batch sizes"], "9" * 5000):
        yield _predict(f"{question}[{text}]}}".encode())
    for text in (*_DOCUMENT["times in JSON"], "9" * 5000):
        anchor = f'{{"gpu":"T4","batch_size":32,"iteration_time_ms":{text}}}'
        yield _predict(f'{question}[1],"anchors":[{anchor}]}}'.encode())
    for text in (*_DOCUMENT["times in CSV"], "9" * 5000):
        yield _upload(LINE + text + "\n")
    for name, text in (*_DOCUMENT["limits"], ("epochs", "9" * 400)):
        compared = f'{{"cnn":"resnet50","batch_sizes":[32],"data_set":"imagenet","{name}":{text}}}'
        yield _at("/v1/comparisons", _predict(compared.encode()))
    for channels in (10**30, -1):
        yield _layers({"type": "conv2d", "in_channels": channels, "parameters": 1})


def _paths() -> Iterator[Request]:
    for option, name in _DOCUMENT["paths"]:
        yield _ask(**{option: name})
    yield _form(b"no onnx", "../../../etc/C:\\\\win.ini\u0000")  # each file read takes a process
    for path in ("/v1/cnns/..%2f..%2fetc%2fpasswd", "/docs/..%2f..%2fmain.py", "/v1/gpus/%00"):
        yield _get(path)


def _pickles(trace: Path) -> Iterator[Request]:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        bomb = pickle.dumps(Bomb(trace), protocol)
        yield _upload(bomb)
        yield _upload(bomb, JSON)
        yield _predict(bomb)
    yield _form(bomb)
    yield _form(_zipped("archive/data.pkl", pickle.dumps(Bomb(trace))), "model.pt")  # as torch.save writes


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


def _forms() -> Iterator[Request]:
    field, form = (
        b'--b\r\nContent-Disposition: form-data; name="question"\r\n\r\n{}\r\n',
        "multipart/form-data",
    )
    for body, content_type in (
        (field * 5000 + b"--b--\r\n", f"{form}; boundary=b"),
        (field, f"{form}; boundary=b"),
        (b"--b\r\n" + b"X: y\r\n" * 100_000, f"{form}; boundary=b"),
        (b"--b\r\nContent-Disposition: " + b"x" * 1_000_000, f"{form}; boundary=b"),
        (b"--b\r\nContent-Disposition: form-data\r\n\r\n{}\r\n--b--\r\n", f"{form}; boundary=b"),
        (field + b"--b--\r\n", form),
        (field + b"--b--\r\n", f"{form}; boundary={'b' * 10_000}"),
        (field + b"--b--\r\n", "multipart/mixed; boundary=b"),
        (b"x=1", "application/x-www-form-urlencoded"),
    ):
        yield _at(CNNS, _predict(body, {"Content-Type": content_type}))
    yield _form(b"x", '"; filename="' + "\u202e" * 500)
    yield _form(b"x", image_size='{"cnn":"resnet50"}')


def _tables() -> Iterator[Request]:
    yield _upload("")
    yield _upload("gpu\n" * 2)
    yield _upload(",".join(f"c{i}" for i in range(1_000_000)))
    yield _upload("gpu," * 100_000 + "\n")
    yield _upload(LINE + '"' + "x" * 1_000_000)
    yield _upload(LINE + "9\n" + "T4,resnet50,224,32,fp32,9\n" * 20_001)
    yield _upload(LINE.replace("T4", "=cmd|'/c calc'!A1") + "9\n")
    yield _upload(LINE.replace("resnet50", "x\x00y") + "9\n")
    yield _upload(b"\xff\xfe" + LINE.encode("utf-16-le"))
    yield _rows([ROW] * 20_001)
    yield _rows([ROW | {f"c{i}": 1 for i in range(10_000)}])
    yield _rows({"gpu": "T4"})
    yield _rows([ROW | {"gpu": "Robert'); DROP TABLE measurements;--"}])
    for query in ("gpu=T4&limit=99999999999999999999", "table=api_keys", "cnn=%00"):
        yield _get(f"/v1/measurements?{query}")


def _long() -> Iterator[Request]:
    yield _ask(batch_sizes=list(range(1, 10_000)))
    yield _ask(gpus=["T4"] * 100_000)
    yield _ask(gpus=["x" * 1_000_000])
    yield _ask(gpus=["all"], batch_sizes=list(range(1, 201)), precisions=["fp32"] * 5)
    yield _ask(measurements=[ROW] * 5_001)
    yield _ask(anchors=[{"gpu": "T4", "batch_size": 1, "iteration_time_ms": 1}] * 201)
    yield _layers(*([{"type": "add"}] * 10_001))
    yield _ask(**{"k" * 1_000_000: 1})
    yield _predict(json.dumps({f"k{i}": 1 for i in range(100_000)}).encode())
    yield _predict(b'{"measurements":[' + b"[]," * 2_000_000 + b"[]]}")
    yield _predict(b" " * (9 * 2**20))
    yield from _by_columns()
    yield _predict(bytes(40 * 2**20))
    yield _upload(b"a" * (17 * 2**20))


def _by_columns() -> Iterator[Request]:
    """Measurements column by column: longer, deeper, wronger than a table is."""
    beginning = json.dumps(QUESTION)[:-1].encode() + b',"measurements":{'

    def sent(*columns: bytes) -> Request:
        return _predict(beginning + b",".join(columns) + b"}}")

    def column(name: str, cell: bytes, count: int) -> bytes:
        return b'"%s":[' % name.encode() + (cell + b",") * (count - 1) + cell + b"]"

    for cell, count in (
        (b"1", 7_000_000), (b"1", 1_400_000), (b"[]", 19_000), (b"{}", 19_000), (b"NaN", 19_000),
        (b'"T4"', 20_001), (b'"=1+1"', 19_000), (b'"' + b"x" * 800 + b'"', 19_000),
    ):  # fmt: skip
        yield sent(column("gpu", cell, count))
    yield sent(column("batch_size", b"9" * 5000, 2_000))
    yield sent(column("gpu", b'"T4"', 3), column("batch_size", b"1", 2))
    yield sent(*(column(f"c{i}", b"0.5", 19_000) for i in range(70)))
    yield sent(*(column(f"c{i}", b"1", 2) for i in range(100_000)))
    yield sent(b'"gpu":' + b"[" * 90_000)
    yield sent(b'"gpu":5')
    for key, count in ((b'"k%d" :1', 149_000), (b'"k%d"\t:1', 390_000)):
        yield _predict(beginning + b"}," + b",".join(key % i for i in range(count)) + b"}")


def _own(good: bytes) -> Iterator[Request]:
    """CNNs of one's own to be read: `/v1/cnns`; damaged files are among those of `_damaged`."""
    for body, headers in (
        (_bomb(), JSON | {"Content-Encoding": "gzip"}),
        (b'{"layer_table": {"layers": [{"type": "add"}]}}', JSON),
        (b'{"cnn": "/etc/passwd"}', JSON),
        (bytes(40 * 2**20), JSON),
    ):
        yield _at(CNNS, _predict(body, headers))
    yield _form(good, image_size="99999999999")
    yield _form(good, image_size="{" * 100_000)
    yield _form(bytes(17 * 2**20))


def _explained() -> Iterator[Request]:
    """Explanations that cost too much, or make no sense."""
    large = {"type": "linear", "in_channels": 1, "out_channels": 1, "parameters": 2}
    for change in (
        *_DOCUMENT["explained"],
        {"cnn": "densenet201", "gpus": ["T4", "H200", "L4", "A10"], "batch_sizes": list(range(1, 201))},
        {"cnn": None, "layer_table": {"layers": [large] * 10_000}, "batch_sizes": list(range(1, 200))},
        {"measurements": [ROW] * 5_001},
        *({"measurements": [ROW | cells]} for cells in _DOCUMENT["wrong cells"]),
        {"samples": 10**400},
    ):
        yield _at(EXPLANATIONS, _ask(**change))
