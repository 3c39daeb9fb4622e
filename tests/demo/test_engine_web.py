"""The simulated server's paths, by version and for those who write to it."""

import asyncio
import json

import aiohttp
import pytest

from bot.demo.faults import Faults
from tests.demo.simulation import bench, generate, get, load, until_running


def _url(port, path):
    return f"http://127.0.0.1:{port}{path}"


@pytest.mark.parametrize(
    ("version", "ready", "get_load", "loads_of_a_hung_one"),
    [("0.5.13", 404, 200, None), ("0.5.20", 200, 200, None), ("0.5.23", 200, 404, 200)],
)
def test_each_version_has_its_own_paths(tmp_path, version, ready, get_load, loads_of_a_hung_one):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready(UPBOT_SIM_VERSION=version)
            seen = [(await get(one.port, path))[0] for path in ("/ready", "/get_load", "/ping", "/get_model_info")]
            Faults(there.machine).hang(one.port)
            await asyncio.sleep(0.7)
            try:
                hung = (await get(one.port, "/v1/loads", seconds=0.5))[0]
            except TimeoutError:
                hung = None
            return seen, hung, one.text()

    seen, hung, text = asyncio.run(story())
    assert seen == [ready, get_load, 200, 200]
    assert hung == loads_of_a_hung_one
    assert "Endpoint '/get_model_info' is deprecated" in text


def test_from_0_5_23_on_the_loads_of_a_hung_server_stand_still(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready(UPBOT_SIM_VERSION="0.5.23")
            Faults(there.machine).hang(one.port)
            await asyncio.sleep(0.7)
            first, second = await load(one.port), await load(one.port)
            await asyncio.sleep(0.2)
            return first["timestamp"], second["timestamp"], (await load(one.port))["timestamp"]

    first, second, third = asyncio.run(story())
    assert first == pytest.approx(second, abs=0.01)
    assert first == pytest.approx(third, abs=0.01)


def test_a_stream_says_when_a_request_has_begun_and_what_came_of_it(tmp_path):
    async def story():
        async with bench(tmp_path) as there, aiohttp.ClientSession() as session:
            one = await there.ready()
            body = {"text": "x" * 40, "sampling_params": {"max_new_tokens": 12}, "stream": True}
            async with session.post(_url(one.port, "/generate"), json=body) as answer:
                return [line async for line in answer.content if line.strip()]

    first, second, last = asyncio.run(story())
    assert json.loads(first[6:])["meta_info"]["finish_reason"] is None
    assert json.loads(second[6:])["meta_info"]["completion_tokens"] == 12
    assert last == b"data: [DONE]\n"


def test_openai_paths_answer_with_usage(tmp_path):
    async def story():
        async with bench(tmp_path) as there, aiohttp.ClientSession() as session:
            one = await there.ready("--served-model-name", "qwen")
            found = []
            for path, body in (
                ("/v1/completions", {"prompt": "x" * 40, "max_tokens": 5}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}),
            ):
                async with session.post(_url(one.port, path), json=body) as answer:
                    found.append(await answer.json())
            return found

    plain, chat = asyncio.run(story())
    assert (plain["model"], plain["usage"]) == (
        "qwen",
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    )
    assert plain["choices"][0]["text"].startswith("sound")
    assert (chat["object"], chat["choices"][0]["message"]["role"]) == ("chat.completion", "assistant")


def test_requests_can_be_aborted_and_the_cache_is_flushed_only_when_idle(tmp_path):
    async def story():
        async with bench(tmp_path) as there, aiohttp.ClientSession() as session:
            one = await there.ready()
            work = [asyncio.create_task(generate(session, one.port, 100_000)) for _ in range(3)]
            await until_running(one.port, 3)
            flushed = []
            async with session.post(_url(one.port, "/flush_cache")) as answer:
                flushed.append(answer.status)
            async with session.post(_url(one.port, "/abort_request"), json={"abort_all": True}) as answer:
                aborted = answer.status
            reasons = [(await task)["meta_info"]["finish_reason"]["type"] for task in work]
            async with session.post(_url(one.port, "/flush_cache")) as answer:
                flushed.append(answer.status)
            return aborted, reasons, flushed

    assert asyncio.run(story()) == (200, ["abort"] * 3, [400, 200])


def test_two_requests_of_one_id_are_both_answered(tmp_path):
    async def story():
        async with bench(tmp_path) as there, aiohttp.ClientSession() as session:
            one = await there.ready()

            async def ask():
                body = {"text": "hi", "rid": "same", "sampling_params": {"max_new_tokens": 10}}
                async with session.post(_url(one.port, "/generate"), json=body) as answer:
                    return (await answer.json())["meta_info"]

            return await asyncio.wait_for(asyncio.gather(ask(), ask()), 10)

    answers = asyncio.run(story())
    assert [answer["completion_tokens"] for answer in answers] == [10, 10]
    assert len({answer["id"] for answer in answers}) == 2


def test_a_client_that_goes_away_frees_its_seat(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready("--max-running-requests", "1")
            async with aiohttp.ClientSession() as session:
                gone = asyncio.create_task(generate(session, one.port, 100_000))
                await until_running(one.port, 1)
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                answer = await asyncio.wait_for(generate(session, one.port, 6), 5)
            return answer["meta_info"]["completion_tokens"]

    assert asyncio.run(story()) == 6
