"""The whole demo in headless Chromium, as a person would use it: look, restart, watch, and the job goes on.

Its pictures are those of the README when `UPBOT_PICTURES` names a folder to put them in.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.end_to_end.demo import running

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]

ARGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def chromium() -> str:
    return next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))


def say(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def last(page: Page, text: str) -> Locator:
    return page.locator("#messages .message").filter(has_text=text).last


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("UPBOT_PICTURES"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_look_restart_watch_and_the_job_goes_on(tmp_path: Path) -> None:
    with running(tmp_path / "demo") as demo, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGS)
        page = browser.new_page(viewport={"width": 1100, "height": 800})
        page.goto(demo.url)
        asked = time.monotonic()
        say(page, "up?")
        answer = last(page, "8/8 answering")
        expect(answer).to_be_visible(timeout=1000)
        assert len(re.findall(r"🟢 \d{5}", answer.inner_text())) == 8
        first = time.monotonic() - asked
        expect(answer).to_contain_text(re.compile(r"(HTTP 200.*){8}", re.DOTALL), timeout=2500)
        assert time.monotonic() - asked < 2.5 + first

        say(page, "status")
        expect(last(page, "tok/s")).to_contain_text("profile extra_buffer", timeout=3000)
        expect(last(page, "8/8 ready")).to_contain_text("37/37", timeout=3000)

        say(page, "restart no_buffer")
        question = last(page, "Restart 8 servers with profile no_buffer?")
        expect(question.get_by_role("button", name="Restart 8 servers")).to_be_visible(timeout=5000)
        expect(question).to_contain_text("mamba-scheduler-strategy")
        picture(page, "question")
        question.get_by_role("button", name="Restart 8 servers").click()
        expect(question.get_by_role("button", name=re.compile("Restart|Cancel|One"))).to_have_count(0, timeout=3000)
        pressed = time.monotonic()

        head = last(page, "notes each 30 s")
        expect(head).to_contain_text("stop job datagen", timeout=5000)
        expect(head).to_contain_text(re.compile(r"loading weights|capturing graphs"), timeout=45_000)
        head.get_by_text(re.compile(r"\d+ repl")).first.click(timeout=40_000)
        thread = page.locator("#thread")
        expect(thread).to_contain_text(re.compile(r"0:30 · .*"), timeout=40_000)
        assert 25 < time.monotonic() - pressed < 45
        picture(page, "progress")
        expect(thread).to_contain_text(re.compile(r"1:00 · \d/8 up"), timeout=40_000)
        assert time.monotonic() - pressed < 75

        end = last(page, "8/8 up with no_buffer")
        expect(end).to_contain_text("max_running_requests 37 → 72", timeout=90_000)
        expect(end).to_contain_text("running flags read back: as asked · job resumed")
        picture(page, "desktop")
        phone = browser.new_page(viewport={"width": 390, "height": 844})
        phone.goto(demo.url)
        expect(last(phone, "8/8 up with no_buffer")).to_be_visible()
        assert phone.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        picture(phone, "phone")

        say(page, "job")
        expect(last(page, "job datagen: running at 61,")).to_be_visible(timeout=3000)
        say(page, "status")
        expect(last(page, "profile no_buffer")).to_contain_text("64/72", timeout=10_000)
        browser.close()
    assert _left_over(tmp_path) == []


def _left_over(home: Path) -> list[str]:
    """Processes that still know the demo's folder by their environment or command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(home).encode() in text:
            found.append(f"{entry.name} {text[:200]!r}")
    return found
