"""Files that people choose: weights never leave the computer, shapes do, and what is wrong is said beside the field."""

import csv
import io
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from case_tables import each_row
from onnx_files import node, onnx_file
from page_parts import choose, downloaded, predict
from playwright.sync_api import Error, expect

from predictor.answers.answer import predict as predict_locally
from predictor.cnns.layer_table import Step, TableWarning
from predictor.cnns.onnx_file import from_onnx
from predictor.cnns.zoo import zoo_cnn

_MODE = {"memory_format": "nchw"}
_GPUS = ["T4", "V100-SXM2-16GB", "A100-SXM4-40GB", "H200", "A10G", "H100 80GB HBM3"]
_STATISTICS = ("scale", "shift", "mean", "variance")
_SIZES = [16, 32, 64, 128, 256, 512]


@pytest.fixture(scope="module")
def large_onnx(tmp_path_factory):
    """The file of a CNN of 33 MB: numbers as bytes and one by one, a constant, and the shape of a Reshape."""
    path = tmp_path_factory.mktemp("onnx") / "large net.onnx"
    path.write_bytes(_large_onnx())
    return path


def _large_onnx():
    import onnx

    random = np.random.default_rng(0)

    def weights(name, *shape):
        return onnx.numpy_helper.from_array(random.random(shape, np.float32), name)

    nodes = [
        node("Conv", "x w1", "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", f"a {' '.join(_STATISTICS)}", "b"),
        node("Relu", "b", "c"),
        node("Reshape", "c flat", "d"),
        node("Constant", "", "bias", value=weights("", 2000)),
        node("Gemm", "d w2 bias", "e", transB=1),
        node("Gemm", "e w3", "scores", transB=1),
    ]
    initializers = [
        weights("w1", 64, 3, 3, 3),
        *(weights(name, 64) for name in _STATISTICS),
        weights("w2", 2000, 4096),
        onnx.helper.make_tensor("w3", onnx.TensorProto.FLOAT, [10, 2000], random.random(20_000)),
        onnx.numpy_helper.from_array(np.array([-1, 4096], np.int64), "flat"),
    ]
    opsets = [onnx.helper.make_opsetid("", 17)]
    return onnx_file(nodes, initializers, ("batch", 3, 16, 16), opset_imports=opsets)


def _expected(table, **more):
    options = _MODE | {"data_set": "imagenet"} | more
    return [asdict(row) for row in predict_locally(table, _GPUS, _SIZES, **options)]


def _same(read_rows, rows):
    assert len(read_rows) == len(rows)
    for got, row in zip(read_rows, rows, strict=True):
        assert got["gpu"] == row["gpu"]
        for name in (
            "batch_size",
            "image_size",
            "epoch_time_s",
            "epoch_low_s",
            "peak_memory_gib",
            "cost_usd",
        ):
            assert float(got[name]) == pytest.approx(row[name], rel=1e-12)


def test_a_large_onnx_file_is_sent_without_its_weights_and_lacks_nothing_else(page, large_onnx):
    assert large_onnx.stat().st_size > 16 * 2**20
    page.evaluate(_NOTED)
    choose(page, large_onnx)
    expect(page.locator("#file-about")).to_contain_text("KiB")
    predict(page)
    assert [0 < size < 40_000 for path, size in page.evaluate("window.sent") if isinstance(size, int)] == [
        True
    ]
    _same(downloaded(page, "#rows-csv"), _expected(from_onnx(large_onnx)))
    page.select_option("#request_how", "curl")
    expect(page.locator("#request-text")).to_contain_text("--json @question.json")
    onnx = pytest.importorskip("onnx")
    choose(page, large_onnx)
    script = """async () => {
        const { withoutWeights } = await import("./web/onnx_strip.js");
        const bytes = new Uint8Array(await document.getElementById("file").files[0].arrayBuffer());
        return [...new Uint8Array(await withoutWeights(bytes).arrayBuffer())];
    }"""
    small = onnx.load_model_from_string(bytes(page.evaluate(script)))
    complete_file = onnx.load(large_onnx)
    for tensor in (*complete_file.graph.initializer, complete_file.graph.node[4].attribute[0].t):
        if np.prod(tensor.dims) > 1024:
            for data in ("raw_data", "float_data"):
                tensor.ClearField(data)
            tensor.data_location = onnx.TensorProto.EXTERNAL
    assert small == complete_file
    assert small.graph.initializer[-1].raw_data == np.array([-1, 4096], np.int64).tobytes()


_NOTED = """() => {
    const fetched = fetch;
    window.sent = [];
    window.fetch = (path, { body, ...more }) => {
        window.sent.push([path, body instanceof FormData ? body.get("onnx").size : body]);
        return fetched(path, { body, ...more });
    };
}"""


def test_a_file_is_read_once_however_much_is_asked_and_anew_for_another_image_size(page, large_onnx):
    page.evaluate(_NOTED)
    choose(page, large_onnx)
    predict(page)
    page.fill("#batch_sizes", "8, 24")
    predict(page)
    paths = [path for path, _ in page.evaluate("window.sent")]
    assert paths.count("v1/cnns") == 1  # the page asks while one types, too
    assert {*paths} == {"v1/cnns", "v1/predictions", "v1/comparisons", "v1/explanations"}
    about = page.inner_text("#file-about")
    assert "6 layers · 16 px · 8.21 M parameters" in about.replace("\u00a0", " ")
    page.fill("#image_size", "32")
    page.click("#ask")
    expect(page.locator("#image_size-error")).not_to_be_empty()
    assert [path for path, _ in page.evaluate("window.sent")].count("v1/cnns") == 2
    page.fill("#image_size", "")
    predict(page)
    assert [path for path, _ in page.evaluate("window.sent")].count("v1/cnns") == 2


def test_random_bytes_are_refused_or_stripped_and_csv_is_read_like_python_s_or_refused_with_the_row(
    first_visit,
):
    script = """async seed => {
        const { withoutWeights } = await import("./web/onnx_strip.js");
        const said = new Set();
        for (let i = 0; i < 3000; i++) {
            const bytes = new Uint8Array(1 + (i % 60));
            for (let j = 0; j < bytes.length; j++) bytes[j] = (seed = (seed * 48271) % 2147483647) & 255;
            try { withoutWeights(bytes); said.add("read"); } catch (error) { said.add(error.name); }
        }
        return [...said].sort();
    }"""
    assert first_visit.evaluate(script, 1) == ["RangeError", "read"]
    written = io.StringIO()
    names = ['a "b"', "c, d", "", "line\nbreak", " e "]
    csv.writer(written).writerows([["type", "name"], *(["relu", name] for name in names)])
    read = """async text => (await import("./web/layer_table.js")).fromCsv(text, "x").layers.map(layer => layer.name)"""
    assert first_visit.evaluate(read, written.getvalue()) == [name.strip() for name in names]
    read = """async text => (await import("./web/layer_table.js")).fromCsv(text, "x")"""
    with pytest.raises(Error, match='row 2 has batch_size "16", row 1 "8"'):
        first_visit.evaluate(read, "type,batch_size\nflatten,8\nflatten,16\n")


@pytest.mark.parametrize("form", ["csv", "json", "api"])
def test_a_layer_table_gets_the_answer_of_its_cnn(page, service, ask, tmp_path, form):
    table = zoo_cnn("alexnet", 224)
    if form == "csv":
        table.to_csv(tmp_path / "written.csv")
        content = (tmp_path / "written.csv").read_bytes()
    elif form == "json":  # as `epochcast cnn show --format json` writes it
        rows = [asdict(layer) | {"forward_flops": 1.0} for layer in table]
        content = json.dumps({"cnn": "mine", "image_size": 224, "batch_size": 1, "rows": rows}).encode()
    else:
        content = page.request.get(f"{service}/v1/cnns/alexnet").body()
    file = tmp_path / ("mine.csv" if form == "csv" else "mine.json")
    file.write_bytes(content)
    choose(page, file)
    expect(page.locator("#file-about")).to_contain_text(str(len(table)))
    predict(page)
    _same(downloaded(page, "#rows-csv"), ask("predictions", _question("alexnet"))["rows"])
    expect(page.locator("#request-json")).to_be_visible()
    expect(page.locator("#request-text")).to_contain_text("--json @question.json")
    with page.expect_download() as waiting:
        page.click("#request-json")
    with open(waiting.value.path()) as file:  # noqa: PTH123 - Playwright gives a text
        assert len(ask("predictions", json.load(file))["rows"]) == len(_GPUS) * len(_SIZES)


def _question(cnn):
    modes = {"memory_formats": ["nchw"]}
    return {"cnn": cnn, "gpus": _GPUS, "batch_sizes": _SIZES, "data_set": "imagenet"} | modes


@each_row
def test_a_file_that_is_none_is_refused_before_anything_is_sent(first_visit, tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    choose(first_visit, tmp_path / name)
    expect(first_visit.locator("#file-error")).to_contain_text(words)
    expect(first_visit.locator("#file")).to_have_attribute("aria-invalid", "true")
    first_visit.click("#ask")
    expect(first_visit.locator("#file")).to_be_focused()


def test_a_damaged_onnx_file_is_refused_beside_its_field(page, large_onnx, tmp_path):
    (tmp_path / "damaged.onnx").write_bytes(large_onnx.read_bytes()[:5000])
    choose(page, tmp_path / "damaged.onnx")
    page.click("#ask")
    expect(page.locator("#file-error")).to_contain_text("damaged")
    expect(page.locator("#file")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#file")).to_be_focused()


def test_a_link_to_a_file_says_that_it_is_needed_again_and_shows_no_empty_cards(open_page):
    page = open_page("#source=file&file=mine.onnx", wait="#file-error:not(:empty)")
    expect(page.locator("#file-about")).to_contain_text("mine.onnx")
    expect(page.locator("#results > :visible")).to_have_count(0)  # no empty cards


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_recorded_step_is_asked_about_at_its_batch_size_and_in_its_mode(page, ask, tmp_path, ending):
    waits = {"first_wait": 3, "last_wait": 6, "beside": 7, "update_waits": 1}
    optimizer = {"optimizer_states": 2.0, "optimizer_passes": 18.5, "optimizer_form": "foreach"}
    step = Step(24, 2, "amp_bf16", "channels_last", "adam", "compile", 2, **waits, **optimizer)
    table = replace(zoo_cnn("lenet5"), step=step, warnings=(TableWarning("operator", "a, b: c"),))
    file = tmp_path / f"step.{ending}"
    if ending == "csv":
        table.to_csv(file)
    else:
        file.write_text(json.dumps(table.document()))
    page.evaluate(_NOTED)
    choose(page, file)
    expect(page.locator("#batch_sizes")).to_have_value("24")
    expect(page.locator("#file-about")).to_contain_text("batch size 24")
    predict(page)
    sent = {path: json.loads(body) for path, body in page.evaluate("window.sent")}["v1/predictions"]
    expected = table.document() | {"name": sent["layer_table"]["name"]}
    steps = (sent["layer_table"]["step"], expected["step"])  # what is unknown may be left out
    assert len({tuple((k, v) for k, v in sorted(step.items()) if v is not None) for step in steps}) == 1
    assert sent["layer_table"]["warnings"] == expected["warnings"]
    rows = ask("predictions", sent | {"layer_table": expected})["rows"]
    _same(downloaded(page, "#rows-csv"), rows)
    assert {row["precision"] for row in rows} == {"amp_bf16"}
    expect(page.locator("#decision")).to_contain_text("lack AMP bf16: T4, V100 SXM2")
