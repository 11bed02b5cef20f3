"""Files of every older format are upgraded without loss, or refused with the next step.

`.ci/release` runs this file beside a built wheel, too: it takes no fixture of ours.
"""

import json
from pathlib import Path

import pytest
from case_tables import each_row

pytest.importorskip("sqlalchemy", reason="a store needs epochcast[api]")

import epochcast
from api import store as api_store
from predictor.errors import ArtifactError, SchemaError
from predictor.files import data_file
from predictor.measurements import hosts, inputs, schema
from predictor.models import served

COLUMNS = "format_version,framework,gpu,cnn,image_size,batch_size,precision,iteration_time_ms"


def table(folder, version):
    path = folder / "mine.csv"
    path.write_text(f"{COLUMNS}\n{version},pytorch,H200,resnet50,224,64,tf32,70.5\n")
    return path


def test_a_table_of_version_1_is_upgraded_and_a_later_one_refused_with_the_next_step(tmp_path):
    (row,) = epochcast.load_measurements(table(tmp_path, 1)).to_dict("records")
    assert (row["format_version"], row["float32_matmul_precision"]) == (schema.FORMAT_VERSION, "high")
    assert row["iteration_time_ms"] == 70.5
    later = schema.FORMAT_VERSION + 1
    with pytest.raises(SchemaError, match=f"version '{later}'.* Install the epochcast that wrote it"):
        epochcast.load_measurements(table(tmp_path, later))
    page = Path(__file__).parents[2] / "CHANGELOG.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert f"| measurement table | {schema.FORMAT_VERSION} |" in text
    assert f"| model and the files beside it | {served.FORMAT_VERSION} |" in text
    assert f"| measured host, measured loader | {hosts.HOST_FORMAT_VERSION} |" in text
    assert hosts.HOST_FORMAT_VERSION == inputs.INPUT_FORMAT_VERSION
    versions = Path(api_store.__file__).parent / "migrations" / "versions"
    newest = max(path.name[1:5] for path in versions.glob("v*.py"))
    assert f"| store | {int(newest)} |" in text


@pytest.mark.parametrize("version", range(served.FORMAT_VERSION))
def test_a_model_of_an_older_version_is_refused_with_the_next_step(tmp_path, version):
    model = json.loads(data_file("models/default.json").read_text())
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(model | {"format_version": version}))
    with pytest.raises(ArtifactError, match=f"version {version}.* Refit it with `epochcast fit`"):
        epochcast.predict("resnet50", "T4", 64, model=path)


@each_row
def test_a_measured_machine_of_another_version_is_refused_with_the_next_step(tmp_path, option, command):
    path = tmp_path / "machine.json"
    path.write_text('{"format_version": 0}')
    with pytest.raises(SchemaError, match=f"Write one: {command}"):
        epochcast.predict("resnet50", "T4", 64, **{option: str(path)})
