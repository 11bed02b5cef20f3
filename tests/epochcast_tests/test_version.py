"""The command says which version it is."""

from importlib.metadata import version

from typer.testing import CliRunner

from epochcast.command import build_app


def test_version_is_that_of_the_installed_package():
    answer = CliRunner().invoke(build_app(), ["--version"])
    assert (answer.exit_code, answer.output.strip()) == (0, f"epochcast {version('epochcast')}")


def test_one_cnn_on_one_gpu_is_refused_with_what_to_add(tmp_path):
    rows = [f"T4,resnet18,224,{2**k},fp32,{10 + 3 * 2**k}" for k in range(10)]
    table = tmp_path / "m.csv"
    table.write_text("\n".join(["gpu,cnn,image_size,batch_size,precision,iteration_time_ms", *rows]))
    answer = CliRunner().invoke(build_app(), ["fit", str(table), "--out", str(tmp_path / "model.json")])
    assert "Add measurements of another CNN or GPU" in str(answer.exception)
    assert not (tmp_path / "model.json").exists()
