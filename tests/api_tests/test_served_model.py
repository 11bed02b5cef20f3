"""A model file is replaced under a running service."""

import asyncio
import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from case_tables import each_row
from waiting import PATIENCE_S

from api.serving import ServedModel
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import ArtifactError
from predictor.files import replace_file
from predictor.models.served import Model


@pytest.fixture
def path(tmp_path):
    Model.load().save(tmp_path / "model.json")
    return tmp_path / "model.json"


def rewrite(path, trained_on):
    document = json.loads(path.read_text())
    document["card"]["trained_on"] = trained_on
    replace_file(path, json.dumps(document))


def test_the_default_model_is_served_without_a_path_and_none_is_an_error(tmp_path):
    assert ServedModel().current.card["name"] == "roofline"
    with pytest.raises(ArtifactError, match="cannot read the model"):
        ServedModel(tmp_path / "missing.json")


def test_a_replaced_file_is_served_and_a_request_keeps_the_model_that_it_began_with(path):
    served = ServedModel(path)
    before, trained_on = served.current, served.current.card["trained_on"]
    assert not served.reload_if_changed()
    assert served.current is before
    rewrite(path, "other measurements")
    assert served.reload_if_changed()
    assert served.current.card["trained_on"] == "other measurements"
    assert before.card["trained_on"] == trained_on


@pytest.mark.parametrize("damage", ["", "{", "{}", '{"format_version": 99}', None])
def test_a_damaged_or_lost_file_is_reported_and_the_model_before_it_answers(path, damage):
    served = ServedModel(path)
    before, good = served.current, path.read_text()
    path.unlink() if damage is None else path.write_text(damage)
    assert not served.reload_if_changed()
    assert served.current is before
    assert ("cannot read" if damage is None else "fit") in served.problem
    path.write_text(good)
    assert served.reload_if_changed() or damage is None
    assert served.problem is None


def refitted(path, trained_on):
    """Write what a fit would: files of operators first, the model file last; gives how to write the latter."""
    files = sorted(path.parent.glob("model_operators/*.npz"))
    for file in files:
        np.savez(file, **np.load(file))
    document = json.loads(path.read_text())
    document["files"]["operators"] = {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
    document["card"]["trained_on"] = trained_on
    return lambda: replace_file(path, json.dumps(document))


def test_a_model_is_read_whole_while_another_is_written_over_it(path):
    served = ServedModel(path)
    before = served.current
    write_the_model_file = refitted(path, "other measurements")
    assert not served.reload_if_changed()
    assert before.forecast(zoo_cnn("resnet18"), find_gpu("H200"), Mode(), [64]).method == "layer-times"
    write_the_model_file()
    assert served.reload_if_changed()
    assert served.current.layers.files != before.layers.files
    again = served.current.forecast(zoo_cnn("resnet18"), find_gpu("H200"), Mode(), [64])
    assert again.method == "layer-times"


@each_row
@pytest.mark.parametrize("change", [Path.unlink, lambda file: file.write_bytes(b"of another fit")])
def test_files_of_two_models_are_not_mixed(path, file, change):
    served = ServedModel(path)
    before, good = served.current, (path.parent / file).read_bytes()
    change(path.parent / file)
    rewrite(path, "other measurements")
    assert not served.reload_if_changed()
    assert file in served.problem
    assert served.current is before
    (path.parent / file).write_bytes(good)
    assert served.reload_if_changed()
    assert (served.problem, served.current.card["trained_on"]) == (None, "other measurements")


def test_the_watch_finds_a_new_model_by_itself(path):
    async def watched():
        served = ServedModel(path)
        watch = asyncio.create_task(served.watch(0.01))
        rewrite(path, "other measurements")
        async with asyncio.timeout(PATIENCE_S):
            while served.current.card["trained_on"] != "other measurements":
                await asyncio.sleep(0.01)
        watch.cancel()

    asyncio.run(watched())
