"""The door for agents: it looks at everything, and what would hurt something healthy is asked in the channel."""

from __future__ import annotations

import asyncio
import json
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from bot.domain.errors import ConfigError
from bot.domain.facts import JobState
from bot.domain.message import Message
from bot.ports import Place, Ref
from bot.runtime.clock import SystemClock
from bot.runtime.door import Door, Switchboard, person_for
from tests.jumping import run
from tests.tester import Bot, PretendChat, first_night


def with_door(bot: Bot) -> Door:
    """A door to a bot; the bot's own chat is reached through its switchboard."""
    assert isinstance(bot.switchboard, Switchboard)
    return Door(
        bot.dispatcher,
        bot.switchboard,
        bot.executor,
        bot.desk,
        bot.operations,
        bot.questions,
        lambda: bot.fleet_value,
        (),
        bot.clock,
        bot.promises,
    )


class Caller:
    """Somebody at the door, and what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.result: dict[str, Any] = {}

    async def send(self, value: dict[str, Any]) -> None:
        if value.get("done"):
            self.result = value
        else:
            self.said.append(value["says"])


def test_a_look_is_answered_to_the_caller_alone_with_one_object_a_server() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        bot.fleet.die("gpu3")
        assert not await with_door(bot).answer("up?", "ana", caller.send, is_waiting=True)
        assert bot.posts() == []
        assert caller.result["command"] == "up"
        assert caller.result["ok"] is False
        assert caller.result["servers"][0] == snapshot(
            {
                "name": "gpu0",
                "host": "ct200",
                "port": 30000,
                "readiness": "ready",
                "http_status": 200,
                "phase": "serving",
                "progress_percent": None,
                "profile": "extra_buffer",
                "running": 32,
                "max_running": 37,
                "queued": 0,
                "tokens_per_second": 641.4,
                "kv_usage": 0.21,
                "mamba_usage": 0.61,
                "reason": None,
            }
        )
        assert [one["readiness"] for one in caller.result["servers"]] == ["ready"] * 3 + ["down"] + ["ready"] * 4
        assert caller.said[0].splitlines()[0] == "7/8 answering · ct200"
        assert caller.said[1].splitlines()[0] == "🟢 30000 gpu0  HTTP 200  32 running"

    run(scenario())


def test_a_restart_is_asked_in_the_channel_and_the_caller_waits_for_a_person() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        asking = asyncio.ensure_future(with_door(bot).answer("restart no_buffer", "ana", caller.send, is_waiting=True))
        await bot.advance(60)
        assert not asking.done()
        assert bot.fleet.signalled == []
        assert caller.said == ["Restart 8 servers with profile no_buffer? A person must press in the channel; waiting."]
        bot.press("Restart 8 servers", user="U2")
        await bot.advance(200)
        assert asking.done()
        assert asking.result()
        assert caller.result["operation"] == "op-1"
        assert any("🟢 8/8 up with no_buffer" in one for one in caller.said)
        assert any(one.startswith("0:30") for one in caller.said)

    run(scenario())


class SlowChat(PretendChat):
    """A chat in which everything takes a second, as Slack's may."""

    async def post(self, place: Place, message: Message) -> Ref:
        await asyncio.sleep(1)
        return await super().post(place, message)

    async def edit(self, ref: Ref, message: Message) -> None:
        await asyncio.sleep(1)
        await super().edit(ref, message)


def test_the_caller_reads_the_end_also_when_the_chat_is_slow() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night(), chat=SlowChat()), Caller()
        bot.fleet.run_all()
        asking = asyncio.ensure_future(with_door(bot).answer("restart no_buffer", "ana", caller.send, is_waiting=True))
        await bot.advance(10)
        bot.press("Restart 8 servers", user="U2")
        assert await asking
        assert any("🟢 8/8 up with no_buffer" in one for one in caller.said)

    run(scenario())


def test_a_press_that_comes_to_nothing_is_told_and_the_caller_waits_for_the_new_question() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        bot.fleet.die("gpu3")
        asking = asyncio.ensure_future(with_door(bot).answer("restart no_buffer", "ana", caller.send, is_waiting=True))
        await bot.advance(10)
        bot.fleet.run("gpu3")
        bot.press("Restart 8 servers", user="U2")
        await bot.advance(10)
        assert not asking.done()
        assert (
            caller.said[-1] == "Restart 8 servers with profile no_buffer? A person must press in the channel; waiting."
        )
        assert any("gpu3" in one for one in caller.said)
        bot.press("Cancel")
        assert not await asking
        assert bot.fleet.signalled == []

    run(scenario())


def test_what_was_asked_before_the_bot_was_restarted_is_none_of_a_later_callers_business() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        assert not await with_door(bot).answer("restart no_buffer", "ana", caller.send, is_waiting=True)
        await bot.die()
        assert await with_door(bot.restarted()).answer("up?", "ana", caller.send, is_waiting=True)

    run(scenario())


def test_a_caller_who_has_waited_for_its_own_start_is_answered_that_much_sooner() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        bot.fleet.servers["gpu7"].is_silent = True
        for ago, then in ((0.0, 0.9), (0.7, 0.2), (5.0, 0.05)):
            caller.said.clear()
            asking = asyncio.ensure_future(
                with_door(bot).answer("up?", "ana", caller.send, is_waiting=True, ago=timedelta(seconds=ago))
            )
            await bot.advance(then - 0.05)
            assert caller.said == [], ago
            await bot.advance(0.1)
            assert caller.said[0].startswith("7/8 answering"), ago
            assert not await asking

    run(scenario())


def test_without_a_press_nothing_is_done_and_the_caller_is_told() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        assert not await with_door(bot).answer("restart no_buffer", "ana", caller.send, is_waiting=True)
        assert bot.fleet.signalled == []
        assert caller.said[-1].endswith("expired: nothing was done")

    run(scenario())


def test_a_caller_that_does_not_wait_gets_its_answer_at_once() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        await with_door(bot).answer("restart no_buffer", "ana", caller.send, is_waiting=False)
        assert len(bot.desk.open_in("C1")) == 1
        assert caller.result["ok"] is True

    run(scenario())


def test_somebody_who_is_not_configured_may_look_and_not_restart() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        door = with_door(bot)
        assert await door.answer("up?", "nobody", caller.send, is_waiting=True)
        assert not await door.answer("restart no_buffer", "nobody", caller.send, is_waiting=True)
        assert caller.said[-1] == "you may look but not restart; ask ana or bo"
        assert bot.desk.open_in("C1") == ()

    run(scenario())


def test_alone_a_question_is_answered_by_yes_where_it_is_allowed_and_else_by_nobody() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        door = with_door(bot)
        assert not await door.answer_alone("restart gpu3 no_buffer", "ana", caller.send, may_confirm=False)
        assert caller.said[-1] == "Nobody can press without a running bot: nothing was done."
        assert bot.fleet.signalled == []
        assert await door.answer_alone("restart gpu3 no_buffer", "ana", caller.send, may_confirm=True)
        assert [name for name, _ in bot.fleet.started] == ["gpu3"]

    run(scenario())


def test_alone_a_yes_to_what_somebody_else_holds_does_not_count() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        door = with_door(bot)
        assert await door.answer_alone("hold gpu3 2h eval", "ana", caller.send, may_confirm=False)
        assert not await door.answer_alone("restart gpu3 no_buffer", "bo", caller.send, may_confirm=True)
        assert caller.said[-3].startswith("Not yours to press: ana or an admin may.\ngpu3 held by ana since")
        assert caller.said[-1] == "That press does not count: nothing was done."
        assert bot.questions.open() == ()
        assert bot.fleet.signalled == []
        await bot.advance(2 * 3600)
        assert bot.last.text == "ana's hold on gpu3 is over (eval)."
        assert bot.last.ref.channel == "C1"
        await bot.tasks.close()

    run(scenario())


def test_who_asks() -> None:
    fleet = first_night()
    assert person_for(fleet, "bo", "root") == "bo"
    assert person_for(fleet, None, "root") == "root"
    with pytest.raises(ConfigError, match=r"^--as: no person is called 'eve'; the fleet file knows ana, bo, vic$"):
        person_for(fleet, "eve", "root")


def test_the_socket_is_its_owners_alone_and_survives_nonsense(tmp_path: Path) -> None:
    async def scenario() -> None:
        bot = Bot(first_night(), clock=SystemClock())
        bot.fleet.run_all()
        path = tmp_path / "state" / "ask.sock"
        server = await with_door(bot).serve(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

        async def ask(data: bytes) -> list[dict[str, Any]]:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(data)
            writer.write_eof() if data.endswith(b"\0") else None
            lines = [json.loads(line) async for line in reader]
            writer.close()
            return lines

        for nonsense in (
            b"hello\n",
            b"{}\n",
            b"[1]\n",
            b'{"text": 1}\n',
            b"\xff\xfe\n",
            b"\0",
            b"x" * 200_000 + b"\n",
            b"[" * 60_000 + b"\n",
        ):
            assert (await ask(nonsense))[-1]["ok"] is False
        told = await ask(json.dumps({"text": "up?", "as": None, "login": "root"}).encode() + b"\n")
        assert told[-1]["ok"] is True
        told = await ask(json.dumps({"text": "up?", "as": "eve", "login": "root"}).encode() + b"\n")
        assert told[-1]["is_usage"] is True
        server.close()
        await bot.tasks.close()

    asyncio.run(scenario())


def test_whoever_asks_from_a_shell_never_answers_a_question() -> None:
    async def scenario() -> None:
        bot, caller = Bot(first_night()), Caller()
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        code = bot.questions.open()[0].code
        await with_door(bot).answer(f"yes {code}", "ana", caller.send, is_waiting=True)
        assert caller.said == ["A person must press in the channel. Nothing was done."]
        await bot.advance(5)
        assert bot.fleet.signalled == []
        assert len(bot.questions.open()) == 1
        await bot.tasks.close()

    run(scenario())


def test_a_caller_who_hangs_up_at_any_moment_leaves_whole_questions_and_operations() -> None:
    async def hung_up(after: float, words: str) -> None:
        bot, caller = Bot(first_night()), Caller()
        if words.startswith("restart"):
            bot.fleet.run_all()
        asking = asyncio.ensure_future(with_door(bot).answer(words, "ana", caller.send, is_waiting=True))
        await bot.advance(after)
        asking.cancel()
        await bot.advance(400)
        assert bot.executor.live() == ()
        assert bot.operations.live() == ()
        assert bot.questions.open() == ()
        assert all(not post.buttons for post in bot.posts() if post.text.startswith("Restart "))
        assert len(bot.fleet.started) <= 1
        await bot.tasks.close()
        assert not bot.tasks.failures

    for words in ("restart no_buffer", "start gpu3"):
        for after in (0.0, 0.04, 0.05, 0.06, 0.3, 2, 30):
            run(hung_up(after, words))


def test_a_hundred_callers_at_once_are_all_answered_and_one_of_them_starts_it() -> None:
    async def scenario() -> None:
        bot = Bot(first_night())
        door = with_door(bot)
        callers = [Caller() for _ in range(100)]
        words = ["start gpu3", "up?", "x" * 60_000, "status"]
        asked = [door.answer(words[n % 4], "ana", one.send, is_waiting=False) for n, one in enumerate(callers)]
        await asyncio.gather(*asked)
        assert all(one.result["done"] and one.said for one in callers)
        await bot.advance(200)
        assert [name for name, _ in bot.fleet.started] == ["gpu3"]
        await bot.tasks.close()
        assert not bot.tasks.failures

    run(scenario())
