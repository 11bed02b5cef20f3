"""A hundred and more uploads that mean harm, each as a request: method, path, headers and body."""

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

Request = tuple[str, str, dict[str, str], bytes]

PREDICTIONS, EXPLANATIONS, CNNS = "/v1/predictions", "/v1/explanations", "/v1/cnns"
_ALSO_EXPLAINED = ("packed", "deep", "numbers", "forms", "long")  # files are read alike, each takes a second

JSON, CSV = {"Content-Type": "application/json"}, {"Content-Type": "text/csv"}
QUESTION = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [32]}
COMPARISON = {"cnn": "resnet50", "batch_sizes": [32], "data_set": "imagenet"}
ROW = {
    "gpu": "T4",
    "cnn": "resnet50",
    "image_size": 224,
    "batch_size": 32,
    "precision": "fp32",
    "iteration_time_ms": 95.0,
}
LINE = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms\nT4,resnet50,224,32,fp32,"


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return open, (str(self.path), "w")


def hostile_requests(trace: Path, onnx_file: bytes) -> Iterator[tuple[str, Request]]:
    """Each with its name; `trace` is what a pickle makes where it is unpickled, `onnx_file` a file to be damaged."""
    for kind, made in (
        ("packed", _packed()),
        ("deep", _deep()),
        ("numbers", _numbers()),
        ("paths", _paths()),
        ("pickles", _pickles(trace)),
        ("onnx", _onnx(onnx_file)),
        ("forms", _forms()),
        ("tables", _tables()),
        ("long", _long()),
        ("own", _own(onnx_file)),
        ("explained", _explained()),
    ):
        for number, request in enumerate(made):
            yield f"{kind} {number}", request
            if kind in _ALSO_EXPLAINED and request[1] == PREDICTIONS:
                yield f"{kind} {number}, explained", _at(EXPLANATIONS, request)


def _predict(body: bytes | dict[str, object], headers: dict[str, str] = JSON) -> Request:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return "POST", PREDICTIONS, headers, content


def _at(path: str, request: Request) -> Request:
    """The same request elsewhere."""
    method, _, headers, body = request
    return method, path, headers, body


def _upload(body: bytes | str, headers: dict[str, str] = CSV) -> Request:
    return "POST", "/v1/measurements", headers, body if isinstance(body, bytes) else body.encode()


def _form(file: bytes, name: str = "x.onnx", image_size: str = "8") -> Request:
    parts = (
        f'--b\r\nContent-Disposition: form-data; name="image_size"\r\n\r\n{image_size}\r\n'
        f'--b\r\nContent-Disposition: form-data; name="onnx"; filename="{name}"\r\n\r\n'
    )
    body = parts.encode("utf-8", "surrogatepass") + file + b"\r\n--b--\r\n"
    return _at(CNNS, _predict(body, {"Content-Type": "multipart/form-data; boundary=b"}))


def _packed() -> Iterator[Request]:
    bomb = gzip.compress(bytes(2**28))
    for bodied, headers in ((_predict, JSON), (_upload, CSV), (_upload, JSON)):
        yield bodied(bomb, headers | {"Content-Encoding": "gzip"})
        yield bodied(gzip.compress(bomb), headers | {"Content-Encoding": "gzip"})
        yield bodied(gzip.compress(b"{}" * 1000)[:-9], headers | {"Content-Encoding": "gzip"})
        yield bodied(gzip.compress(b"{}") + b"garbage", headers | {"Content-Encoding": "gzip"})
        for packing in ("deflate", "br", "zstd", "gzip, gzip", "x" * 1000):
            yield bodied(bomb[:1000], headers | {"Content-Encoding": packing})
    yield _upload(gzip.compress(b"a," * 2**25), CSV | {"Content-Encoding": "gzip"})
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(2**26))
    yield _form(zipped.getvalue())
    yield _form(bomb)


def _deep() -> Iterator[Request]:
    for opened in (b"[", b'{"a":', b'{"cnn":[', b'{"measurements":[{"gpu":'):
        yield _predict(opened * 200_000)
        yield _upload(opened * 200_000, JSON)
    yield _predict({**QUESTION, "measurements": [{"gpu": _nested(900)}]})
    yield _predict({**QUESTION, "anchors": [_nested(900)]})
    yield _upload('{"rows":[{"gpu":' + "[" * 500 + "]" * 500 + "}]}", JSON)


def _nested(depth: int) -> object:
    value: object = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def _numbers() -> Iterator[Request]:
    wrong = ("NaN", "Infinity", "-Infinity", "1e999", "-1", "1e308", "9" * 5000, "0.5", '"32"', "true", "[]")
    for text in wrong:
        yield _predict(f'{{"cnn":"resnet50","gpus":["T4"],"batch_sizes":[{text}]}}'.encode())
    for text in ("NaN", "1e999", "1e308", "-5", "0", "9" * 5000):
        anchor = f'{{"gpu":"T4","batch_size":32,"iteration_time_ms":{text}}}'
        yield _predict(f'{{"cnn":"resnet50","gpus":["T4"],"batch_sizes":[1],"anchors":[{anchor}]}}'.encode())
    for text in ("nan", "inf", "-inf", "1e999", "1e308", "-5", "0", "9" * 5000, "0x10", "1_0"):
        yield _upload(LINE + text + "\n")
    for name, text in (
        ("budget_usd", "1e308"),
        ("deadline_h", "NaN"),
        ("epochs", "9" * 400),
        ("setup_minutes", "1e999"),
    ):
        yield (
            "POST",
            "/v1/comparisons",
            JSON,
            json.dumps(COMPARISON)[:-1].encode() + f',"{name}":{text}}}'.encode(),
        )
    huge = {"type": "conv2d", "in_channels": 10**30, "parameters": 1}
    yield _predict({**QUESTION, "cnn": None, "layer_table": {"layers": [huge]}})
    yield _predict({**QUESTION, "cnn": None, "layer_table": {"layers": [huge | {"in_channels": -1}]}})


def _paths() -> Iterator[Request]:
    for name in (
        "/etc/passwd", "../../../etc/passwd", "datasets/cnns/resnet50.csv", "file:///etc/passwd", "C:\\win.ini",
        "\\\\host\\share\\x.onnx", "~/.ssh/id_rsa", "/dev/zero", "/proc/self/environ.csv", "resnet50.csv\u0000", "http://x/y.onnx",
    ):  # fmt: skip
        yield _predict({**QUESTION, "cnn": name})
    for name in (
        "../../../etc/passwd",
        "C:\\\\win.ini",
        "resnet50.onnx\u0000",
    ):  # each file read takes a process
        yield _form(b"no onnx", name)
    yield _predict({**QUESTION, "data_set": "/etc/passwd"})
    yield _predict({**QUESTION, "host": "/etc/hostname"})
    yield "GET", "/v1/cnns/..%2f..%2fetc%2fpasswd", {}, b""
    yield "GET", "/docs/..%2f..%2fmain.py", {}, b""
    yield "GET", "/v1/gpus/%00", {}, b""


def _pickles(trace: Path) -> Iterator[Request]:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        bomb = pickle.dumps(Bomb(trace), protocol)
        if protocol in (0, pickle.HIGHEST_PROTOCOL):
            yield _form(bomb)
        yield _upload(bomb)
        yield _upload(bomb, JSON)
        yield _predict(bomb)
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:  # as torch.save writes
        file.writestr("archive/data.pkl", pickle.dumps(Bomb(trace)))
    yield _form(zipped.getvalue(), "model.pt")
    yield _form(zipped.getvalue(), "model.onnx")


def _onnx(good: bytes) -> Iterator[Request]:
    for cut in (1, 2, 10, len(good) // 3, len(good) // 2, len(good) - 20, len(good) - 1):
        yield _form(good[:cut])
    yield _form(b"")
    yield _form(b"\x08" * 1_000_000)
    yield _form(b"\xff" * 1_000_000)
    yield _form(b"\x3a\xff\xff\xff\xff\x0f" + b"x" * 100)  # a graph of 4 GiB, it says
    yield _form(b"<?xml version='1.0'?><!DOCTYPE l [<!ENTITY a 'aaa'>]><l>&a;</l>")
    for graph in _graphs():
        yield _form(graph)


def _graphs() -> Iterator[bytes]:
    """Files that are well formed and of no use: too much, of no size, in circles."""
    from onnx import TensorProto, helper

    def file(nodes: list[object], image: object = (1, 3, 8, 8), more: tuple[object, ...] = ()) -> bytes:
        info = helper.make_tensor_value_info("x", TensorProto.FLOAT, image)
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "g", [info], [out], list(more))
        return bytes(helper.make_model(graph).SerializeToString())

    relu = helper.make_node("Relu", ["x"], ["y"])
    yield file([])
    yield file([relu] * 100_001)
    yield file([relu], (1, 3))
    yield file([relu], (1, -3, -8, 8))
    yield file([relu], (1, "c", "h", "w"))
    yield file([helper.make_node("Relu", ["y"], ["y"])])
    yield file([helper.make_node("Conv", ["x", "w"], ["y"])])
    shape = helper.make_tensor("s", TensorProto.INT64, [4], [2**40, 2**40, 2**40, 2**40])
    yield file(
        [helper.make_node("ConstantOfShape", ["s"], ["big"]), helper.make_node("Add", ["x", "big"], ["y"])],
        more=(shape,),
    )
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**62, 2**62])
    yield file([helper.make_node("Conv", ["x", "w"], ["y"])], more=(weights,))
    negative = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[-1, 3, 3, 3])
    yield file([helper.make_node("Conv", ["x", "w"], ["y"])], more=(negative,))
    yield b"\x08\x08" + _message(7, _nested_graph(5_000))
    itself = helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("F", ["a"], ["b"], domain="own")], []
    )
    graph = helper.make_graph(
        [helper.make_node("F", ["x"], ["y"], domain="own")], "g",
        [helper.make_tensor_value_info("x", 1, (1, 3, 8, 8))], [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    yield bytes(helper.make_model(graph, functions=[itself]).SerializeToString())


def _nested_graph(depth: int) -> bytes:
    """Graphs within conditions within graphs, deeper than any parser should go."""
    graph = b""
    for _ in range(depth):
        attribute = _message(1, b"then_branch") + _message(6, graph) + b"\xa0\x01\x05"
        graph = _message(
            1, _message(1, b"x") + _message(2, b"y") + _message(4, b"If") + _message(5, attribute)
        )
    return graph


def _message(number: int, content: bytes) -> bytes:
    """A field of a protobuf message that holds bytes."""
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


def _forms() -> Iterator[Request]:
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    field = b'--b\r\nContent-Disposition: form-data; name="question"\r\n\r\n{}\r\n'
    yield _read(field * 5000 + b"--b--\r\n", form)
    yield _read(field, form)
    yield _read(b"--b\r\n" + b"X: y\r\n" * 100_000, form)
    yield _read(b"--b\r\nContent-Disposition: " + b"x" * 1_000_000, form)
    yield _read(b"--b\r\nContent-Disposition: form-data\r\n\r\n{}\r\n--b--\r\n", form)
    yield _read(field + b"--b--\r\n", {"Content-Type": "multipart/form-data"})
    yield _read(field + b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=" + "b" * 10_000})
    yield _read(field + b"--b--\r\n", {"Content-Type": "multipart/mixed; boundary=b"})
    yield _read(b"x=1", {"Content-Type": "application/x-www-form-urlencoded"})
    yield _form(b"x", '"; filename="y')
    yield _form(b"x", "\u202e" * 500)
    yield _form(b"x", image_size='{"cnn":"resnet50"}')


def _read(body: bytes, headers: dict[str, str]) -> Request:
    """A form for the route that reads files."""
    return _at(CNNS, _predict(body, headers))


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
    yield _upload(json.dumps({"rows": [ROW] * 20_001}), JSON)
    yield _upload(json.dumps({"rows": [ROW | {f"c{i}": 1 for i in range(10_000)}]}), JSON)
    yield _upload(json.dumps({"rows": {"gpu": "T4"}}), JSON)
    yield _upload(json.dumps({"rows": [ROW | {"gpu": "Robert'); DROP TABLE measurements;--"}]}), JSON)
    yield "GET", "/v1/measurements?gpu=T4&limit=99999999999999999999", {}, b""
    yield "GET", "/v1/measurements?table=api_keys", {}, b""
    yield "GET", "/v1/measurements?cnn=%00", {}, b""


def _long() -> Iterator[Request]:
    yield _predict({**QUESTION, "batch_sizes": list(range(1, 10_000))})
    yield _predict({**QUESTION, "gpus": ["T4"] * 100_000})
    yield _predict({**QUESTION, "gpus": ["x" * 1_000_000]})
    yield _predict(
        {**QUESTION, "gpus": ["all"], "batch_sizes": list(range(1, 201)), "precisions": ["fp32"] * 5}
    )
    yield _predict({**QUESTION, "measurements": [ROW] * 5_001})
    yield _predict({**QUESTION, "anchors": [{"gpu": "T4", "batch_size": 1, "iteration_time_ms": 1}] * 201})
    yield _predict({**QUESTION, "cnn": None, "layer_table": {"layers": [{"type": "add"}] * 10_001}})
    yield _predict({**QUESTION, f"{'k' * 1_000_000}": 1})
    yield _predict({f"k{i}": 1 for i in range(100_000)})
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

    def column(name: str, cells: bytes, count: int) -> bytes:
        return b'"%s":[' % name.encode() + cells * (count - 1) + cells.rstrip(b",") + b"]"

    yield sent(column("gpu", b"1,", 7_000_000))
    yield sent(column("gpu", b"1,", 1_400_000))
    yield sent(column("gpu", b"[],", 19_000))
    yield sent(column("gpu", b"{},", 19_000))
    yield sent(column("gpu", b"NaN,", 19_000))
    yield sent(column("batch_size", b"9" * 5000 + b",", 2_000))
    yield sent(column("gpu", b'"T4",', 20_001))
    yield sent(column("gpu", b'"T4",', 3), column("batch_size", b"1,", 2))
    yield sent(*(column(f"c{i}", b"0.5,", 19_000) for i in range(70)))
    yield sent(*(column(f"c{i}", b"1,", 2) for i in range(100_000)))
    yield sent(column("gpu", b'"=1+1",', 19_000))
    yield sent(column("gpu", b'"' + b"x" * 800 + b'",', 19_000))
    yield sent(b'"gpu":' + b"[" * 90_000)
    yield sent(b'"gpu":5')
    yield _predict(beginning + b"}," + b",".join(b'"k%d" :1' % i for i in range(149_000)) + b"}")
    yield _predict(beginning + b"}," + b",".join(b'"k%d"\t:1' % i for i in range(390_000)) + b"}")


def _own(good: bytes) -> Iterator[Request]:
    """CNNs of one's own to be read: `/v1/cnns`."""
    bomb = gzip.compress(bytes(2**28))
    requests = (
        _predict(bomb, JSON | {"Content-Encoding": "gzip"}),
        _predict({"layer_table": {"layers": [{"type": "add"}]}}),
        _predict({"cnn": "/etc/passwd"}),
        _form(good[: len(good) // 2]),
        _form(b"\xff" * 1_000_000),
        _form(good, image_size="99999999999"),
        _form(good, image_size="{" * 100_000),
        _form(bytes(17 * 2**20)),
        _predict(bytes(40 * 2**20)),
    )
    for request in requests:
        yield _at(CNNS, request)


def _explained() -> Iterator[Request]:
    """Explanations that cost too much, or make no sense."""
    large = {"type": "linear", "in_channels": 1, "out_channels": 1, "parameters": 2}
    for change in (
        {"gpus": ["all"]},
        {"gpus": ["T4"] * 9},
        {"gpus": []},
        {"cnn": "densenet201", "gpus": ["T4", "H200", "L4", "A10"], "batch_sizes": list(range(1, 201))},
        {"cnn": None, "layer_table": {"layers": [large] * 10_000}, "batch_sizes": list(range(1, 200))},
        {"precision": "fp8"},
        {"precision": ["fp32"]},
        {"measurements": [ROW] * 5_001},
        {"measurements": [ROW | {"iteration_time_ms": -1}]},
        {"measurements": [ROW | {"gpu": "Robert'); DROP TABLE measurements;--"}]},
        {"cnn": "../../etc/passwd"},
        {"data_set": "/etc/passwd"},
        {"host": "/etc/hostname"},
        {"samples": 10**400},
    ):
        yield _at(EXPLANATIONS, _predict(QUESTION | change))
