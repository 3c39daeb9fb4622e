"""What the progress of a start says of its future: nothing without history, and when it is late."""

from __future__ import annotations

from inline_snapshot import snapshot

from tests.tester import Bot, talk


def test_a_first_start_with_a_profile_says_that_it_may_compile() -> None:
    async def scenario(bot: Bot) -> None:
        bot.say("start gpu0 no_buffer")
        await bot.advance(12)
        assert bot.posts()[0].text == snapshot("""\
Start gpu0 · no_buffer · 0:09 · 0/1 up
✓ memory and ports free   ● starting 1   ○ prove
🟡 gpu0   loading weights 17 %
[Cancel]
by ana, 9 s ago · notes each 30 s in the thread · first start with no_buffer here: kernels may be compiled\
""")
        await bot.advance(100)
        assert "first start" not in bot.posts()[0].text
        bot.fleet.die("gpu0")
        await bot.advance(10)
        bot.say("start gpu0 no_buffer")
        await bot.advance(12)
        assert "first start" not in bot.posts()[-1].text

    talk(scenario)


def test_a_start_that_takes_longer_than_ever_is_said_to_be_stuck() -> None:
    async def scenario(bot: Bot) -> None:
        await bot.answer("start gpu0 no_buffer", within=100)
        bot.fleet.die("gpu0")
        bot.fleet.servers["gpu0"].extra_start = 500
        await bot.advance(10)
        bot.say("start gpu0 no_buffer")
        await bot.advance(361)
        head = [post for post in bot.posts() if post.text.startswith("Start gpu0 ·")][-1]
        assert [post.text for post in bot.posts(head.ref.id)][::11] == snapshot(
            [
                "0:30 · 0/1 up · spawned · about 1 m 12 s to go",
                "6:00 · 0/1 up · spawned · longer than ever before: gpu0 stuck before loading its weights since 5 m 58 s (it took 2 s at most)",
            ]
        )
        assert head.text == snapshot("""\
Start gpu0 · no_buffer · 6:00 · 0/1 up · longer than ever before: gpu0 stuck before loading its weights since 5 m 58 s (it took 2 s at most)
✓ memory and ports free   ● starting 1   ○ prove
🟡 gpu0   spawned
[Cancel]
by ana, 6 m ago · notes each 30 s in the thread\
""")

    talk(scenario)
