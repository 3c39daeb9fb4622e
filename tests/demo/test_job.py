"""The job that feeds the simulated servers."""

import asyncio
import json
import signal

import pytest

from bot.demo.job import Progress, Prompts, Rate
from tests.demo.simulation import bench, free_port, load, until


def test_progress_goes_on_where_its_file_says(tmp_path):
    path = tmp_path / "progress.json"
    path.write_text('{"done": 61204, "total": 193000, "rate": 3900.0}')
    progress = Progress.load(path, 193_000)
    progress.finish(61_204)
    progress.finish(61_206)
    path.write_text(progress.text("stopped"))
    again = Progress.load(path, 193_000)
    assert (again.done, again.low, again.beyond) == (61_206, 61_205, {61_206})
    assert json.loads(path.read_text())["state"] == "stopped"


@pytest.mark.parametrize("content", [None, "", "{}", "[]", "null", '{"done": "x"}', '{"done": 1, "beyond": 3}'])
def test_a_progress_file_that_can_not_be_read_means_the_beginning(tmp_path, content):
    path = tmp_path / "progress.json"
    if content is not None:
        path.write_text(content)
    assert Progress.load(path, 10) == Progress(total=10)


def test_no_prompt_is_asked_twice_without_a_reason():
    progress = Progress(total=4, beyond={1})
    prompts = Prompts(progress)
    assert [prompts.take() for _ in range(4)] == [0, 2, 3, None]
    prompts.give_back(2)
    prompts.copy(3)
    prompts.copy(3)
    progress.finish(0)
    prompts.copy(0)
    assert [prompts.take() for _ in range(3)] == [3, 2, None]
    prompts.give_back(2)
    progress.finish(2)
    assert prompts.take() is None


def test_a_rate_is_said_only_when_enough_was_seen():
    rate = Rate(60, now=0)
    rate.add(10, 6_000)
    assert rate.value(20) is None
    rate.add(31, 6_000)
    assert rate.value(40) == 300
    assert rate.value(75) == 100
    assert rate.value(200) == 0


def _words(home, *ports, concurrency=8, total=100_000):
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    rest = ("--concurrency", str(concurrency), "--total", str(total), "--progress", str(home / "p.json"))
    return ("-m", "bot.demo.job", "--urls", *urls, *rest, "--pid-file", str(home / "job.pid"))


def _progress(home):
    try:
        return json.loads((home / "p.json").read_text())
    except FileNotFoundError:
        return {"done": 0, "tokens": 0, "state": ""}


def test_it_keeps_more_open_than_there_are_seats_and_ctrl_c_saves(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready("--mamba-scheduler-strategy", "extra_buffer")
            job = await there.run(*_words(tmp_path, one.port, concurrency=64), "--tokens", "40")
            await until(lambda: _progress(tmp_path)["done"] > 20)
            loads, pid = await load(one.port), int((tmp_path / "job.pid").read_text())
            job.process.send_signal(signal.SIGINT)
            status = await job.ended()
            saved = _progress(tmp_path)
            again = await there.run(*_words(tmp_path, one.port), "--tokens", "40")
            await until(lambda: _progress(tmp_path)["done"] > saved["done"] + 8)
            again.process.terminate()
            return (
                loads,
                pid == job.process.pid,
                status,
                saved,
                await again.ended(),
                job.text(),
                there.machine.living("job"),
            )

    loads, is_pid, status, saved, last, text, living = asyncio.run(story())
    assert loads["num_running_reqs"] == 37
    assert 20 <= loads["num_waiting_reqs"] <= 27
    assert (is_pid, status, last, saved["state"], living) == (True, 0, 0, "stopped", [])
    assert text.endswith(f"stopped at {saved['done']:,} of 100,000, saved\n")
    assert not (tmp_path / "job.pid").exists()


def test_servers_may_go_and_come_back(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            port = free_port()
            job = await there.run(*_words(tmp_path, port), "--tokens", "20")
            await job.says("does not answer, waiting for it")
            for _ in range(2):
                one = await there.engine(port)
                done = _progress(tmp_path)["done"]
                await until(lambda done=done: _progress(tmp_path)["done"] > done + 10)
                one.process.kill()
                await one.ended()
                await until(lambda: not there.machine.holders(0))
            return job.process.returncode, job.text()

    status, text = asyncio.run(story())
    assert status is None
    assert text.count("is back") >= 2
    assert "Traceback" not in text


def test_it_ends_when_all_is_done(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready()
            job = await there.run(*_words(tmp_path, one.port, total=30), "--tokens", "10")
            return await job.ended(), _progress(tmp_path)

    status, progress = asyncio.run(story())
    assert (status, progress["state"], progress["done"], progress["low"]) == (0, "done", 30, 30)
    assert progress["tokens"] > 100
