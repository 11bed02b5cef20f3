"""What `epochcast cnn show --format csv` prints is a layer table, too."""

from typer.testing import CliRunner

from epochcast.command import build_app
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.zoo import zoo_cnn


def test_the_csv_that_cnn_show_prints_can_be_read_again(tmp_path):
    shown = CliRunner().invoke(build_app(), ["cnn", "show", "resnet18_cifar", "--format", "csv"])
    path = tmp_path / "resnet18_cifar.csv"
    path.write_text(shown.stdout)
    assert tuple(read_layer_table_csv(path)) == tuple(zoo_cnn("resnet18_cifar"))
