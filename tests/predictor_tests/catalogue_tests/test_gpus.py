"""How a name finds its GPU, what a GPU computes, and how a broken catalogue is refused."""

import pytest
from case_tables import each_row

from predictor.catalogue.devices import all_gpus, check_precision, find_gpu, load_gpus, precisions_of
from predictor.errors import OutOfRangeError, SchemaError, UnknownGpuError
from predictor.files import data_file


@each_row
def test_a_gpu_is_found_as_people_write_it(written, name):
    assert {find_gpu(words).name for words in written} == {name}


@each_row
def test_what_is_no_gpu_of_the_catalogue_is_refused_with_the_nearest_and_the_next_step(written, words):
    with pytest.raises(UnknownGpuError, match=words):
        find_gpu(written)


def test_every_name_and_alias_finds_its_gpu():
    assert all(find_gpu(name) == gpu for gpu in all_gpus() for name in (gpu.name, *gpu.aliases))


@each_row
def test_precisions_follow_from_compute_capability(written, precisions):
    assert precisions_of(find_gpu(written)) == tuple(precisions)


def test_a_precision_that_the_gpu_lacks_is_refused_with_those_it_has():
    check_precision(find_gpu("A100 SXM4 40GB"), "tf32")
    with pytest.raises(OutOfRangeError, match=r"Tesla T4 .*has no tf32\. It has: fp32, fp16, amp_fp16"):
        check_precision(find_gpu("T4"), "tf32")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("l2_mib", "cache", 1), "lacks the columns l2_mib"),
        (lambda text: text.replace(",1536,", ",many,", 1), "line 2: cuda_cores is 'many'"),
        (lambda text: text.splitlines()[0], "holds no GPU"),
    ],
)
def test_a_catalogue_that_cannot_be_is_refused(change, words, tmp_path):
    head = "".join(data_file("gpus.csv").read_text(encoding="utf-8").splitlines(keepends=True)[:3])
    (tmp_path / "gpus.csv").write_text(change(head), encoding="utf-8")
    with pytest.raises(SchemaError, match=words):
        load_gpus(tmp_path / "gpus.csv")
