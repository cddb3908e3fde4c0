"""A Chromium that has no network, and pages of real and of made logs to open in it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "report"))

BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome", "chrome")
SIZES = {
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True},
    "laptop": {"viewport": {"width": 1280, "height": 800}},
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


class Opened:
    """A page in a browser, with everything that it said and asked for."""

    def __init__(self, browser: Any, path: Path, size: str, scheme: str) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(**SIZES[size], color_scheme=scheme, offline=True, accept_downloads=True)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    opened: list[Opened] = []

    def make(path: Path, size: str = "laptop", scheme: str = "light") -> Opened:
        opened.append(Opened(browser, path, size, scheme))
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of one overloaded run, of a real one, of several, of four, and of a hostile log."""
    from page_logs import hostile, overloaded, partitioned

    from stallbook.log import open_run
    from stallbook.partition import partition
    from stallbook.report.detail import details
    from stallbook.report.html.page import page

    folder = tmp_path_factory.mktemp("pages")
    real = partition(open_run(HERE.parent / "data" / "golden" / "baseline__s1.npz"))
    runs = [partitioned(folder, overloaded(), name=f"{rung}__s{seed}") for rung in ("base", "fixed") for seed in (1, 2)]
    name = '"><script>document.title="taken"</script>'
    of = {
        "made": runs[:1], "real": [real], "two": runs[1:3], "ladder": runs,
        "hostile": [partitioned(folder, hostile(name), name="hostile", engine=name)],
    }  # fmt: skip
    out = {}
    for kind, found in of.items():
        out[kind] = folder / f"{kind}.html"
        out[kind].write_text(page(list(details(found))), encoding="utf-8")
    return out
