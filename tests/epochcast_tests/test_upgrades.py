"""Files and stores of every older format are upgraded without loss, or refused with the next step.

`.ci/release` runs this file beside a built wheel, too: it takes no fixture of ours.
"""

import gzip
import json
from hashlib import sha256
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="a store needs epochcast[api]")

import epochcast
from predictor.errors import ArtifactError, SchemaError
from predictor.files import data_file
from predictor.measurements import hosts, inputs, schema
from predictor.models import served

COLUMNS = "format_version,framework,gpu,cnn,image_size,batch_size,precision,iteration_time_ms"
ROW = {"framework": "pytorch", "gpu": "NVIDIA H200", "cnn": "resnet50", "precision": "tf32"}
SCHEMAS = ("0001", "0002")
"""Schemas of the store before this one."""


def table(folder, version):
    path = folder / "mine.csv"
    path.write_text(f"{COLUMNS}\n{version},pytorch,H200,resnet50,224,64,tf32,70.5\n")
    return path


def test_a_table_of_version_1_is_upgraded(tmp_path):
    (row,) = epochcast.load_measurements(table(tmp_path, 1)).to_dict("records")
    assert (row["format_version"], row["float32_matmul_precision"]) == (schema.FORMAT_VERSION, "high")
    assert row["iteration_time_ms"] == 70.5


def test_a_table_of_a_later_version_is_refused_with_the_next_step(tmp_path):
    later = schema.FORMAT_VERSION + 1
    with pytest.raises(SchemaError, match=f"version '{later}'.* Install the epochcast that wrote it"):
        epochcast.load_measurements(table(tmp_path, later))


@pytest.mark.parametrize("version", range(served.FORMAT_VERSION))
def test_a_model_of_an_older_version_is_refused_with_the_next_step(tmp_path, version):
    model = json.loads(data_file("models/default.json").read_text())
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(model | {"format_version": version}))
    with pytest.raises(ArtifactError, match=f"version {version}.* Refit it with `epochcast fit`"):
        epochcast.predict("resnet50", "T4", 64, model=path)


@pytest.mark.parametrize(
    ("option", "command"), [("host", "epochcast host"), ("input", "epochcast profile input")]
)
def test_a_measured_machine_of_another_version_is_refused_with_the_next_step(tmp_path, option, command):
    path = tmp_path / "machine.json"
    path.write_text('{"format_version": 0}')
    with pytest.raises(SchemaError, match=f"Write one: {command}"):
        epochcast.predict("resnet50", "T4", 64, **{option: str(path)})


def content(version):
    """A stored measurement as an epochcast of that version wrote it, with its hash."""
    row = ROW | {"format_version": version, "image_size": 224, "batch_size": 64, "iteration_time_ms": 70.5}
    text = json.dumps(row | {"kind": "target"}, sort_keys=True, separators=(",", ":"))
    return text, sha256(text.encode()).hexdigest()


def old_store(folder, revision):
    """A store as an older epochcast left it, with a key, an upload and a measurement of version 1."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, text

    import api.store

    url = f"sqlite:///{folder}/store.db"
    config = Config()
    config.set_main_option("script_location", str(Path(api.store.__file__).parent / "migrations"))
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.execute(
            text(
                "INSERT INTO api_keys (id, name, key_sha256, hint, created_at) VALUES (1, 'alice', 'x', 'h', 't')"
            )
        )
        connection.execute(
            text("INSERT INTO uploads (id, key_id, received_at, n_rows, n_stored) VALUES (1, 1, 't', 1, 1)")
        )
        body, digest = content(1)
        connection.execute(
            text(
                "INSERT INTO measurements (id, upload_id, content_sha256, gpu, cnn, kind, precision, "
                "image_size, batch_size, content) VALUES "
                "(1, 1, :digest, 'NVIDIA H200', 'resnet50', 'target', 'tf32', 224, 64, :body)"
            ),
            {"digest": digest, "body": body},
        )
    engine.dispose()
    return url


def stored(engine):
    """Key names and measurements of a store."""
    from sqlalchemy import select

    from api.store.engine import reading
    from api.store.tables import api_keys, measurements

    with reading(engine) as connection:
        names = connection.execute(select(api_keys.c.name)).scalars().all()
        rows = connection.execute(select(measurements.c.content, measurements.c.content_sha256)).all()
    return names, [(json.loads(text), sha256(text.encode()).hexdigest() == digest) for text, digest in rows]


def upgraded(engine):
    names, ((row, hashed),) = stored(engine)
    assert (names, hashed) == (["alice"], True)
    assert (row["format_version"], row["float32_matmul_precision"]) == (schema.FORMAT_VERSION, "high")
    assert row["iteration_time_ms"] == 70.5


@pytest.mark.parametrize("revision", SCHEMAS)
def test_a_store_of_an_older_schema_keeps_its_rows(tmp_path, revision):
    from api.store.engine import open_store

    engine = open_store(old_store(tmp_path, revision))
    upgraded(engine)
    engine.dispose()


def test_there_is_one_older_schema_fewer_than_migrations():
    import api.store

    versions = Path(api.store.__file__).parent / "migrations" / "versions"
    assert sorted(path.name[1:5] for path in versions.glob("v*.py"))[:-1] == list(SCHEMAS)


def test_a_backup_of_an_older_epochcast_is_restored_as_rows_of_this_one(tmp_path):
    from api.store.backup import back_up, restore
    from api.store.engine import open_store

    first = open_store(old_store(tmp_path, "0002"))
    back_up(first, tmp_path / "backup.gz")
    first.dispose()
    lines = gzip.decompress((tmp_path / "backup.gz").read_bytes()).decode().splitlines()
    entries = [json.loads(line) for line in lines]
    body, digest = content(1)
    for entry in entries:
        if entry.get("table") == "measurements":
            entry["row"] |= {"content": body, "content_sha256": digest}
    (tmp_path / "old.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, entries)).encode()))
    other = open_store(f"sqlite:///{tmp_path}/other.db")
    restore(other, tmp_path / "old.gz")
    upgraded(other)
    other.dispose()


def test_the_changelog_has_the_versions():
    page = Path(__file__).parents[2] / "CHANGELOG.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert f"| measurement table | {schema.FORMAT_VERSION} |" in text
    assert f"| model and the files beside it | {served.FORMAT_VERSION} |" in text
    assert f"| measured host, measured loader | {hosts.HOST_FORMAT_VERSION} |" in text
    assert hosts.HOST_FORMAT_VERSION == inputs.INPUT_FORMAT_VERSION
    assert f"| store | {int(SCHEMAS[-1]) + 1} |" in text
