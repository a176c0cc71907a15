"""Pictures of a running sidecar's live page: a laptop in light and in dark, and a phone.

`python -m tools.page_pictures http://127.0.0.1:8090/ FOLDER`
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser
from tools.browser import BrowserMissingError, headless_browser


@dataclass(frozen=True)
class Screen:
    """What the page is looked at with; pixels of CSS."""

    name: str
    width: int
    height: int
    scheme: Literal["light", "dark"]
    is_phone: bool = False


SCREENS = (
    Screen("laptop-light", 1280, 800, "light"),
    Screen("laptop-dark", 1280, 800, "dark"),
    Screen("phone-light", 390, 844, "light", is_phone=True),
    Screen("phone-dark", 390, 844, "dark", is_phone=True),
)


def take_picture(browser: Browser, url: str, screen: Screen, folder: Path) -> Path:
    """The whole page on this screen, once the first figures are there."""
    context = browser.new_context(
        viewport={"width": screen.width, "height": screen.height},
        color_scheme=screen.scheme,
        device_scale_factor=2 if screen.is_phone else 1,
        is_mobile=screen.is_phone,
        has_touch=screen.is_phone,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.goto(url)
        page.locator("#live[data-kind=good]").wait_for()
        path = folder / f"{screen.name}.png"
        page.screenshot(path=path, full_page=True)
        return path
    finally:
        context.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one PNG per screen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", help="address of the page")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        with headless_browser() as browser:
            for screen in SCREENS:
                print(take_picture(browser, options.url, screen, options.folder))
    except BrowserMissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
