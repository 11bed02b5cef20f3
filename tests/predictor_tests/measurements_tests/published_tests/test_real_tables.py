"""The real published tables, where $EPOCHCAST_PUBLISHED_DATA names them: counts and structures."""

import pytest

from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.published import import_measurements, published_layer_tables
from predictor.measurements.published.sources import timm_cnns

# Rows of the published tables, and what they become: repeats fold, Radeons go, passes unfold.
COUNTS = {
    "profet": (9_567, 1_063),
    "justus": (175_000, 175_000),
    "deepbench": (1_034, 1_034 * 3 - 69),
    "lambda-tf": (464, 452),
    "timm": (1_672, 1_672),
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_row_is_read_and_accounted_for(real_tables, name):
    frame, report = import_measurements(name, real_tables)
    assert (report.n_read, len(frame)) == COUNTS[name]


def test_pytorch_rows_are_kept_or_listed(real_tables):
    frame, report = import_measurements("pytorch", real_tables)
    assert report.n_read == 428
    assert len(frame) + len(report.rejected) == 428
    assert len(report.rejected) <= 2  # a "V100-32GB" may be PCIe or SXM2


def test_only_radeons_are_rejected_of_lambdas_rows_and_the_known_anomalies_are_marked(real_tables):
    frame, report = import_measurements("lambda-tf", real_tables)
    assert {reason for _, reason in report.rejected} == {"'Radeon Pro VII' is not an NVIDIA GPU."}
    suspects = frame[frame["notes"].str.contains("suspect")]
    marked = set(zip(suspects["gpu"], suspects["cnn"], strict=True))
    assert ("NVIDIA A100-SXM4-40GB", "lambda/vgg16") in marked
    assert len(suspects) < 10


def test_profet_has_57_layer_tables_with_keras_parameters(real_tables):
    tables = {key: table for key, table in published_layer_tables(real_tables).items() if "profet" in key[0]}
    assert len(tables) == 57
    assert tables[("profet/VGG16", 224)].parameters == zoo_cnn("vgg16", 224).parameters
    assert tables[("profet/MobileNetV2", 224)].parameters == zoo_cnn("mobilenet_v2", 224).parameters


def test_no_pool_of_profet_contradicts_its_shapes(real_tables):
    layers = (layer for table in published_layer_tables(real_tables).values() for layer in table)
    assert all(layer.kernel_height for layer in layers if "pool" in layer.type)


def test_nearly_every_target_but_timms_has_a_layer_table(real_tables):
    tables = published_layer_tables(real_tables)
    for name in ("profet", "lambda-tf", "pytorch"):
        frame, _ = import_measurements(name, real_tables)
        has_table = [key in tables for key in zip(frame["cnn"], frame["image_size"], strict=True)]
        assert sum(has_table) / len(has_table) > 0.99, name


def test_timm_parameters_agree_with_the_zoo_within_one_percent(real_tables):
    frame, _ = import_measurements("timm", real_tables)
    millions = frame["notes"].str.removeprefix("parameters_m=").astype(float)
    published = dict(zip(frame["cnn"], millions, strict=True))
    for theirs, ours in timm_cnns().items():
        if f"timm/{theirs}" in published:
            assert zoo_cnn(ours).parameters / 1e6 == pytest.approx(published[f"timm/{theirs}"], rel=0.01), (
                theirs
            )
