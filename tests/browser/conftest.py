"""The built site in Chromium: ``nox -s browser``, after ``nox -s docs``.

Other runs of pytest don't collect this folder, since it needs a browser.
"""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "build" / "html"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


class _Host(http.server.SimpleHTTPRequestHandler):
    """A host of static pages: 404.html is what it shows for a missing one."""

    def log_message(self, *_):
        pass

    def send_error(self, code, *_):
        body = (HTML / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture(scope="session")
def site():
    """The address of the site, served from a folder below the root."""
    if not (HTML / "index.html").exists():
        pytest.exit("build/html is missing: run `nox -s docs` first", returncode=1)
    handler = functools.partial(_Host, directory=str(HTML.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/html"
    server.shutdown()


@pytest.fixture(scope="session")
def chromium():
    """A browser of the system; its own download would be another 150 MB."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.exit("no Chromium: install it (Debian: `apt install chromium`)", 1)
    sandbox = [] if os.getuid() else ["--no-sandbox"]  # root has none in a container
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """A fresh tab of 1440 x 900."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    yield context.new_page()
    context.close()
