"""What `epochcast cnn show --format csv` prints is a layer table, too."""

import pytest
from case_tables import each_row
from typer.testing import CliRunner

import epochcast as face
from epochcast.command import build_app
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.zoo import zoo_cnn


@each_row
def test_the_sides_of_volumes_and_of_wide_images_are_shown_as_they_are(epochcast, command, more, tmp_path):
    torch = pytest.importorskip("torch")
    for shape, words in (((1, 8, 16, 32), "8 x 16 x 32 px"), ((3, 16, 32), "16 x 32 px")):
        conv = torch.nn.Conv3d if len(shape) == 4 else torch.nn.Conv2d
        model = torch.nn.Sequential(conv(shape[0], 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2))
        images = torch.zeros(4, *shape)
        model(images)
        path = tmp_path / f"step{len(shape)}.csv"
        face.record(lambda model=model, images=images: model(images).sum().backward()).to_csv(path)
        run = epochcast(command, *(("show",) if command == "cnn" else ()), path, *more)
        assert f"{path.stem}, {words}" in run.out, run.err


def test_the_csv_that_cnn_show_prints_can_be_read_again(tmp_path):
    shown = CliRunner().invoke(build_app(), ["cnn", "show", "resnet18_cifar", "--format", "csv"])
    path = tmp_path / "resnet18_cifar.csv"
    path.write_text(shown.stdout)
    assert tuple(read_layer_table_csv(path)) == tuple(zoo_cnn("resnet18_cifar"))
