"""What people say to each other, and words that are meant to trip the bot: silence, or an answer, never an act."""

from __future__ import annotations

import pytest

from bot.domain.facts import JobState
from tests.tester import Bot, talk

TALK = """\
what's up?
is it up? dunno
up for lunch?
up to you
up and running since yesterday, nice
u there?
ping me when you are back
alive and kicking
status quo then
status update in the daily please
restart your laptop, that helped me
restarting the coffee machine
r u sure
reboot the printer maybe?
stop it, you two
stop worrying about the graph
start with the big ones
start the meeting without me
start over from the checkpoint tomorrow
stop by my desk
cancel my meeting
cancel culture, I guess
abort mission, lunch is ready
no idea
no, the other one
wait for me
wait what
don't know
halt and catch fire
why not
why is the invoice so high?
why do we still use this cluster
logs are in s3
log in again
tail of the distribution looks odd
job interviews are at three
jobs at the lab are open
job well done
help me move on saturday?
quiet please
quiet day today
every little helps
every time I look it works
kill the lights
kill it with fire
history repeats itself
hist of the loss is attached
since when do we care
since you ask, all good
compare that to last week
silence is golden
mute your mic
ack, will do
seen that already
alerts are annoying
profile pictures in the wiki please
all good
ready when you are
works on my machine
up yours
canary in the coal mine
hold on a second
hold my beer
tell me when lunch is ready
tell me about it
adopt a cat
steal this book
steal all the cookies
hold tight
hold up
hold the line please
hold all the presses
hold all for lunch
holds up well
release the kraken
release notes are out
hold that thought""".splitlines()


@pytest.mark.parametrize("sentence", TALK)
def test_people_talk_and_the_bot_is_silent(sentence: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert await bot.answer(sentence) == ""

    talk(scenario)


@pytest.mark.parametrize(
    "said",
    [
        "restart gpu0 gpu99",
        "restart gpu0 no_buffer extra_buffer",
        "restart no buffer",
        "restart ｇｐｕ０",
        "restart gрu0",
        "restart gpu٣",
        "restart gpu0; rm -rf /",
        "restart $(id)",
        "restart ../../etc",
        "restart 99999",
        "restart -1",
        "restart gpu7-0",
        "restart gpu0-99999999",
        "restart ct999",
        "stop gpu0 && reboot",
        "restart gpu0 mem-fraction-static=$(id)",
        "restart gpu0 trust-remote-code=1",
        "kill -9 4001",
        "kill 4001",
        "kill 1",
    ],
)
def test_words_that_nobody_knows_do_nothing_and_say_so(said: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        told = await bot.answer(said)
        assert "Nothing was done" in told or "Did you mean" in told, told
        assert bot.questions.open() == ()
        assert bot.fleet.signalled == []

    talk(scenario)


@pytest.mark.parametrize("said", ["?", "!!!", "...", "-", "`", "\x00", "\u202e", "<@U1>", "🙂" * 300, "up" * 5_000])
def test_noise_is_silence(said: str) -> None:
    async def scenario(bot: Bot) -> None:
        told = await bot.answer(said)
        assert told == "" or told.startswith("Two words are enough")

    talk(scenario)


@pytest.mark.parametrize(
    "said", ["restart gpu0 gpu0 GPU0", "RESTART GPU0", "Restart gpu0!", "/restart gpu0", "restart 30000"]
)
def test_the_same_server_said_often_or_loudly_is_one_server(said: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        assert (await bot.answer(said)).startswith("Restart gpu0?")
        assert [one.plan.servers for one in bot.questions.open()] == [("gpu0",)]

    talk(scenario)


@pytest.mark.parametrize("said", ["stop all", "restart all", "job stop", "kill 991", "cancel", "reload", "stop"])
def test_a_viewer_changes_nothing_and_alone_hears_why(said: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        bot.fleet.job_state = JobState.RUNNING
        await bot.answer("restart no_buffer")
        before = len(bot.chat.posts)
        told = await bot.answer(said, user="U3")
        assert told.startswith("you may look but not"), told
        assert len(bot.questions.open()) == 1
        assert bot.fleet.job_stops == 0
        assert [post.only_for for post in bot.chat.posts[before:]] == ["U3"] or said == "job stop"

    talk(scenario)


@pytest.mark.parametrize("said", ["no", "wait", "don't", "no please not now", "works", "it's up"])
def test_a_viewers_word_ends_no_question(said: str) -> None:
    async def scenario(bot: Bot) -> None:
        bot.fleet.run_all()
        await bot.answer("restart no_buffer")
        await bot.answer(said, user="U3")
        assert len(bot.questions.open()) == 1

    talk(scenario)
