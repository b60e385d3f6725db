"""Chromium for tests of the console: a browser that asks nobody but the console, and axe-core in its pages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.setup_peers import axe_core, chromium_program

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE = (1280, 900)
NARROW = (390, 844)
TIMEOUT_MS = 120_000
SCREENSHOTS = "CONSOLE_SCREENSHOTS"
"""The variable of the environment with a directory for pictures of what tests see; without it they keep none."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser."""
    program = chromium_program()
    assert program is not None, "Chromium is missing; run: make peers"
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page of the browser that notes scripts' errors and requests to other hosts."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self._base = base
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("request", lambda request: self._ask(request.url))

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.errors.append(text)

    def _ask(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.netloc != urlsplit(self._base).netloc:
            self.foreign.append(url)

    def open(self, path: str) -> Page:
        """Open a page of the console, and wait until it is whole."""
        self.page.goto(self._base + path)
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until the page no longer says that it waits, which ends with another navigation, and until every
        island has begun: what one hides at its start loses the focus.
        """
        self.page.wait_for_selector("main:not(:has(.waiting))")
        self.page.wait_for_load_state()  # a page that came after "waiting" runs its scripts now
        expect(self.page.locator("[data-island]:not([data-started=yes])")).to_have_count(0)

    def check(self) -> None:
        """Fail on a script's error, on a request to another host, on what axe-core finds, and on what is off
        the screen, once the page is whole: a click or the Enter key may have led to one that waits.
        """
        self.settle()
        faults = [*self.errors, *self.foreign, *accessibility_faults(self.page), *layout_faults(self.page)]
        assert not faults, "\n".join(faults)

    def picture(self, name: str) -> None:
        """Keep a picture, where the environment names a directory."""
        folder = os.environ.get(SCREENSHOTS)
        if folder:
            self.page.screenshot(path=Path(folder) / f"{name}.png")


@contextmanager
def watched(
    browser: Browser, base: str, *, dark: bool = False, size: tuple[int, int] = WIDE
) -> Iterator[Watched]:
    """Yield a page in a browser profile of its own."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    try:
        yield Watched(context.new_page(), base)
    finally:
        context.close()


def accessibility_faults(page: Page) -> list[str]:
    """Return what axe-core finds wrong with a page, one line for each element."""
    page.evaluate(axe_core().read_text(encoding="utf-8"))
    found: Any = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{fault['id']} ({fault['impact']}): {fault['help']}: {json.dumps(node['target'])} "
        f"{node['html'][:200]}"
        for fault in found
        for node in fault["nodes"]
    ]


LAYOUT = """(narrow) => {
  const faults = [], width = window.innerWidth, root = document.scrollingElement;
  const find = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility());
  const fault = (element, words) => faults.push(`${words}: ${element.outerHTML.slice(0, 300)}`);
  const isOff = ({left, right}) => left < 0 || right > width + 0.5;
  if (root.scrollWidth > width) {
    faults.push(`the page is ${root.scrollWidth} pixels wide in a window of ${width}`);
    for (const each of find("main *, header *")) if (isOff(each.getBoundingClientRect())) fault(each, "off");
  }
  for (const box of find(".scroll")) if (width > narrow && box.scrollWidth > box.clientWidth + 1)
    faults.push(`${box.scrollWidth} pixels of a table in ${box.clientWidth}: ${box.getAttribute("aria-label") ?? box.innerText.slice(0, 80)}`);
  if (width > narrow) return faults;
  for (const cell of find("table:not(.u-legend) tbody :is(td, th)")) {
    if (isOff(cell.getBoundingClientRect())) fault(cell, "a cell off the screen");
    if (cell.scrollWidth > cell.clientWidth + 1) fault(cell, "a cell whose content is cut");
    const label = cell.dataset.label, shown = getComputedStyle(cell, "::before");
    if (label === undefined ? cell.colSpan === 1 : label && cell.matches("td") && shown.display === "none")
      fault(cell, "a cell without the name of its column");
  }
  const main = "button.main, .button.main, .heading .danger, .buttons .danger";
  const controls = "button, .button, summary, select, textarea, input:not([type=hidden]), .tabs a, .side a, thead a";
  for (const control of find(controls)) {
    const target = control.matches("[type=checkbox]") ? (control.closest("label") ?? control) : control;
    target.scrollIntoView({block: "center", behavior: "instant"});
    const box = target.getBoundingClientRect(), least = control.matches(main) ? 44 : 24;
    if (isOff(box)) fault(control, "a control off the screen");
    if (box.height < least || box.width < 24) fault(control, `${box.width} × ${box.height} pixels to touch`);
    const met = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    if (!met || !(target.contains(met) || met.contains(target))) fault(control, `covered by ${met?.outerHTML}`);
  }
  root.scrollTo(0, 0);
  return faults;
}"""
"""What a person can't see or touch: what makes the page wider than the window, and a table wider than its box;
and on a window where rows are cards, cells off the screen or without the name of their column, and controls that are off the screen, covered
or too small for a finger (WCAG 2.2, 2.5.8: 24 pixels; 44 for those that change something).
"""
CARDS_FROM = 760
"""The widest window whose tables are cards, as in static/parts.css."""


def layout_faults(page: Page) -> list[str]:
    """Return what is off the screen, one line for each element."""
    found: list[str] = page.evaluate(LAYOUT, CARDS_FROM)
    return found
