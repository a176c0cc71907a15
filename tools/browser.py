"""Debian's Chromium, driven without a window, for the page's tests and pictures."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright


class BrowserMissingError(Exception):
    """There is no Chromium; the message says how to get it."""


def chromium_path() -> str:
    """Where the browser is.

    Raises:
        BrowserMissingError: it is not installed.
    """
    path = shutil.which("chromium")
    if path is None:
        raise BrowserMissingError(
            "found no chromium on PATH; the page's tests and pictures need it: "
            "apt-get install --no-install-recommends chromium fonts-dejavu-core"
        )
    return path


@contextmanager
def headless_browser() -> Iterator[Browser]:
    """The browser while the block runs."""
    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()
