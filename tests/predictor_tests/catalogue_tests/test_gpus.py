"""How a name finds its GPU, what a GPU computes, and how a broken catalogue is refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from predictor.catalogue.devices import all_gpus, check_precision, find_gpu, load_gpus, precisions_of
from predictor.errors import OutOfRangeError, SchemaError, UnknownGpuError
from predictor.files import data_file


@pytest.fixture
def catalogue(tmp_path: Path) -> Callable[[Callable[[str], str]], Path]:
    """Writes a changed copy of the shipped catalogue's first two GPUs."""

    def write(change: Callable[[str], str]) -> Path:
        head = "".join(data_file("gpus.csv").read_text(encoding="utf-8").splitlines(keepends=True)[:3])
        path = tmp_path / "gpus.csv"
        path.write_text(change(head), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "written", ["GeForce RTX 3090", "NVIDIA GeForce RTX 3090", "rtx3090", "RTX-3090", " rtx_3090 ", "3090"]
)
def test_case_dashes_spaces_and_vendor_words_do_not_matter(written):
    assert find_gpu(written).name == "GeForce RTX 3090"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A10", "NVIDIA A10"),
        ("A10G", "NVIDIA A10G"),
        ("RTX 2080", "GeForce RTX 2080"),
        ("RTX 2080 Ti", "GeForce RTX 2080 Ti"),
        ("RTX 2080 Super", "GeForce RTX 2080 SUPER"),
        ("T4", "Tesla T4"),
        ("T4G", "NVIDIA T4G"),
        ("Titan Xp", "NVIDIA TITAN Xp"),
        ("M40 24GB", "Tesla M40 24GB"),
    ],
)
def test_a_name_that_begins_another_name_means_its_own_gpu(written, name):
    assert find_gpu(written).name == name


@pytest.mark.parametrize("written", ["T4 16GB", "Tesla T4 (16 GB)", "t4-16g", "T4 16GiB"])
def test_a_memory_size_may_follow_the_name(written):
    assert find_gpu(written).name == "Tesla T4"


def test_a_memory_size_tells_apart_what_shares_a_name():
    assert find_gpu("GTX 1060 3 GB").name == "GeForce GTX 1060 3GB"


def test_a_memory_size_that_the_gpu_does_not_have_is_refused():
    with pytest.raises(UnknownGpuError, match="no GPU is called 'RTX 3090 12GB'"):
        find_gpu("RTX 3090 12GB")


def test_a_name_without_memory_size_means_the_smaller_card_where_all_else_is_equal():
    assert find_gpu("V100 SXM2").memory_gib == 16


def test_a_name_of_several_gpus_lists_them():
    with pytest.raises(UnknownGpuError, match=r"fits several GPUs.*'NVIDIA A100-SXM4-80GB'"):
        find_gpu("A100")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1650 mobile", "GeForce GTX 1650 Mobile"),
        ("4090", "GeForce RTX 4090"),
        ("1080ti", "GeForce GTX 1080 Ti"),
    ],
)
def test_a_geforce_may_be_written_without_gtx_or_rtx(written, meant):
    assert find_gpu(written).name == meant
    for shared in ("4000", "6000", "16"):
        with pytest.raises(UnknownGpuError):
            find_gpu(shared)


def test_an_unknown_name_gets_the_nearest_and_the_next_step():
    with pytest.raises(UnknownGpuError, match=r"Nearest: 'NVIDIA H200'.*`epochcast gpu list`"):
        find_gpu("H2O0")


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("laptop RTX 4060", "GeForce RTX 4060 Laptop GPU"),
        ("gtx 980 laptop", "GeForce GTX 980"),
        ("Blackwell PRO 4500", "NVIDIA RTX PRO 4500 Blackwell"),
    ],
)
def test_the_nearest_name_shares_most_words_in_any_order(written, nearest):
    with pytest.raises(UnknownGpuError, match=f"Nearest: '{nearest}'"):
        find_gpu(written)


@pytest.mark.parametrize("written", ["", "  ", "GB", "NVIDIA", "Radeon Pro VII", "TPU v4", "cpu"])
def test_what_is_no_nvidia_gpu_is_refused(written):
    with pytest.raises(UnknownGpuError):
        find_gpu(written)


@pytest.mark.parametrize(
    ("written", "precisions"),
    [
        ("K80", ("fp32",)),
        ("M60", ("fp32",)),
        ("GTX 1080 Ti", ("fp32", "fp16", "amp_fp16")),
        ("T4", ("fp32", "fp16", "amp_fp16")),
        ("H200", ("fp32", "tf32", "fp16", "amp_fp16", "amp_bf16")),
    ],
)
def test_precisions_follow_from_compute_capability(written, precisions):
    assert precisions_of(find_gpu(written)) == precisions


def test_a_precision_that_the_gpu_lacks_is_refused_with_those_it_has():
    with pytest.raises(OutOfRangeError, match=r"Tesla T4 .*has no tf32\. It has: fp32, fp16, amp_fp16"):
        check_precision(find_gpu("T4"), "tf32")


def test_a_precision_that_the_gpu_has_passes():
    check_precision(find_gpu("A100 SXM4 40GB"), "tf32")


def test_a_catalogue_without_a_column_is_refused(catalogue):
    with pytest.raises(SchemaError, match="lacks the columns l2_mib"):
        load_gpus(catalogue(lambda text: text.replace("l2_mib", "cache", 1)))


def test_a_catalogue_with_a_word_for_a_number_is_refused_with_its_line(catalogue):
    with pytest.raises(SchemaError, match="line 2: cuda_cores is 'many'"):
        load_gpus(catalogue(lambda text: text.replace(",1536,", ",many,", 1)))


def test_a_catalogue_without_rows_is_refused(catalogue):
    with pytest.raises(SchemaError, match="holds no GPU"):
        load_gpus(catalogue(lambda text: text.splitlines()[0]))


def test_the_catalogue_loads_without_heavy_packages():
    code = (
        "import sys; from predictor.catalogue import data_sets, devices, offers; devices.all_gpus(); "
        "print(sorted({'numpy', 'pandas', 'sklearn', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_gpus_of_other_vendors_are_said_to_be_unknown_and_none_of_ours_is():
    for name in (
        "MI300X",
        "AMD Instinct MI250",
        "RX 7900 XTX",
        "Apple M2",
        "M3 Max",
        "TPU v4",
        "Gaudi 2",
        "Arc A770",
    ):
        with pytest.raises(UnknownGpuError, match="only NVIDIA GPUs are known"):
            find_gpu(name)
    with pytest.raises(UnknownGpuError, match="no GPU is called 'H2OO'"):
        find_gpu("H2OO")
    assert all(find_gpu(name) == gpu for gpu in all_gpus() for name in (gpu.name, *gpu.aliases))
