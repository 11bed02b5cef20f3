"""A project's defaults are found from the working directory upwards, and taken where nothing is given."""

import pytest
from case_tables import each_row
from typer.testing import CliRunner

import epochcast
from epochcast import errors
from epochcast.command import build_app

PYPROJECT = "[tool.other]\n[tool.epochcast]\n{}"


def told(*words):
    return CliRunner().invoke(build_app(), ["compare", "resnet18", *words, "--verbose"])


@pytest.mark.parametrize(("name", "form"), [("epochcast.toml", "{}"), ("pyproject.toml", PYPROJECT)])
def test_python_and_command_take_the_nearest_file_and_verbose_shows_it(tmp_path, monkeypatch, name, form):
    (tmp_path / name).write_text(form.format('data_set = "cifar10"\nprovider = "aws"\nepochs = 90\n'))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    best = epochcast.compare("resnet18").iloc[0]
    assert (best["offer"].split()[0], best["epochs"]) == ("aws", 90)
    assert epochcast.compare("resnet18", epochs=1, provider=None).iloc[0]["epochs"] == 1
    assert epochcast.predict("resnet18", "T4", 64).iloc[0]["iterations_per_epoch"] == 782
    answer = told()
    assert f"{tmp_path / name}: data_set = 'cifar10', provider = 'aws', epochs = 90" in answer.stderr
    assert "provider" not in told("--usd-per-hour", "0.3", "--gpu", "T4").stderr


@each_row
def test_what_a_file_gives_and_is_wrong_is_refused_with_the_file(tmp_path, monkeypatch, text, words):
    (tmp_path / "epochcast.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=words):
        epochcast.compare("resnet18")


@pytest.mark.parametrize(
    "options", [{"framework_loop": "nnunet"}, {"framework_loop": "timm", "loader": "none"}]
)
def test_a_default_of_the_file_that_a_given_option_leaves_without_effect_is_left_out(
    tmp_path, monkeypatch, options
):
    workers = "\nworkers = 4" * ("loader" in options)
    (tmp_path / "epochcast.toml").write_text(f"samples = 5000\ndrop_last = true{workers}")
    monkeypatch.chdir(tmp_path)
    epochs_s = epochcast.predict("resnet18", "T4", 64, **options)["epoch_time_s"]
    (tmp_path / "epochcast.toml").unlink()
    own = {"samples": 5000} if options["framework_loop"] == "timm" else {}
    assert epochs_s.equals(epochcast.predict("resnet18", "T4", 64, **options, **own)["epoch_time_s"])
    (tmp_path / "epochcast.toml").write_text(f"framework_loop = '{options['framework_loop']}'")
    with pytest.raises(errors.SchemaError, match="has no effect with framework_loop"):
        epochcast.predict("resnet18", "T4", 64, samples=5000, drop_last=True)


def test_its_paths_are_beside_it_and_what_is_read_is_logged_under_the_library_s_name(
    tmp_path, monkeypatch, caplog
):
    (tmp_path / "epochcast.toml").write_text('offers = "prices.csv"\ndata_set = "cifar10"')
    (tmp_path / "prices.csv").write_text("provider,instance,gpu,gpu_count,usd_per_hour\nmine,desk,T4,1,0.2\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "pyproject.toml").write_text('[project]\nname = "not-epochcast"\n')  # has no table
    monkeypatch.chdir(tmp_path / "deep")
    with caplog.at_level("INFO", logger="epochcast"):
        assert set(epochcast.compare("resnet18")["offer"]) == {"mine desk"}
    assert {"epochcast.project", "epochcast.offers"} <= {record.name for record in caplog.records}


def test_every_warning_has_one_root():
    kinds = [kind for name, kind in vars(errors).items() if name.endswith("Warning")]
    assert [issubclass(kind, errors.EpochcastWarning) for kind in kinds] == 3 * [True]
