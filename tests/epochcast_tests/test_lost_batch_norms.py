"""An export without its batch norms is told with the export that keeps them, wherever it is asked about."""

import pytest


@pytest.fixture
def export(tmp_path):
    torch = pytest.importorskip("torch", reason="writes the file")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).eval()
    torch.onnx.export(module, torch.zeros(1, 3, 32, 32), tmp_path / "mine.onnx", dynamo=False)
    return tmp_path / "mine.onnx"


@pytest.mark.parametrize("command", [("predict", "-b", 32), ("compare",), ("cnn", "show")])
def test_the_next_step_is_printed(epochcast, export, command):
    options = () if command[0] == "cnn" else ("-g", "T4", "--data-set", "cifar10")
    out = " ".join(epochcast(*command, export, *options).out.split())
    assert "Beware: inference export, batch norms are missing; export for training: torch.onnx.export(" in out
