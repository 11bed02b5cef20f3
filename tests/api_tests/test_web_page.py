"""The page at `/` is whole, ours, kept by browsers as it should be, and says nothing in one language alone."""

import gzip
import hashlib
import re

import numpy as np
import pytest

from api.pages import FOLDERS, POLICY
from api.questions import is_served
from predictor.answers.bounds import BOUNDS, OVERHEAD
from predictor.answers.options import options_of
from predictor.answers.question import Plan, Question
from predictor.models.layer_times.law import CLASSES
from predictor.operators.kernels import KERNEL_CLASSES, operator_classes_of

_FOLDER = FOLDERS["web"]
_MODULES = sorted(_FOLDER.glob("*.js"))
SHOWN = {
    name: option
    for name, option in {**options_of(Question), **options_of(Plan)}.items()
    if is_served(option) and name not in ("anchors", "relative_to")
}
"""Options that the form has a field for."""

_VENDORED = sorted((_FOLDER / "vendor").glob("*.js"))
_SWAGGER = [FOLDERS["docs"] / name for name in ("swagger-ui-bundle.js", "swagger-ui.css")]


def test_the_page_and_all_that_it_names_are_served_small_under_a_policy_of_its_own_scripts(client):
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:src|href)="(web/[^"]+)"', page.text)
    assert len(named) > 4
    for name in named:
        assert client.get(f"/{name}").status_code == 200
    assert client.get("/").headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    page = client.get("/").text
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=", page)
    for path in (*_MODULES, _FOLDER / "index.html", _FOLDER / "style.css"):
        addresses = set(re.findall(r"https?://[^\s\"')]+", path.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}
    sizes = [len(gzip.compress(path.read_bytes())) for path in _FOLDER.rglob("*.*") if path.suffix != ".md"]
    assert sum(sizes) < 500_000
    module, vendored = client.get("/web/main.js"), client.get(f"/web/vendor/{_VENDORED[0].name}")
    assert module.headers["cache-control"] == "no-cache"
    assert "immutable" in vendored.headers["cache-control"]


@pytest.mark.parametrize("module", _MODULES, ids=lambda path: path.name)
def test_what_a_module_imports_is_served_as_a_script(client, module):
    for name in re.findall(r'(?:from |import\()"\./([^"]+)"', module.read_text()):
        served = client.get(f"/web/{name}")
        assert served.status_code == 200
        assert served.headers["content-type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize("module", _MODULES, ids=lambda path: path.name)
def test_a_module_says_why_it_exists_and_who_calls_it(module):
    head = module.read_text().partition("*/")[0]
    assert head.startswith("/**")
    assert re.search(r"Called by|Read by|Loaded by", head)


@pytest.mark.parametrize("folder", FOLDERS)
def test_other_files_are_not_served(client, folder):
    names = (
        "index.html",
        "README.md",
        "vendor/README.md",
        "../main.py",
        "..%2f..%2fmain.py",
        "%2e%2e/main.py",
        "vendor",
    )
    for name in names:
        assert client.get(f"/{folder}/{name}").status_code == 404
    assert client.get("/web/").status_code == 404


@pytest.mark.parametrize("packing", ["gzip", "identity"])
def test_files_come_whole_packed_or_not(client, packing):
    answer = client.get("/web/style.css", headers={"Accept-Encoding": packing})
    assert answer.content == (_FOLDER / "style.css").read_bytes()


@pytest.mark.parametrize("path", [*_VENDORED, *_SWAGGER], ids=lambda path: path.name)
def test_vendored_files_are_those_that_the_readme_names(path):
    readme = (path.parent / "README.md").read_text()
    assert f"| `{path.name}` | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |" in readme
    assert "sourceMappingURL" not in path.read_text() or path in _SWAGGER


def test_vendored_licences_texts_and_options_agree_between_page_and_service():
    for name in ("LICENSE-vega", "LICENSE-vega-lite", "LICENSES-contained.md"):
        assert (_FOLDER / "vendor" / name).stat().st_size > 1000
    english, japanese = _texts("en"), _texts("ja")
    assert english.keys() == japanese.keys()
    for key, text in english.items():
        assert set(re.findall(r"{\w+}", text)) == set(re.findall(r"{\w+}", japanese[key])), key
    page = (_FOLDER / "index.html").read_text()
    code = "".join(module.read_text() for module in _MODULES if not module.name.startswith("strings_"))
    keys = set(re.findall(r'data-i18n(?:-label)?="(\w+)"', page)) | set(re.findall(r'\bt\("(\w+)"', code))
    texts = _texts("en").keys()
    assert keys <= texts
    quoted = set(re.findall(r'"(\w+)"', code))
    sentence = re.findall(r'data-words="(\w+)"', page)
    composed = [*re.findall(r"`(\w+_)\$\{", code), *(f"{name}_" for name in SHOWN), *sentence]
    assert [key for key in texts - keys - quoted - SHOWN.keys() if not key.startswith(tuple(composed))] == []
    places = [name for names in re.findall(r'data-options="([^"]*)"', page) for name in names.split()]
    assert set(places) <= set(SHOWN)
    assert len(places) == len(set(places))
    assert SHOWN.keys() - _texts("en").keys() == set()
    words = {word for option in SHOWN.values() for word in option.choices if "_" in word}
    assert [word for word in words if f'"{word}"' in code] == []
    classes = {*CLASSES, *operator_classes_of(dict.fromkeys(KERNEL_CLASSES, np.zeros(1))), OVERHEAD}
    assert {f"class_{name}" for name in classes} | {f"bound_{name}" for name in BOUNDS} <= _texts("en").keys()


def _texts(language):
    lines = (_FOLDER / f"strings_{language}.js").read_text().splitlines()
    return dict(re.fullmatch(r'  (\w+): "(.*)",', line).groups() for line in lines if re.match(r"  \w", line))


_ASKED = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64], "data_set": "imagenet"}
_REFUSED = (
    {"cnn": "resnet5"}, {"gpus": ["T5"]}, {"data_set": "imagnet"}, {"n_gpus": 8, "link": "nvl"}, {"host": "mine"},
    {"loader": "dal"}, {"offer_region": "mars"}, {"batch_sizes": [0]}, {"precisions": ["fp8"]}, {"batch_sizes": []},
    {"n_gpus": 3}, {"precisions": ["tf32"]}, {"workspace_mib": 0},
)  # fmt: skip


def test_refusals_and_reasons_of_the_service_exist_in_japanese(client):
    lines = (_FOLDER / "strings_ja.js").read_text().partition("export const sentences")[2].splitlines()
    pairs = [match.groups() for line in lines if (match := re.fullmatch(r'  \[/(.*)/, "(.*)"\],', line))]
    in_japanese = {re.compile(pattern): re.sub(r"\$(\d)", r"\\\1", text) for pattern, text in pairs}

    def translated(sentence):
        return next((p.sub(text, sentence) for p, text in in_japanese.items() if p.match(sentence)), None)

    for change in _REFUSED:
        problem = client.post("/v1/predictions", json=_ASKED | change).json()
        assert translated(problem["errors"][0]["detail"]), problem
    rows = client.post("/v1/predictions", json=_ASKED | {"gpus": ["all"]}).json()["rows"]
    reasons = {reason["text"] for row in rows for reason in row["extrapolates"]}
    assert len(reasons) > 10
    assert [reason for reason in reasons if not translated(reason)] == []
    assert (
        translated("Batch 1,024 takes 24 % less time there than 256.")
        == "そこではバッチサイズ 1,024 のほうが 256 より 24 % 短く済みます。"
    )


FOLDER = FOLDERS["docs"]


def test_the_page_shows_our_document_from_small_files_without_telemetry_and_nothing_elsewhere(client):
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in re.findall(r'(?:src|href)="docs/([^"]+)"', page.text):
        assert client.get(f"/docs/{name}").status_code == 200
    assert 'url: "openapi.json"' in client.get("/docs/init.js").text
    for text in (client.get("/docs").text, client.get("/docs/init.js").text):
        assert not re.search(r"https?://|//[a-z]+\.", text)
    assert "validatorUrl: null" in client.get("/docs/init.js").text
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000
    assert b"scarf" not in (FOLDER / "swagger-ui-bundle.js").read_bytes()
    assert (FOLDER / "LICENSE").is_file()
