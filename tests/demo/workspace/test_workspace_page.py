"""The page in a real browser: typing, pressing, confirming, and what arrives while one looks."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from bot.demo.workspace import Workspace
from tests.demo.workspace.living import Breaker, living, until, web_client
from tests.demo.workspace.test_workspace_blocks import button, section
from tests.demo.workspace.test_workspace_socket_mode import GO, QUESTION, bolted
from tests.demo.workspace.test_workspace_web_api import PNG

pytestmark = pytest.mark.browser

ARGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP = {"width": 1100, "height": 800}
PHONE = {"width": 390, "height": 844}
CONFIRM = {
    "title": {"type": "plain_text", "text": "Restart 8 servers?"},
    "text": {"type": "mrkdwn", "text": "256 requests will *fail*."},
    "confirm": {"type": "plain_text", "text": "Restart"},
    "deny": {"type": "plain_text", "text": "Keep running"},
}


class Chromium:
    """One browser for all tests of this module, each with a fresh profile, and the loop that it lives on."""

    def __init__(self, runner: asyncio.Runner, browser: Browser) -> None:
        self.run = runner.run
        self.browser = browser

    @asynccontextmanager
    async def browsing(self, workspace: Workspace, path: str = "/", *, expected: str = "", **context):
        """A page of the workspace; an error in its scripts, or a refused resource not ``expected``, fails the test."""
        wrong: list[str] = []
        profile = await self.browser.new_context(**{"viewport": DESKTOP, **context})
        page = await profile.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.set_default_timeout(5000)
        try:
            await page.goto(f"{workspace.url}{path}")
            await expect(page.get_by_role("heading", name="# fleet")).to_be_visible()
            yield page
        finally:
            await profile.close()
        assert [one for one in wrong if not expected or expected not in one] == []


@pytest.fixture(scope="module")
def chromium():
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with asyncio.Runner() as runner:
        playwright = runner.run(async_playwright().start())
        yield Chromium(runner, runner.run(playwright.chromium.launch(executable_path=path, args=ARGS)))
        runner.run(playwright.stop())


def message(page: Page, text: str):
    return page.locator("#messages .message").filter(has_text=text)


async def texts(page: Page) -> list[str]:
    return await page.locator("#messages .section-text").all_inner_texts()


def test_typing_and_enter_says_it_and_the_answer_and_its_edit_arrive_live(chromium):
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot, chromium.browsing(workspace) as page:
            await page.get_by_label("Message", exact=True).fill("up?")
            await page.keyboard.press("Enter")
            await until(lambda: bot.heard)
            assert bot.heard[0]["event"]["text"] == "up?"
            posted = await bot.client.chat_postMessage(channel="C0FLEET", text="t", blocks=[section("*0/8* answering")])
            await expect(message(page, "0/8 answering")).to_be_visible()
            await bot.client.chat_update(channel="C0FLEET", ts=posted["ts"], text="t", blocks=[section("*8/8* ready")])
            await expect(message(page, "8/8 ready")).to_be_visible()
            assert await texts(page) == ["up?", "8/8 ready"]
            assert await message(page, "8/8 ready").locator("strong").last.inner_text() == "8/8"
            await bot.client.reactions_add(channel="C0FLEET", name="eyes", timestamp=posted["ts"])
            await expect(page.get_by_title("upbot reacted with :eyes:")).to_have_text("👀1")
            await bot.client.chat_delete(channel="C0FLEET", ts=posted["ts"])
            await expect(message(page, "8/8 ready")).to_have_count(0)

    chromium.run(scenario())


def test_shift_and_enter_makes_a_line_and_an_edited_text_is_marked(chromium):
    async def scenario():
        async with living() as workspace, chromium.browsing(workspace, "/?as=bo") as page:
            await page.get_by_label("Message", exact=True).type("one")
            await page.keyboard.press("Shift+Enter")
            await page.keyboard.type("two")
            await page.keyboard.press("Enter")
            post = await until(lambda: workspace.room.posts("C0FLEET"))
            assert (post[0].user, post[0].text) == ("U0BO", "one\ntwo")
            workspace.people.edit("fleet", "bo", post[0].ts, "three")
            await expect(message(page, "three (edited)")).to_be_visible()

    chromium.run(scenario())


def test_a_press_asks_first_where_it_has_to_and_the_buttons_go(chromium):
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot, chromium.browsing(workspace, "/?as=bo") as page:
            blocks = [QUESTION[0], {"type": "actions", "elements": [{**GO, "confirm": CONFIRM}]}]
            await bot.client.chat_postMessage(channel="C0FLEET", text="Restart?", blocks=blocks)
            press = page.locator(".message").get_by_role("button", name="Restart 8 servers")
            assert "danger" in await press.get_attribute("class")
            await press.click()
            dialog = page.get_by_role("dialog", name="Restart 8 servers?")
            await expect(dialog).to_contain_text("256 requests will fail.")
            await dialog.get_by_role("button", name="Keep running").click()
            await expect(dialog).to_be_hidden()
            await press.click()
            await page.keyboard.press("Escape")
            await expect(dialog).to_be_hidden()
            assert bot.pressed == []
            await press.click()
            await dialog.get_by_role("button", name="Restart", exact=True).click()
            await expect(press).to_have_count(0)
            await expect(message(page, "by @bo")).to_be_visible()
            assert [one["user"]["name"] for one in bot.pressed] == ["bo"]

    chromium.run(scenario())


def test_a_press_that_nobody_acknowledges_is_told(chromium):
    async def scenario():
        async with living() as workspace, chromium.browsing(workspace, expected="409") as page:
            await web_client(workspace).chat_postMessage(channel="C0FLEET", text="Restart?", blocks=QUESTION)
            await page.get_by_role("button", name="Restart 8 servers").click()
            await expect(page.get_by_role("alert")).to_have_text(
                "Restart 8 servers: the app did not acknowledge it within 0.4 s"
            )
            await expect(page.get_by_role("button", name="Restart 8 servers")).to_be_enabled()

    chromium.run(scenario())


def test_an_ephemeral_message_is_seen_by_whom_it_is_for(chromium):
    async def scenario():
        async with living() as workspace, chromium.browsing(workspace) as page:
            await web_client(workspace).chat_postEphemeral(channel="C0FLEET", user="U0VIC", text="ask ana or bo")
            workspace.people.say("fleet", "ana", "hello")
            await expect(message(page, "hello")).to_be_visible()
            await expect(message(page, "ask ana or bo")).to_have_count(0)
            await page.get_by_label("Speak as", exact=True).select_option("vic")
            await expect(message(page, "ask ana or bo")).to_contain_text("Only visible to you")
            await page.reload()
            await expect(message(page, "ask ana or bo")).to_be_visible()

    chromium.run(scenario())


def test_a_thread_opens_fills_live_takes_a_reply_and_closes(chromium):
    async def scenario():
        async with living() as workspace, chromium.browsing(workspace) as page:
            client = web_client(workspace)
            top = await client.chat_postMessage(channel="C0FLEET", text="Restart · no_buffer")
            await client.chat_postMessage(channel="C0FLEET", text="0:30 · 8/8 stopped", thread_ts=top["ts"])
            await page.get_by_role("button", name="1 reply").click()
            thread = page.get_by_role("complementary", name="Thread")
            await expect(thread).to_contain_text("0:30 · 8/8 stopped")
            await client.chat_postMessage(channel="C0FLEET", text="1:00 · 2/8 up", thread_ts=top["ts"])
            await expect(thread).to_contain_text("1:00 · 2/8 up")
            await page.keyboard.type("every 10s")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("button", name="3 replies")).to_be_visible()
            said = workspace.room.posts("C0FLEET")[-1]
            assert (said.text, said.thread, said.user) == ("every 10s", top["ts"], "U0ANA")
            assert await texts(page) == ["Restart · no_buffer"]
            await page.keyboard.press("Escape")
            await expect(thread).to_be_hidden()

    chromium.run(scenario())


def test_foreign_text_never_becomes_markup(chromium):
    async def scenario():
        evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
        async with living() as workspace, chromium.browsing(workspace) as page:
            client = web_client(workspace)
            workspace.people.say("fleet", "ana", f"{evil} javascript:alert(3)")
            escaped = evil.replace("<", "&lt;").replace(">", "&gt;")
            log = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": f"{evil}\nline 2"}]}
            table = {"type": "table", "rows": [[{"type": "raw_text", "text": evil}]]}
            blocks = [
                section(f"*{escaped}* `{escaped}`\n```{escaped}```"),
                {"type": "rich_text", "elements": [log]},
                table,
                {"type": "actions", "elements": [button(text={"type": "plain_text", "text": evil[:75]})]},
            ]
            await client.chat_postMessage(channel="C0FLEET", text="t", blocks=blocks)
            await expect(page.locator("#messages td, #messages th")).to_have_text([evil])
            assert await page.locator("#messages img, #messages script").count() == 0
            assert await page.locator("#messages pre").all_inner_texts() == [evil, f"{evil}\nline 2"]

    chromium.run(scenario())


def test_every_kind_of_block_is_drawn(chromium):
    async def scenario():
        async with living() as workspace, chromium.browsing(workspace) as page:
            client = web_client(workspace)
            blocks = [
                {"type": "header", "text": {"type": "plain_text", "text": "Kinds"}},
                {
                    "type": "section",
                    "text": {
                        "type": "mrkdwn",
                        "text": "*b* _i_ ~s~ `c` <@U0BO> <#C0FLEET> :eyes: a &lt; b &amp; max_running_requests 2*3*4 "
                        "<https://a.b/c?x=1&amp;y=2|link> <!date^1796064000^{date_num}|fallback>\n&gt; quoted",
                    },
                    "accessory": button(action_id="side"),
                },
                {"type": "divider"},
                {"type": "context", "elements": [{"type": "mrkdwn", "text": "small *print*"}]},
                {"type": "markdown", "text": "**strong** words"},
                {
                    "type": "section",
                    "fields": [{"type": "mrkdwn", "text": "*f* 1"}, {"type": "plain_text", "text": "*"}],
                },
            ]
            await client.chat_postMessage(channel="C0FLEET", text="t", blocks=blocks)
            shown = page.locator("#messages .content")
            await expect(shown).to_contain_text("strong words")
            assert (await shown.inner_text()).split("\n") == [
                "Kinds",
                "b i s c @bo #fleet 👀 a < b & max_running_requests 2*3*4 link 2026-11-30",
                "quoted",
                "Go",
                "small print",
                "strong words",
                "f 1",
                "*",
            ]
            assert await shown.locator("a").get_attribute("href") == "https://a.b/c?x=1&y=2"
            assert await shown.locator("strong").all_inner_texts() == ["b", "print", "strong", "f"]

    chromium.run(scenario())


def test_an_uploaded_picture_is_shown(chromium):
    async def scenario():
        async with living() as workspace, chromium.browsing(workspace) as page:
            await web_client(workspace).files_upload_v2(
                content=PNG, filename="c.png", title="tok/s, two hours", channel="C0FLEET"
            )
            await expect(page.get_by_role("img", name="tok/s, two hours")).to_be_visible()

    chromium.run(scenario())


def test_the_panel_breaks_the_chosen_server(chromium):
    async def scenario():
        breaker = Breaker()
        async with living(breaker) as workspace, chromium.browsing(workspace) as page:
            await page.get_by_text("Break things").click()
            await page.get_by_label("Server").select_option("gpu3")
            await page.get_by_label("Slow it down: how").select_option("0.4")
            await page.get_by_role("button", name="Slow it down").click()
            await expect(page.locator("#breaker-said")).to_have_text("gpu3: slow")
            assert breaker.broken == [("slow", "gpu3", {"choice": "0.4"})]

    chromium.run(scenario())


def test_a_slash_command_is_typed_like_any_message(chromium):
    async def scenario():
        async with living() as workspace, bolted(workspace) as bot, chromium.browsing(workspace) as page:
            await page.get_by_label("Message", exact=True).fill("/up gpu3")
            await page.keyboard.press("Enter")
            await expect(message(page, "8/8 answering")).to_contain_text("Only visible to you")
            assert (bot.slashed[0]["command"], bot.slashed[0]["text"]) == ("/up", "gpu3")

    chromium.run(scenario())


def test_the_keyboard_stays_on_its_button_when_the_message_is_drawn_anew(chromium):
    async def scenario():
        async with living() as workspace, chromium.browsing(workspace) as page:
            client = web_client(workspace)
            ts = (await client.chat_postMessage(channel="C0FLEET", text="t", blocks=QUESTION))["ts"]
            await page.get_by_role("button", name="Restart 8 servers").focus()
            await client.chat_update(channel="C0FLEET", ts=ts, text="t", blocks=[section("4 min left"), QUESTION[1]])
            await expect(message(page, "4 min left")).to_be_visible()
            await expect(page.get_by_role("button", name="Restart 8 servers")).to_be_focused()

    chromium.run(scenario())


def test_the_page_says_what_is_not_ready_yet(chromium):
    async def scenario():
        breaker = Breaker(not_ready="2/8 servers are ready")
        async with living(breaker) as workspace, chromium.browsing(workspace) as page:
            await expect(page.get_by_text("Getting ready: 2/8 servers are ready")).to_be_visible()
            breaker.not_ready = None
            await expect(page.get_by_text("Getting ready")).to_be_hidden()

    chromium.run(scenario())


def test_a_phone_shows_everything_without_sideways_scrolling(chromium):
    async def scenario():
        async with living() as workspace, chromium.browsing(workspace, viewport=PHONE, has_touch=True) as page:
            client = web_client(workspace)
            lines = "\n".join(f"🟢 `3000{n}` gpu{n}  HTTP 200  32 running" for n in range(8))
            posted = await client.chat_postMessage(
                channel="C0FLEET", text="t", blocks=[section(lines), section("x" * 300), QUESTION[1]]
            )
            await client.chat_postMessage(channel="C0FLEET", text="0:30", thread_ts=posted["ts"])
            await expect(message(page, "gpu7")).to_be_visible()
            for width in (360, 390):
                await page.set_viewport_size({"width": width, "height": 844})
                assert await page.evaluate("document.documentElement.scrollWidth") == width
                wide = (
                    "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth)"
                )
                assert await page.evaluate(f"{wide}.length") == 0
            await page.get_by_role("button", name="1 reply").click()
            await expect(page.get_by_role("complementary", name="Thread")).to_contain_text("0:30")
            await page.get_by_role("button", name="Close the thread").click()
            await page.get_by_role("button", name="Open the menu").click()
            await expect(page.get_by_role("navigation")).to_contain_text("Break things")
            await page.get_by_role("button", name="Close the menu").click()
            await expect(page.get_by_role("navigation")).to_be_hidden()

    chromium.run(scenario())


def test_the_page_comes_back_by_itself_after_the_workspace_was_away(chromium):
    async def scenario():
        async with living() as workspace:
            port = int(workspace.url.rpartition(":")[2])
            async with chromium.browsing(workspace, expected="net::ERR_") as page:
                await workspace.stop()
                await expect(page.get_by_text("Connection lost")).to_be_visible()
                async with living(port=port) as again:
                    again.people.say("fleet", "bo", "back")
                    await expect(message(page, "back")).to_be_visible(timeout=10_000)
                    await expect(page.get_by_text("Connection lost")).to_be_hidden()

    chromium.run(scenario())
