"""Names and image sizes: what the zoo answers, and what it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from predictor.cnns.builder import NetBuilder
from predictor.cnns.zoo import ZOO, zoo_cnn, zoo_names
from predictor.errors import OutOfRangeError, UnknownCnnError

LIMITED = [name for name, spec in ZOO.items() if spec.minimum_image_size > 1]
CAPPED = [name for name, spec in ZOO.items() if spec.maximum_image_size is not None]


def build_at(name: str, image_size: int) -> NetBuilder:
    """Build whatever the registry says that the limits are."""
    net = NetBuilder(name, image_size, ZOO[name].in_channels)
    ZOO[name].build(net)
    return net


def test_the_zoo_has_at_least_45_cnns_sorted_by_name():
    assert len(zoo_names()) >= 45
    assert zoo_names() == sorted(ZOO) == list(ZOO)


def test_the_usual_image_size_is_the_default_and_allowed():
    for name in zoo_names():
        table = zoo_cnn(name)
        assert table is zoo_cnn(name, ZOO[name].usual_image_size)
        assert (table.cnn, table.image_size) == (name, ZOO[name].usual_image_size)


def refusals(sizes: dict[str, int], build: Callable[[str, int], Any]) -> dict[str, str]:
    """Why each of these CNNs is refused at its image size; empty if it is built."""
    texts = dict.fromkeys(sizes, "")
    for name, size in sizes.items():
        try:
            build(name, size)
        except OutOfRangeError as error:
            texts[name] = str(error)
    return texts


def test_the_minimum_image_size_works_and_one_pixel_less_is_refused():
    minimum = {name: ZOO[name].minimum_image_size for name in zoo_names()}
    assert {name: zoo_cnn(name, size).image_size for name, size in minimum.items()} == minimum
    refused = refusals({name: size - 1 for name, size in minimum.items()}, zoo_cnn)
    assert [name for name, text in refused.items() if not text] == []


def test_the_minimum_image_size_is_where_the_architecture_ends():
    refused = refusals(
        {name: ZOO[name].minimum_image_size - 1 for name in LIMITED if name not in CAPPED}, build_at
    )
    assert refused
    assert {name: text for name, text in refused.items() if "would have no output" not in text} == {}


def test_the_discriminator_gives_one_probability_at_every_size_that_it_allows():
    spec = ZOO["dcgan_discriminator"]
    sizes = range(spec.minimum_image_size, (spec.maximum_image_size or 0) + 1)
    assert all(zoo_cnn("dcgan_discriminator", size).layers[-1].out_channels == 1 for size in sizes)
    assert build_at("dcgan_discriminator", sizes[-1] + 1).table().layers[-1].out_channels > 1


BELOW = "image_size 74 is below 75, the least that inception_v3 allows. Pass 75 or more; its usual image size is 299."
SIZES = (0, -224, True, 224.0, "224", [224], float("nan"))
REFUSED = (
    *(
        (name, ZOO[name].maximum_image_size + 1, rf"{ZOO[name].maximum_image_size + 1} is above")
        for name in CAPPED
    ),  # type: ignore[operator]
    ("inception_v3", 74, f"^{BELOW}$"),
    *(("resnet50", size, "image_size") for size in SIZES),
)


@pytest.mark.parametrize(("name", "image_size", "words"), REFUSED)
def test_an_image_size_that_a_cnn_does_not_allow_is_refused_with_the_range(name, image_size, words):
    with pytest.raises(OutOfRangeError, match=words):
        zoo_cnn(name, image_size)


def test_an_unknown_name_is_answered_with_the_nearest_ones():
    with pytest.raises(UnknownCnnError) as refused:
        zoo_cnn("resnet5O")
    message = str(refused.value)
    assert message.startswith("no CNN of the zoo is called 'resnet5O'. Nearest: ")
    assert "'resnet50'" in message
    assert message.endswith(f"`epochcast cnn list` shows all {len(ZOO)}.")


@pytest.mark.parametrize("name", ["", None, 7, ["resnet50"]])
def test_a_name_that_is_none_is_unknown(name):
    with pytest.raises(UnknownCnnError):
        zoo_cnn(name)
