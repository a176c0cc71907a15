"""`pserve status`: once, again and again, or as JSON."""

import json
import sys
import time
from collections.abc import Iterator

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pipelineserve.errors import ControllerUnavailableError
from pipelineserve_cli.status.screen import screen
from pipelineserve_cli.status.source import fetch_state, parse_state
from pipelineserve_cli.status.words import time_of_day

DEFAULT_URL = "http://127.0.0.1:8090"
_PERIOD_S = 1.0


@click.command()
@click.argument("url", default=DEFAULT_URL)
@click.option("--watch", is_flag=True, help="Show it again each second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON, one line each.")
def status(*, url: str, watch: bool, as_json: bool) -> None:
    """Show what a controller sees and decides.

    URL is the address of its live page, as `pserve local up` prints it; http://127.0.0.1:8090 if
    left out.
    """
    try:
        if not watch:
            _show_once(url, as_json=as_json)
        elif as_json:
            _write_lines(url)
        else:
            _show_live(url)
    except KeyboardInterrupt:
        return


def _show_once(url: str, *, as_json: bool) -> None:
    content = fetch_state(url)
    if as_json:
        _write_line(content)
    else:
        Console().print(screen(parse_state(content, url)), highlight=False)


def _write_lines(url: str) -> None:
    for _ in _ticks():
        _write_line(fetch_state(url))


def _write_line(content: bytes) -> None:
    sys.stdout.write(json.dumps(json.loads(content), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _show_live(url: str) -> None:
    """The first answer must come; later ones may stay away, which is then said."""
    shown: RenderableType = screen(parse_state(fetch_state(url), url))
    heard_unix_s = time.time()
    with Live(shown, auto_refresh=False, screen=Console().is_terminal) as live:
        for _ in _ticks():
            try:
                shown = screen(parse_state(fetch_state(url), url))
                heard_unix_s = time.time()
                live.update(shown, refresh=True)
            except ControllerUnavailableError:
                live.update(Group(_lost(heard_unix_s), shown), refresh=True)


def _ticks() -> Iterator[None]:
    while True:
        yield
        time.sleep(_PERIOD_S)


def _lost(since_unix_s: float) -> Text:
    text = f"Connection lost since {time_of_day(since_unix_s)}; these are the last figures.\n"
    return Text(text, style="bold red")
