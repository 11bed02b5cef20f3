"""Whether the packages that epochcast consists of are its own: their names are common, and another may hide them."""

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("api", "predictor", "proxy_cnns")
"""What a checkout has beside `epochcast` itself."""


def shadowed() -> list[str]:
    """A sentence for each package of epochcast that another of its name hides, such as an `api` in the folder."""
    home = Path(__file__).resolve().parents[1]
    if (home / "epochcast" / "_predictor").is_dir():
        return []  # a wheel has them inside (hatch_build.py)
    sentences = []
    for name in PACKAGES:
        spec = find_spec(name)
        origin = None if spec is None else spec.origin
        where = "missing" if origin is None else origin.removesuffix("/__init__.py")
        if origin is None or Path(origin).resolve().parents[1] != home:
            sentences.append(
                f"the package {name!r} is {where}, not epochcast's in {home}: run epochcast in another folder, or "
                "install its wheel (pip wheel . --no-deps), which has its packages inside."
            )
    return sentences
