"""Makes the pictures of the page and of `compare --plot`: `python docs/screenshots.py`, where Chromium is installed.

Run it after a change of the page; it starts a service of its own and stops it. Pictures have one pixel per dot and 64
colours, and show the top of the page, but for one of it all, so that they stay small; `--out` writes them elsewhere.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from PIL import Image
from service import Service

DESKTOP, PHONE = (1360, 900), (390, 844)
LIMITS = "#budget_usd=80&deadline_h=48"
PICTURES: dict[str, tuple[tuple[int, int], str, str, str, str]] = {
    "web-desktop": (DESKTOP, "light", "en-US", LIMITS, ".top"),
    "web-page": (DESKTOP, "light", "en-US", LIMITS, ""),
    "web-offers": (DESKTOP, "light", "en-US", LIMITS, "#offers-title"),
    "web-explanation": (DESKTOP, "light", "en-US", LIMITS, "#why-title"),
    "web-dark": (DESKTOP, "dark", "en-US", "#cnn=efficientnet_b0", ".top"),
    "web-japanese": (DESKTOP, "light", "ja-JP", f"{LIMITS}&lang=ja", ".top"),
    "web-phone": (PHONE, "light", "en-US", LIMITS, ".top"),
    "web-phone-offers": (PHONE, "light", "en-US", LIMITS, "#offers-title"),
    "web-phone-japanese": (PHONE, "dark", "ja-JP", f"{LIMITS}&lang=ja", "#cost-title"),
}
"""Of each picture: window, colours, language, question, and what stands at its top; all of the page if it is empty."""


def main() -> None:
    """Make every picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    from playwright.sync_api import sync_playwright

    drawn = f"compare resnet50 --data-set imagenet --epochs 90 --plot {out / 'compare.png'}".split()
    subprocess.run([sys.executable, "-m", "epochcast", *drawn], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    with Service() as service, sync_playwright() as playwright:
        url = f"http://127.0.0.1:{service.port}"
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or None, args=["--no-sandbox"]
        )
        for name, (window, scheme, language, question, top) in PICTURES.items():
            size = {"width": window[0], "height": window[1]}
            page = browser.new_page(viewport=size, color_scheme=scheme, locale=language)
            _take(page, f"{url}/{question}", top, out / f"{name}.png")
            page.close()


def _take(page: Any, address: str, top: str, path: Path) -> None:
    page.goto(address)
    page.wait_for_selector("#results:not(.empty, .busy)")
    page.wait_for_selector("#why[aria-busy=false]", state="attached")
    if top:
        page.evaluate("top => document.querySelector(top).closest('details')?.setAttribute('open', '')", top)
        page.evaluate("top => document.querySelector(top).closest('.card, .top').scrollIntoView()", top)
    page.wait_for_timeout(300)  # charts follow the window's size a moment later
    page.screenshot(path=path, full_page=not top)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(64).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
