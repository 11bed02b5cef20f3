"""SkyPilot: seconds of candidates, names of GPUs on clouds, the block of YAML, and a session with the real package."""

import json
import math
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import epochcast as face
from epochcast.sky import CLOUDS, _gpu_of, _name_of, resources_yaml, time_estimator
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.offers import Offer, load_offers
from predictor.errors import OutOfRangeError, SchemaError, UnknownGpuError

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-skypilot" / "bin" / "python"
SKYPILOTS_NAMES = [
    "A10",
    "A100",
    "A100-80GB",
    "A100-80GB-SXM",
    "A10G",
    "A40",
    "A6000",
    "B200",
    "B300",
    "GH200",
    "H100",
    "H100-MEGA",
    "H100-NVL",
    "H100-SXM",
    "H200",
    "H200-SXM",
    "L4",
    "L40",
    "L40S",
    "RTX3090",
    "RTX4090",
    "RTX5090",
    "RTX6000",
    "RTX6000-Ada",
    "RTXA6000",
    "T4",
    "V100",
]
"""Of its catalogue of accelerators, v8."""
SESSION = Path(__file__).with_name("skypilot_session.py")


def candidate(accelerators, cloud=None, instance_type=None):
    """What the estimator reads of SkyPilot's `Resources`."""
    return SimpleNamespace(accelerators=accelerators, cloud=cloud, instance_type=instance_type)


@pytest.fixture(scope="module")
def estimate():
    return time_estimator("resnet50", 256, epochs=90, data_set="imagenet")


@pytest.fixture(scope="module")
def compared():
    offers = [
        Offer("coreweave", "8x L40", "NVIDIA L40", 8, 10.0, vcpus=128, link="pcie4", region="any"),
        Offer(
            "aws", "g5.xlarge", "NVIDIA A10G", 1, 1.006, vcpus=4, spot_usd_per_hour=0.4, region="us-east-1"
        ),
        Offer("vast", "1x H100 SXM", "NVIDIA H100 80GB HBM3", 1, 2.4, vcpus=32, region="any"),
    ]
    return face.compare("resnet50", batch_size=128, data_set="imagenet", epochs=90, offers=offers)


def test_a_candidate_takes_the_seconds_of_the_training_that_compare_gives(estimate):
    asked = {"data_set": "imagenet", "epochs": 90, "loader": "none"}  # a candidate's vCPUs are not known
    table = face.compare("resnet50", ["A10"], 256, **asked)
    assert estimate(candidate({"A10": 1})) == pytest.approx(3600 * table["total_time_h"][0])


def test_several_gpus_train_together(estimate):
    one, eight = estimate(candidate({"H100": 1})), estimate(candidate({"H100": 8}))
    assert one / 8 < eight < one / 3


def test_setup_is_added(estimate):
    slower = time_estimator("resnet50", 256, epochs=90, data_set="imagenet", setup_minutes=30)
    assert slower(candidate({"A10": 1})) - estimate(candidate({"A10": 1})) == pytest.approx(1800)


def test_a_training_that_does_not_fit_takes_forever():
    estimate = time_estimator("resnet152", 512, data_set="imagenet")
    assert math.isinf(estimate(candidate({"T4": 1})))


@pytest.mark.parametrize(
    ("name", "cloud", "instance", "gpu"),
    [
        ("A100", "", "", "NVIDIA A100-SXM4-40GB"),
        ("A100-80GB", "Azure", "Standard_NC24ads_A100_v4", "NVIDIA A100 80GB PCIe"),
        ("A100-80GB", "AWS", "p4de.24xlarge", "NVIDIA A100-SXM4-80GB"),
        ("A100-80GB", "RunPod", "1x_A100-80GB_SECURE", "NVIDIA A100 80GB PCIe"),
        ("H100", "Azure", "Standard_NC40ads_H100_v5", "NVIDIA H100 NVL"),
        ("H100", "Lambda", "gpu_1x_h100_pcie", "NVIDIA H100 PCIe"),
        ("H100", "Lambda", "gpu_1x_h100_sxm5", "NVIDIA H100 80GB HBM3"),
        ("V100", "AWS", "p3.2xlarge", "Tesla V100-SXM2-16GB"),
        ("RTX4090", "Vast", "", "GeForce RTX 4090"),
    ],
)
def test_a_name_stands_for_the_card_that_the_cloud_means(name, cloud, instance, gpu):
    assert _gpu_of(name, cloud.casefold(), instance) == find_gpu(gpu)


def test_every_shipped_offer_has_a_name_of_skypilots_that_finds_its_gpu_again():
    offers = [
        offer
        for offer in load_offers()
        if offer.provider in CLOUDS and not offer.historic and offer.provider not in ("aws", "azure")
    ]
    wrong = []
    for offer in offers:
        name = _name_of(offer.provider, offer.gpu)
        if name not in SKYPILOTS_NAMES or _gpu_of(name, offer.provider, "").name != offer.gpu:
            wrong.append((offer.provider, offer.gpu, name))
    assert wrong == [
        ("lambda", "NVIDIA H100 PCIe", "H100PCIe")
    ]  # named by its instance: H100 is the SXM card there


def test_no_accelerator_or_several_kinds_are_refused(estimate):
    with pytest.raises(SchemaError, match="no GPU to train on"):
        estimate(candidate(None))
    with pytest.raises(SchemaError, match="Name one kind"):
        estimate(candidate({"A100": 1, "V100": 1}))


def test_an_unknown_accelerator_is_refused(estimate):
    with pytest.raises(UnknownGpuError, match="tpu-v5p"):
        estimate(candidate({"tpu-v5p": 8}))


def test_the_first_offer_that_skypilot_launches_becomes_the_block(compared):
    block = resources_yaml(compared)
    best = compared.iloc[0]
    assert block.splitlines()[0].startswith(f"# epochcast: 90 epochs of resnet50 on {best['offer']} take ")
    assert "\nresources:\n  infra: vast\n  accelerators: H100:1\n" in block


def test_clouds_whose_instances_are_named_alike_get_the_instance_and_the_region(compared):
    block = resources_yaml(compared[compared["gpu"] == "NVIDIA A10G"], spot=True)
    assert block.endswith("  infra: aws/us-east-1\n  instance_type: g5.xlarge\n  use_spot: true\n")


def test_a_card_that_shares_its_name_is_named_by_its_instance():
    compared = face.compare("resnet50", "H100 PCIe", 128, data_set="imagenet", all_offers=True)
    block = resources_yaml(compared[compared["offer"].str.startswith("lambda")])
    assert block.endswith("  infra: lambda\n  instance_type: gpu_1x_h100_pcie\n")


def test_an_offer_that_skypilot_cannot_launch_is_passed_over_and_named(compared):
    order = ["coreweave" not in offer for offer in compared["offer"]]
    block = resources_yaml(compared.assign(order=order).sort_values("order"))
    assert "# ranked before it, but not launched by SkyPilot: coreweave 8x L40\n" in block


def test_without_an_offer_of_its_clouds_nothing_is_made_up(compared):
    with pytest.raises(OutOfRangeError, match="coreweave 8x L40"):
        resources_yaml(compared[compared["gpu"] == "NVIDIA L40"])


def test_the_command_prints_the_block_alone(epochcast):
    run = epochcast("compare", "resnet50", "--dataset", "imagenet", "-b", "64", "-g", "T4", "--sky")
    assert run.out.splitlines()[1:] == [
        "resources:",
        "  infra: aws/us-east-1",
        "  instance_type: g4dn.xlarge",
    ]


@pytest.mark.skipif(not PYTHON.exists(), reason="SkyPilot has an environment of its own: make skypilot")
def test_skypilots_optimizer_chooses_by_the_estimate_and_reads_the_block(compared, tmp_path):
    block = resources_yaml(
        compared.assign(offer="lambda 1x H100 SXM", gpu="NVIDIA H100 80GB HBM3", region="any")
    )
    ran = subprocess.run(
        [PYTHON, SESSION, tmp_path, block],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    said = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("SAID "))[5:])
    assert said["assumed"] == "gpu_1x_a10"  # an hour on either: the cheaper one
    assert said["estimated"] == "gpu_1x_h100_sxm5"  # five times as fast, 3.3 times as dear
    assert said["seconds"]["A10"] > 5 * said["seconds"]["H100"]
    assert said["resources"] == "{'H100': 1}"
