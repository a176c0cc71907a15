"""The live page in a real browser: what it shows, how it fails, and who can read it."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect
from tools.browser import BrowserMissingError, chromium_path, headless_browser
from tools.page_pictures import SCREENS, Screen, take_picture

from engine_server import wait_until
from page_server import StateSource, served_page
from pipelineserve_controller.state import SidecarState
from sidecar_states import NOW_UNIX_S, busy_state, empty_state, inactive_state, late_state

# Text against what lies behind it, as WCAG 2 defines contrast; only what can be seen.
POOR_CONTRASTS = """() => {
  const number = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const rgb = number(getComputedStyle(at).backgroundColor);
      if (rgb.length === 3 || rgb[3] > 0) return rgb;
    }
    throw new Error("nothing lies behind");
  };
  const isText = (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim();
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    if (![...element.childNodes].some(isText) || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [low, high] = [light(number(ink)), light(behind(element))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) found.push(`${element.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""
UNKNOWN = "\N{EN DASH}"
VALUES_AT_A_TIME = r"^\d\d:\d\d:\d\d: capacity \d+ tokens/s, demand \d+ tokens/s$"
NUM_CHANGES = """() => {
  window.numChanges = 0;
  const observer = new MutationObserver((changes) => { window.numChanges += changes.length; });
  const everything = {childList: true, characterData: true, subtree: true};
  observer.observe(document.getElementById("announcer"), everything);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with headless_browser() as browser:
        yield browser


@dataclass
class Visit:
    """One page that is open on a server, with all that went wrong in it."""

    page: Page
    source: StateSource
    url: str
    complaints: list[str]
    hosts: set[str] = field(default_factory=set)

    def note_request(self, request: Request) -> None:
        """Remember whom the page asked."""
        self.hosts.add(urlsplit(request.url).netloc)

    def show(self, state: SidecarState) -> None:
        """Send another state from now on."""
        self.source.state = state

    def wait_drawn(self) -> None:
        """Return when the page has drawn something that was sent after this call."""
        mark = f"mark {self.source.num_sent}"
        self.show(replace(self.source.state, version=mark))
        expect(self.page.locator("#versions")).to_have_text(f"sidecar {mark}")


class Visitor:
    """Opens pages in one context; checks at the end that none complained."""

    def __init__(self, context: BrowserContext, stack: ExitStack) -> None:
        self._context = context
        self._stack = stack
        self.visits: list[Visit] = []

    def visit(self, state: SidecarState) -> Visit:
        """Serve this state and open its page."""
        source = StateSource(state)
        url = self._stack.enter_context(served_page(source))
        page = self._context.new_page()
        visit = Visit(page, source, url, [])
        page.on("console", lambda message: visit.complaints.append(message.text))
        page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        page.on("request", visit.note_request)
        page.goto(url)
        expect(page.locator("#live")).to_have_text("live")
        visit.wait_drawn()
        self.visits.append(visit)
        return visit


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    with ExitStack() as stack:
        # The pages go before their servers do, which would otherwise be a complaint.
        visitor = Visitor(context, stack)
        stack.callback(context.close)
        yield visitor
        assert [visit.complaints for visit in visitor.visits if visit.complaints] == []
        context.close()


def text(page: Page, selector: str) -> str:
    return page.locator(selector).inner_text()


def test_a_missing_browser_is_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrowserMissingError, match="apt-get install"):
        chromium_path()


def test_shows_percentiles_against_their_targets_with_units(visitor: Visitor) -> None:
    page = visitor.visit(busy_state()).page
    assert text(page, "#verdict") == "Both targets are met"
    assert text(page, "#ttft .big").splitlines() == ["1.20 s", "P90, target 1.50 s"]
    assert text(page, "#tpot .big").splitlines() == ["148 ms", "P90, target 200 ms"]
    assert text(page, "#ttft .badge") == "met, 80 % of target"
    shown = [text(page, f'#ttft [data-part="{name}"]') for name in ("p50", "p90", "p99")]
    assert shown == ["550 ms", "1.20 s", "1.70 s"]


def test_shows_chunk_load_stages_and_control(visitor: Visitor) -> None:
    page = visitor.visit(busy_state()).page
    expected = {
        "#name": "quickstart",
        "#chunk": "96 tokens",
        "#chunk-reason": "the smallest chunk that serves the demand",
        "#demand": "512 tokens/s",
        "#capacity": "742 tokens/s",
        "#demand-share": "69 %",
        "#waiting": "3",
        "#running": "9",
        "#held": "1",
        "#kv": "62 %",
        "#mode": "Active",
        "#lease": "4.2 s left",
        "#slo-met": "yes",
        "#slo-feasible": "yes",
        "#attainment": "96 %",
        "#holding": "Auto, now e2e first",
        "#order": "Ageing",
        "#source": "file, generation 3",
    }
    assert {selector: text(page, selector) for selector in expected} == expected
    assert page.locator("#bubbles li").all_inner_texts() == ["stage 0\n8 %", "stage 1\n14 %"]


def test_decisions_say_why_in_words(visitor: Visitor) -> None:
    page = visitor.visit(busy_state()).page
    first = page.locator("#decisions tr").first.locator("td").all_inner_texts()
    assert first[1:] == [
        "chunk 80 → 96 tokens",
        "the smallest chunk that serves the demand",
        "demand 512 tokens/s",
        "sent",
    ]
    assert page.locator("#decisions tr").last.locator("td").last.inner_text() == "not sent"


def test_a_reason_that_only_a_newer_sidecar_knows_is_readable(visitor: Visitor) -> None:
    state = busy_state()
    state = replace(state, chunk=replace(state.chunk, reason="moon_is_full"))
    assert text(visitor.visit(state).page, "#chunk-reason") == "moon is full"


def test_what_is_not_known_is_a_dash_and_never_a_zero(visitor: Visitor) -> None:
    page = visitor.visit(empty_state()).page
    dashes = (
        *(
            '#ttft [data-part="measured"]',
            '#tpot [data-part="measured"]',
            '#ttft [data-part="p99"]',
        ),
        *("#chunk", "#demand", "#capacity", "#demand-share", "#waiting", "#running", "#held"),
        *("#kv", "#lease", "#attainment", "#bubbles", "#oldest-wait", "#model-error"),
    )
    assert {selector: text(page, selector) for selector in dashes} == dict.fromkeys(dashes, UNKNOWN)
    assert text(page, "#verdict") == "No verdict yet"
    assert "no socket at /run/control" in text(page, "#unconnected")
    assert set(page.locator("figcaption").all_inner_texts()) == {"no data yet"}
    assert page.locator("path.line").count() == 0


def test_missed_targets_say_what_could_be_met(visitor: Visitor) -> None:
    page = visitor.visit(late_state()).page
    assert text(page, "#verdict") == "The TTFT target is missed"
    assert text(page, "#ttft .badge") == "missed, 160 % of target"
    more = text(page, "#verdict-more")
    assert "each target can be met, but not both at once" in more
    assert "Within reach: TTFT 1.9 s with this TPOT target" in more


def test_follows_the_state_without_being_loaded_again(visitor: Visitor) -> None:
    visit = visitor.visit(busy_state())
    visit.show(late_state())
    expect(visit.page.locator("#verdict")).to_have_text("The TTFT target is missed")
    visit.show(busy_state())
    expect(visit.page.locator("#verdict")).to_have_text("Both targets are met")


def test_a_mode_that_sends_nothing_says_so(visitor: Visitor) -> None:
    state = busy_state()
    mode = type(state.control.mode).ADVISORY
    control = replace(state.control, mode=mode, is_effective=False, lease_left_s=0.0)
    page = visitor.visit(replace(state, control=control)).page
    assert text(page, "#mode") == "Advisory: nothing is sent"
    assert text(page, "#lease") == "none"
    assert text(page, "#effective") == "the engine's own, with the static chunk"


def test_a_controller_that_another_has_replaced_says_so(visitor: Visitor) -> None:
    state = busy_state()
    control = replace(state.control, is_effective=False, is_superseded=True)
    page = visitor.visit(replace(state, control=control)).page
    assert text(page, "#effective") == "a later controller's, which this one yields to"


def test_an_engine_that_cannot_be_controlled_says_why_at_the_top(visitor: Visitor) -> None:
    visit = visitor.visit(inactive_state("SGLang 0.4: expected 0.5.22 or <b>0.5.23</b>"))
    notice = visit.page.locator("#inactive")
    expect(notice).to_contain_text("since it cannot be controlled: SGLang 0.4")
    expect(notice).to_contain_text("<b>0.5.23</b>")
    assert text(visit.page, "#effective") == "none: the engine goes by its own rules"
    assert text(visit.page, "#kv-tokens") == UNKNOWN
    visit.show(busy_state())
    expect(notice).to_be_hidden()


def test_a_refused_edit_is_named_until_it_is_mended(visitor: Visitor) -> None:
    state = busy_state()
    fault = 'spec.slo.ttft.milliseconds: expected an integer, got the string "fast"'
    visit = visitor.visit(replace(state, control=replace(state.control, refused_edit=fault)))
    expect(visit.page.locator("#refused")).to_contain_text(fault)
    visit.show(state)
    expect(visit.page.locator("#refused")).to_be_hidden()


def test_what_others_wrote_stays_text(visitor: Visitor) -> None:
    state = busy_state()
    markup = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    visit = visitor.visit(replace(state, control=replace(state.control, resource_name=markup)))
    assert text(visit.page, "#name") == markup
    assert visit.page.locator("#name > *").count() == 0


def test_nothing_is_fetched_from_elsewhere(visitor: Visitor) -> None:
    visit = visitor.visit(busy_state())
    assert visit.hosts == {urlsplit(visit.url).netloc}


def test_a_lost_connection_is_said_and_comes_back_by_itself(browser: Browser) -> None:
    source = StateSource(busy_state())
    context = browser.new_context()
    with served_page(source) as url:
        page = context.new_page()
        page.goto(url)
        expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#lost")).to_contain_text("Connection lost since ")
    expect(page.locator("#live")).to_have_text("connection lost")
    assert text(page, '#ttft [data-part="measured"]') == "1.20 s"
    expect(page.locator("#announcer")).to_contain_text("Connection lost since ")
    with served_page(StateSource(late_state()), urlsplit(url).port or 0):
        expect(page.locator("#live")).to_have_text("live", timeout=20_000)
        expect(page.locator("#lost")).to_be_hidden()
        expect(page.locator("#verdict")).to_have_text("The TTFT target is missed")
        context.close()


def test_a_server_that_goes_silent_counts_as_lost(browser: Browser) -> None:
    source = StateSource(busy_state())
    context = browser.new_context()
    with served_page(source) as url:
        page = context.new_page()
        page.clock.install()
        page.goto(url)
        expect(page.locator("#live")).to_have_text("live")
        source.is_silent = True
        page.clock.run_for(7_000)
        expect(page.locator("#lost")).to_contain_text("Connection lost since ")
        wait_until(lambda: source.num_streams, lambda num_streams: num_streams > 1)
        source.is_silent = False
        page.clock.run_for(7_000)
        expect(page.locator("#live")).to_have_text("live")
        context.close()


def test_plots_leave_a_gap_where_nothing_was_known(visitor: Visitor) -> None:
    page = visitor.visit(busy_state()).page
    path = page.locator("#ttft-plot path.line").get_attribute("d") or ""
    assert path.count("M") == 2
    assert page.locator("#ttft-plot .target-name").text_content() == "target 1.50 s"


def test_pointing_at_a_plot_reads_its_values(visitor: Visitor) -> None:
    visit = visitor.visit(busy_state())
    visit.page.locator("#demand-plot svg").hover()
    caption = visit.page.locator("#demand-plot figcaption")
    expect(caption).to_have_text(re.compile(VALUES_AT_A_TIME))
    visit.page.locator("#name").hover()
    expect(caption).not_to_have_text(re.compile(VALUES_AT_A_TIME))


def test_landmarks_and_headings_lead_a_screen_reader(visitor: Visitor) -> None:
    page = visitor.visit(busy_state()).page
    for role in ("banner", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["quickstart"]
    for name in ("TTFT", "TPOT", "Chunk size", "Demand and capacity", "Requests", "KV memory"):
        picture = page.get_by_role("img", name=f"{name}, last five minutes: ")
        assert picture.count() == 1
    assert page.locator("#announcer").get_attribute("aria-live") == "polite"
    assert page.locator("#announcer").text_content() == "Both targets are met"


def test_figures_that_move_are_not_announced(visitor: Visitor) -> None:
    visit = visitor.visit(busy_state())
    visit.page.evaluate(NUM_CHANGES)
    for milliseconds in (1100, 1200, 1300):
        state = busy_state()
        visit.show(replace(state, ttft=replace(state.ttft, measured_s=milliseconds / 1000)))
        visit.wait_drawn()
    assert visit.page.evaluate("window.numChanges") == 0
    visit.show(late_state())
    visit.wait_drawn()
    assert visit.page.evaluate("window.numChanges") > 0


def test_the_keyboard_reaches_the_figures_and_the_decisions(visitor: Visitor) -> None:
    page = visitor.visit(busy_state()).page
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(page.get_by_role("group", name="Table of decisions")).to_be_focused()


@pytest.mark.parametrize("state", [busy_state(), late_state()], ids=["met", "missed"])
def test_all_text_has_the_contrast_that_reading_needs(
    visitor: Visitor, state: SidecarState
) -> None:
    refused = replace(state, control=replace(state.control, refused_edit="spec.slo: unknown field"))
    page = visitor.visit(refused).page
    page.emulate_media(color_scheme="light")
    assert page.evaluate(POOR_CONTRASTS) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(POOR_CONTRASTS) == []


def test_no_width_needs_scrolling_sideways(visitor: Visitor) -> None:
    visit = visitor.visit(late_state())
    too_wide = {}
    for width in (320, 390, 700, 960, 1280, 1920):
        visit.page.set_viewport_size({"width": width, "height": 800})
        visit.wait_drawn()
        needed = visit.page.evaluate("document.documentElement.scrollWidth")
        if needed > width:
            too_wide[width] = needed
    assert too_wide == {}


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_pictures_are_taken_on_every_screen(
    browser: Browser, screen: Screen, tmp_path: Path
) -> None:
    with served_page(StateSource(busy_state(NOW_UNIX_S))) as url:
        picture = take_picture(browser, url, screen, tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
