# SPDX-License-Identifier: Apache-2.0
"""Pictures of the page on the demo's cloud, light and dark, for the documentation."""

from __future__ import annotations

import io
import random
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from oslo_service import backend
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from .interrupt import Interrupt

_N_FILLING: Final = 60
_N_REQUESTS: Final = 40
_WIDTH: Final = 1120
_OPTIONS: Final = ("--no-sandbox", "--disable-gpu", "--disable-sync")
_SCHEMES: Final = ("light", "dark")


def main() -> int:
    """Write the pictures into the folder that is the argument; return the status."""
    [_, folder] = sys.argv
    program = shutil.which("chromium")
    if program is None:
        print("chromium is not on the PATH", file=sys.stderr)
        return 1
    warnings.simplefilter("ignore")
    backend.init_backend(backend.BackendType.THREADING)
    # It imports oslo.messaging, which needs the back-end.
    from .page import fill, opened

    console, interrupt = Console(), Interrupt()
    with opened(console, interrupt, "fake://") as (cloud, stream):
        fill(console, interrupt, stream, _N_FILLING)
        for _ in range(_N_REQUESTS):
            stream.step()
        store = cloud.scheduler.status.store
        assert store is not None
        store.flush()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program, args=list(_OPTIONS)
            )
            for name, path, height in _pages(cloud.url):
                _take(browser, cloud.url + path, Path(folder) / f"page-{name}", height)
            browser.close()
    return 0


def _pages(url: str) -> Iterator[tuple[str, str, int]]:
    """Yield the name, the path and the height of each picture."""
    from requests import get

    # The first page does not wait for figures whose first computation takes seconds.
    get(f"{url}/capacity", timeout=60)
    get(url, timeout=60)

    def ids(failed: str) -> list[str]:
        query = {"failed": failed, "limit": 60}
        found = get(f"{url}/v1/decisions", query, timeout=30).json()["decisions"]
        few = [each for each in found if each["n_instances"] < 4 and each["n_hosts"]]
        return [each["request_id"] for each in few]

    rng = random.Random(1)
    refused = rng.choice(ids("true"))
    yield "cloud", "/", 1130
    yield "decision", f"/decisions/{ids('false')[0]}", 1010
    yield "refusal", f"/decisions/{refused}", 810
    yield "closest", f"/closest?request={refused}", 680
    yield "capacity", "/capacity", 960
    yield "plan", "/plans/drain?place=rack%3Da1&parallel=4", 1010


def _take(browser: Browser, url: str, path: Path, height: int) -> None:
    for scheme in _SCHEMES:
        page = browser.new_page(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": _WIDTH, "height": height},
        )
        page.goto(url)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        # A palette looks the same, with half of the bytes. This method keeps colors of
        # few pixels, such as that of one host that is down.
        palette = picture.quantize(
            method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        palette.save(f"{path}-{scheme}.png", optimize=True)
        page.close()


if __name__ == "__main__":
    sys.exit(main())
