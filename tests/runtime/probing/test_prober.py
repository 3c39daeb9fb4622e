from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop

from bot.domain.errors import FleetError, HopError
from bot.domain.facts import JobFacts, JobState, Outcome
from bot.domain.flags import Flags
from bot.domain.fleet import Host, Job, Profile
from bot.domain.readiness import Readiness, judge
from bot.ports import Needs
from bot.runtime.probing.hostlook import cache_folders
from bot.runtime.probing.servers import Memory, ServerLook
from bot.transports._local import Local
from tests.runtime.probing.stage import (
    NOON,
    SECOND,
    FakeEngine,
    Plain,
    Spoiled,
    World,
    fleet,
    free_port,
    served,
    server,
    silent,
    start,
    started,
    until,
)


def run(scene, tmp_path: Path) -> None:
    asyncio.run(scene(tmp_path))


def test_the_first_sight_is_all_pending_and_the_last_is_complete(tmp_path):
    async def scene(stage):
        one = await start(stage)
        async with World(fleet(server("gpu0", one.port), server("gpu1", free_port()))) as world:
            sights = await world.looks()
        await one.end()
        first, last = sights[0], sights[-1]
        assert [facts.is_pending for facts in first.servers.values()] == [True, True]
        assert (first.is_settled, first.is_complete) == (False, False)
        assert (last.is_settled, last.is_complete) == (True, True)
        gpu0, gpu1 = last.servers["gpu0"], last.servers["gpu1"]
        assert gpu0.process.pid == one.process.pid
        assert gpu0.port_owner.pid == one.process.pid
        assert gpu0.instant.status == 200
        assert gpu0.health is None
        assert (gpu1.process, gpu1.port_owner, gpu1.instant.outcome) == (None, None, Outcome.REFUSED)
        assert [judge(facts, world.clock.now()).readiness for facts in (gpu0, gpu1)] == [
            Readiness.READY,
            Readiness.DOWN,
        ]

    run(scene, tmp_path)


def test_no_servers_is_one_complete_sight(tmp_path):
    async def scene(_stage):
        async with World(fleet()) as world:
            sights = [one async for one in world.prober.look(())]
        assert [(one.is_settled, one.is_complete) for one in sights] == [(True, True)]

    run(scene, tmp_path)


def test_a_server_that_never_answers_does_not_delay_the_others(tmp_path):
    async def scene(stage):
        one = await start(stage)
        async with (
            served(silent) as deaf,
            World(fleet(server("gpu0", one.port), server("gpu1", deaf), timeout=1)) as world,
        ):
            begun = time.monotonic()
            known = []
            async for sight in world.prober.look(world.fleet.servers):
                if not sight.servers["gpu0"].is_pending:
                    known.append((time.monotonic() - begun, sight.servers["gpu1"].is_pending))
            assert known[0][0] < 0.7
            assert known[0][1]
            assert sight.servers["gpu1"].instant.outcome is Outcome.TIMED_OUT
            assert sight.servers["gpu1"].unreachable is None
            assert time.monotonic() - begun < 2
        await one.end()

    run(scene, tmp_path)


def test_a_silent_host_is_unreachable_after_its_time_and_delays_nobody(tmp_path):
    async def scene(stage):
        one = await start(stage)
        hosts = [Host("h1"), Host("h2"), Host("h3")]
        others = [server("gpu1", 30001, host="h2"), server("gpu2", 30002, host="h3")]
        async with World(fleet(server("gpu0", one.port), *others, hosts=hosts, timeout=1)) as world:
            world.transports["h2"] = Spoiled(hangs=True)
            world.transports["h3"] = Spoiled(opens=("sleep", "60"))
            begun = time.monotonic()
            known = []
            async for sight in world.prober.look(world.fleet.servers):
                if not sight.servers["gpu0"].is_pending:
                    known.append(time.monotonic() - begun)
            assert known[0] < 0.9
            assert 0.9 < time.monotonic() - begun < 3
            assert sight.servers["gpu1"].unreachable == "this machine timed out after 1 s"
            assert sight.servers["gpu2"].unreachable == "this machine timed out after 1 s"
            assert sight.is_settled
        await one.end()

    run(scene, tmp_path)


def test_a_hop_that_fails_is_named(tmp_path):
    async def scene(_stage):
        async with World(fleet(server("gpu0", 30000))) as world:
            world.transports["h1"] = Spoiled(error=HopError("container 200", "is stopped"))
            facts = await world.facts("gpu0", health=True)
        assert (facts.unreachable, facts.is_pending, facts.health) == ("container 200 is stopped", False, None)

    run(scene, tmp_path)


def test_a_host_that_is_not_configured_any_more_is_said_to_be_so(tmp_path):
    async def scene(_stage):
        async with World(fleet(server("gpu0", 30000, host="gone"))) as world:
            facts = await world.facts("gpu0")
        assert facts.unreachable == "host gone is not configured"

    run(scene, tmp_path)


def test_a_scout_that_was_killed_is_replaced_within_the_same_look(tmp_path):
    async def scene(stage):
        one = await start(stage)
        async with World(fleet(server("gpu0", one.port))) as world:
            world.transports["h1"] = spoiled = Spoiled()
            await world.facts("gpu0")
            kill(spoiled)
            facts = await world.facts("gpu0")
            assert facts.process.pid == one.process.pid
            one.answers(ready={"status": 200, "body": "", "delay": 0.4})
            looking = asyncio.create_task(world.facts("gpu0"))
            await asyncio.sleep(0.1)
            kill(spoiled)
            assert (await looking).instant.status == 200
            assert len(spoiled.opened) == 3
        await one.end()

    run(scene, tmp_path)


def kill(spoiled: Spoiled) -> None:
    os.kill(spoiled.opened[-1]._child.pid, 9)


def test_a_scout_that_talks_nonsense_makes_its_host_unreachable_not_down(tmp_path):
    async def scene(_stage):
        hello = """echo '["upbot-scout",1]'; read size; echo '{"not": "for us"'; cat >/dev/null"""
        async with World(fleet(server("gpu0", 30000))) as world:
            world.transports["h1"] = Spoiled(opens=("sh", "-c", hello))
            facts = await world.facts("gpu0")
        assert facts.unreachable.startswith("h1 answered what no scout answers: ")

    run(scene, tmp_path)


def test_one_health_check_is_shared_and_goes_on_when_nobody_waits(tmp_path):
    async def scene(stage):
        one = await start(stage)
        one.answers(ready={"status": 200, "body": ""}, health={"status": 200, "body": "", "delay": 0.6})
        async with World(fleet(server("gpu0", one.port))) as world:
            async for sight in world.prober.look(world.fleet.servers, needs=Needs(health=True)):
                if sight.is_settled:
                    assert sight.servers["gpu0"].health.outcome is Outcome.PENDING
                    assert not sight.is_complete
                    assert judge(sight.servers["gpu0"], world.clock.now()).readiness is Readiness.READY
                    break
            both = await asyncio.gather(world.facts("gpu0", health=True), world.facts("gpu0", health=True))
            assert [facts.health.status for facts in both] == [200, 200]
            assert [line.split()[0] for line in one.asked].count("/health") == 1
            await world.facts("gpu0")
            assert [line.split()[0] for line in one.asked].count("/health") == 1
            await world.facts("gpu0", health=True)
            assert [line.split()[0] for line in one.asked].count("/health") == 2
        await one.end()

    run(scene, tmp_path)


def test_a_foreign_process_on_the_port_is_named(tmp_path):
    async def scene(stage):
        one = await start(stage, argv0="nginx-or-so")
        async with World(fleet(server("gpu0", one.port))) as world:
            facts = await world.facts("gpu0")
        await one.end()
        assert facts.process is None
        assert facts.port_owner.pid == one.process.pid
        assert facts.port_owner.argv[3] == "nginx-or-so"
        assert judge(facts, world.clock.now()).reason.startswith("port answers, but the process is not ours")

    run(scene, tmp_path)


def test_a_server_started_by_hand_is_recognised_with_its_profile(tmp_path):
    async def scene(stage):
        port = free_port()
        profiles = [Profile("fast", Flags.of({"mem-fraction": 0.9})), Profile("slow", Flags.of({"mem-fraction": 0.8}))]
        configured = server("gpu0", port, stage=stage)
        async with World(fleet(configured, profiles=profiles)) as world:
            found = []
            for flags in (
                ("--mem-fraction=0.90",),
                ("--mem-fraction", "0.7"),
                (),
                ("--mem-fraction", "0.8", "--host", "::"),
            ):
                one = await start(stage, *flags, port=port)
                facts = await world.facts("gpu0")
                assert facts.process.pid == one.process.pid
                found.append(facts.profile)
                await one.end()
        assert found == ["fast", "custom", None, "slow"]

    run(scene, tmp_path)


def test_a_process_that_died_is_seen_dead_although_it_was_known_alive(tmp_path):
    async def scene(stage):
        state = stage / "state"
        one = await start(stage / "one")
        async with World(fleet(server("gpu0", one.port), hosts=[Host("h1", state_dir=str(state))])) as world:
            assert (await world.facts("gpu0")).process.pid == one.process.pid
            assert (await world.facts("gpu0")).process.pid == one.process.pid
            await one.end()
            (state / "gpu0").mkdir(parents=True)
            (state / "gpu0" / "exit").write_text("137\n")
            facts = await world.facts("gpu0")
        assert (facts.process, facts.port_owner, facts.exit_status) == (None, None, 137)

    run(scene, tmp_path)


def test_an_end_on_record_that_stood_there_while_another_process_ran_is_not_that_ones(tmp_path):
    """A start through the bot failed, somebody started by hand, and that server was stopped."""

    async def scene(stage):
        (stage / "state" / "gpu0").mkdir(parents=True)
        (stage / "state" / "gpu0" / "start.json").write_text(json.dumps({"pid": 999_999_999, "started": 1}))
        (stage / "state" / "gpu0" / "exit").write_text("1\n")
        one = await start(stage / "one")
        async with World(fleet(server("gpu0", one.port), hosts=[Host("h1", state_dir=str(stage / "state"))])) as world:
            assert (await world.facts("gpu0")).process.pid == one.process.pid
            await one.end()
            by_hand = await world.facts("gpu0")
            (stage / "state" / "gpu0" / "exit").write_text("3\n")
            launched = await world.facts("gpu0")
        assert (by_hand.process, by_hand.exit_status, launched.exit_status) == (None, None, 3)

    run(scene, tmp_path)


def test_the_launchers_record_names_a_process_whose_command_line_says_nothing(tmp_path):
    async def scene(stage):
        sleeper = await asyncio.create_subprocess_exec("sleep", "60")
        began = started(sleeper.pid)
        found = []
        for ticks in (began, began - 1):
            (stage / "gpu0").mkdir(exist_ok=True)
            (stage / "gpu0" / "start.json").write_text(json.dumps({"pid": sleeper.pid, "started": ticks}))
            async with World(fleet(server("gpu0", free_port()), hosts=[Host("h1", state_dir=str(stage))])) as world:
                found.append((await world.facts("gpu0")).process)
        sleeper.kill()
        await sleeper.wait()
        assert found[0].identity == (sleeper.pid, began)
        assert found[1] is None

    run(scene, tmp_path)


def test_tokens_are_followed_from_look_to_look(tmp_path):
    async def scene(stage):
        one = await start(stage)
        async with World(fleet(server("gpu0", one.port))) as world:

            async def look(tokens: int, running: int = 4):
                body = json.dumps({"running": running, "tokens_total": tokens})
                one.answers(ready={"status": 200, "body": ""}, metrics={"status": 200, "body": body})
                facts = await world.facts("gpu0", load=True)
                world.clock.at += SECOND
                return facts.movement.still_since, facts.movement.tokens_per_second

            noon = world.clock.at
            assert await look(1000) == (None, None)
            assert await look(1600) == (None, 600.0)
            assert await look(1600) == (noon + SECOND, None)
            assert await look(1600) == (noon + SECOND, None)
            assert await look(1600, running=0) == (None, None)
            assert await look(1700) == (None, None)
            assert await look(10) == (None, None)
            assert await look(30) == (None, 20.0)
        await one.end()

    run(scene, tmp_path)


def test_config_asks_the_old_name_only_where_the_new_one_is_missing(tmp_path):
    async def scene(stage):
        one = await start(stage)
        async with World(fleet(server("gpu0", one.port))) as world:
            version = {"status": 200, "body": '{"version": "1"}'}
            one.answers(ready={"status": 200, "body": ""}, info=version, get_info=version)
            assert (await world.facts("gpu0", config=True)).running.version == "1"
            assert "/get_info " not in one.asked
            one.answers(ready={"status": 200, "body": ""}, get_info=version)
            assert (await world.facts("gpu0", config=True)).running.version == "1"
        await one.end()

    run(scene, tmp_path)


def test_the_key_of_the_running_command_line_opens_its_endpoints(tmp_path):
    async def scene(stage):
        one = await start(stage, "--api-key", "s3cret")
        async with World(fleet(server("gpu0", one.port))) as world:
            await world.facts("gpu0")
            await world.facts("gpu0")
        await one.end()
        assert one.asked == ["/ready ", "/ready Bearer s3cret"]

    run(scene, tmp_path)


def test_a_log_is_read_on_and_begun_anew_with_a_new_process(tmp_path):
    async def scene(stage):
        log = stage / "gpu0.log"
        log.write_text("old\nCRASH\n")
        os.utime(log, (1, 1))
        port = free_port()
        one = await start(stage / "one", port=port)
        async with World(fleet(server("gpu0", port, log=str(log)))) as world:
            seen = await world.facts("gpu0", log=True, tail=1)
            assert (seen.diagnosis, seen.log_tail) == (None, ("CRASH",))
            with log.open("a") as file:
                file.write("READY\n")
            seen = await world.facts("gpu0", log=True)
            assert (seen.diagnosis.is_ready, seen.diagnosis.is_crashed, seen.diagnosis.lines) == (False, False, 1)
            with log.open("a") as file:
                file.write("CRASH\n")
            await one.end()
            seen = await world.facts("gpu0", log=True, tail=2)
            assert (seen.process, seen.diagnosis.is_crashed, seen.log_tail) == (None, True, ("READY", "CRASH"))
            one = await start(stage / "two", port=port)
            with log.open("a") as file:
                file.write("READY\n")
            seen = await world.facts("gpu0", log=True)
            assert (seen.diagnosis.is_crashed, seen.diagnosis.lines) == (False, 1)
            log.write_text("READY\nREADY\n")
            assert (await world.facts("gpu0", log=True)).diagnosis.lines == 2
            log.unlink()
            log.write_text("READY\n")
            assert (await world.facts("gpu0", log=True)).diagnosis.lines == 1
            log.unlink()
            assert (await world.facts("gpu0", log=True)).diagnosis is None
        await one.end()

    run(scene, tmp_path)


def test_a_log_that_grew_by_megabytes_is_read_to_its_end_in_one_look(tmp_path):
    async def scene(stage):
        log = stage / "gpu0.log"
        log.write_text("first\n")
        async with World(fleet(server("gpu0", free_port(), log=str(log)))) as world:
            assert (await world.facts("gpu0", log=True)).diagnosis.lines == 1
            log.write_text("first\n" + "0123456789abcde\n" * 100_000)
            assert (await world.facts("gpu0", log=True)).diagnosis.lines == 100_001
            with log.open("a") as file:
                file.write("0123456789abcde\n" * 1_000_000)
            assert 1 < (await world.facts("gpu0", log=True)).diagnosis.lines <= 16384

    run(scene, tmp_path)


def test_gpus_come_with_their_processes_and_only_the_servers_own(tmp_path):
    async def scene(stage):
        smi = stage / "smi"
        smi.write_text(
            """#!/bin/sh
case $1 in
  *clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;;
  --query-gpu*) echo '0, GPU-a, H200, 9, 100, 50, 60, 70.5, 0x0000000000000040'
                echo '1, GPU-b, H200, 1, 100, [N/A], 30, 7, 0x0000000000000001';;
  *) echo '415, GPU-a, 9284, python3';;
esac
"""
        )
        smi.chmod(0o755)
        servers = [server("gpu0", 30000, gpus=(0,)), server("gpu1", 30001, gpus=(1,)), server("both", 30002)]
        async with World(fleet(*servers, hosts=[Host("h1", gpu_query=(str(smi),))])) as world:
            for _look in range(2):
                seen = (await world.looks(gpu=True))[-1].servers
                assert [[gpu.index for gpu in one.gpus] for one in seen.values()] == [[0], [1], [0, 1]]
                (gpu,) = seen["gpu0"].gpus
                assert (gpu.memory_used_mib, gpu.power_w, gpu.clock_limits) == (9, 70.5, ("hw_thermal_slowdown",))
                assert [(use.pid, use.name, use.memory_mib) for use in gpu.uses] == [(415, "python3", 9284)]
                assert (seen["gpu1"].gpus[0].utilization_percent, seen["gpu1"].gpus[0].clock_limits) == (None, ())

    run(scene, tmp_path)


def test_the_kernels_words_come_with_the_gpus_each_to_the_server_on_it_also_when_the_query_fails(tmp_path):
    async def scene(_stage):
        smi, log, broken = tmp_path / "smi", tmp_path / "kernel.log", tmp_path / "broken"
        smi.write_text(
            f"""#!/bin/sh
test -e {broken} && {{ echo 'Unable to determine the device handle for GPU1: Unknown Error'; exit 15; }}
case $1 in
  --query-gpu*) echo '0, GPU-a, H200, 9, 100, 50, 60, 70.5, 00000000:3B:00.0, 0x0'
                echo '1, GPU-b, H200, 1, 100, 50, 30, 7, 00000000:DB:00.0, 0x0';;
esac
"""
        )
        smi.chmod(0o755)
        hosts = [Host("h1", gpu_query=(str(smi),), kernel_log=("cat", str(log)))]
        servers = [server("gpu0", 30000, gpus=(0,)), server("gpu1", 30001, gpus=(1,))]
        async with World(fleet(*servers, hosts=hosts)) as world:
            log.write_text("")
            seen = (await world.looks(gpu=True))[-1].servers
            assert [one.faults for one in seen.values()] == [(), ()]
            now = time.monotonic()
            log.write_text(f"[{now - 120:.6f}] NVRM: Xid (PCI:0000:db:00): 79, pid=5, name=x, GPU has fallen off.\n")
            broken.touch()
            seen = (await world.looks(gpu=True))[-1].servers
            assert [one.gpus for one in seen.values()] == [(), ()]
            assert next(one.faults for one in seen.values()) == ()
            (fault,) = seen["gpu1"].faults
            assert (fault.code, fault.gpu, fault.pid) == (79, 1, 5)
            assert 119 < (NOON - fault.at).total_seconds() < 140
            seen = (await world.looks())[-1].servers
            assert [one.faults for one in seen.values()] == [None, None]

    run(scene, tmp_path)


def test_a_kernel_log_that_can_not_be_read_is_not_known(tmp_path):
    async def scene(_stage):
        hosts = [Host("h1", gpu_query=("false",), kernel_log=("false",))]
        async with World(fleet(server("gpu0", 30000, gpus=(0,)), hosts=hosts)) as world:
            assert (await world.looks(gpu=True))[-1].servers["gpu0"].faults is None

    run(scene, tmp_path)


def test_the_caches_of_kernels_are_looked_at_only_when_they_are_needed_and_where_the_servers_keep_them(tmp_path):
    async def scene(_stage):
        (tmp_path / "warm" / "abc").mkdir(parents=True)
        (tmp_path / "warm" / "abc" / "k.cubin").touch()
        (tmp_path / "home" / ".triton" / "cache").mkdir(parents=True)
        one, other, boxed = (server(f"gpu{n}", 30000 + n) for n in range(3))
        one = replace(one, launch=replace(one.launch, env=(("TRITON_CACHE_DIR", str(tmp_path / "warm")),)))
        other = replace(other, launch=replace(other.launch, env=(("HOME", str(tmp_path / "home")), ("KEY", "s3cret"))))
        boxed = replace(boxed, launcher="docker")
        async with World(fleet(one, other, boxed)) as world:
            seen = (await world.looks(caches=True))[-1].servers
            ((cache, warm),) = seen["gpu0"].caches.items()
            assert (cache.name, warm.entries, warm.is_there) == ("triton", 1, True)
            assert warm.newest is not None
            assert [(it.entries, it.newest, it.is_there) for it in seen["gpu1"].caches.values()] == [(0, None, True)]
            assert seen["gpu2"].caches is None
            remote = replace(one, address="10.0.0.7")
            looks = [ServerLook(it, FakeEngine(), Memory(FakeEngine(), it), Needs(), world.fleet) for it in
                     (one, other, replace(one, name="twin"), boxed, remote)]  # fmt: skip
            folders = cache_folders(world.fleet.hosts[0], looks)
            assert [(folder.env, len(whose)) for folder, whose in folders] == [
                ((("TRITON_CACHE_DIR", str(tmp_path / "warm")),), 2),
                ((("HOME", str(tmp_path / "home")),), 1),
            ]
            assert [one.caches for one in (await world.looks())[-1].servers.values()] == [None, None, None]

    run(scene, tmp_path)


class Hands:
    def __init__(self, answer) -> None:
        self.answer = answer

    async def look(self, job):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_reader_that_fails_is_no_silence_but_an_error_of_that_look(tmp_path):
    async def scene(stage):
        one = await start(stage)
        one.answers(ready={"status": 200, "body": ""}, metrics={"status": 200, "body": '{"no": "such field"}'})
        async with World(fleet(server("gpu0", one.port))) as world:
            with pytest.raises(TypeError, match="no"):
                await world.facts("gpu0", load=True)
            assert (await world.facts("gpu0")).instant.status == 200
        await one.end()

    run(scene, tmp_path)


def test_it_works_on_the_loop_that_the_bot_runs_on(tmp_path):
    async def scene(stage):
        one = await start(stage)
        async with World(fleet(server("gpu0", one.port))) as world:
            world.transports["h1"] = Plain()
            facts = await world.facts("gpu0", health=True, load=True)
        await one.end()
        assert (facts.process.pid, facts.health.status) == (one.process.pid, 200)

    uvloop.run(scene(tmp_path))


def test_a_host_that_is_lost_after_it_settled_keeps_what_it_told(tmp_path):
    async def scene(stage):
        smi = stage / "smi"
        smi.write_text("#!/bin/sh\nexec sleep 60\n")
        smi.chmod(0o755)
        one = await start(stage)
        async with World(
            fleet(server("gpu0", one.port), hosts=[Host("h1", gpu_query=(str(smi),))], timeout=1)
        ) as world:
            world.transports["h1"] = spoiled = Spoiled()
            async for sight in world.prober.look(world.fleet.servers, needs=Needs(gpu=True)):
                if sight.is_settled and not sight.is_complete and len(spoiled.opened) == 1:
                    await asyncio.sleep(1.2)
                    kill(spoiled)
            facts = sight.servers["gpu0"]
        await one.end()
        assert (facts.unreachable, facts.instant.status, facts.process.pid) == (None, 200, one.process.pid)

    run(scene, tmp_path)


def test_jobs_are_looked_at_beside_the_servers(tmp_path):
    async def scene(_stage):
        job = Job("datagen", "h1", ("make-data",))
        seen = []
        told = JobFacts("datagen", World(fleet()).clock.now(), JobState.RUNNING, 3, 9)
        for hands in (Hands(told), Hands(FleetError("tmux is gone")), None):
            async with World(fleet(), jobs=hands) as world:
                seen.append((await world.looks(jobs=(job,)))[-1].jobs["datagen"])
        assert seen[0] == told
        assert [(one.state, one.why) for one in seen[1:]] == [
            (JobState.UNKNOWN, "tmux is gone"),
            (JobState.UNKNOWN, "nobody looks at jobs here"),
        ]

    run(scene, tmp_path)


def commands(stage: Path, *names: str) -> Local:
    """This machine as if only these commands were installed."""
    folder = stage / "bin"
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name))
    return Local({"PATH": str(folder), "HOME": str(stage)})


BASICS = ("sh", "cat", "getconf", "grep", "ls", "od", "tr", "stat", "readlink", "head", "tail", "date", "true")


def test_without_python_the_host_is_asked_with_curl_and_sh(tmp_path):
    async def scene(stage):
        log = stage / "gpu 0.log"
        log.write_text("x\nREADY\n")
        one = await start(stage / "one", "--api-key", 'k"\\ey')
        gone = server("gpu1", free_port())
        async with World(fleet(server("gpu0", one.port, log="~/gpu 0.log"), gone)) as world:
            world.transports["h1"] = commands(stage, "curl", *BASICS)
            await world.looks()
            one.answers(model_info={"status": 200, "body": ""}, metrics={"status": 200, "body": '{"running": 2}'})
            seen = (await world.looks(load=True, log=True, tail=1, gpu=True))[-1].servers
        await one.end()
        gpu0, gpu1 = seen["gpu0"], seen["gpu1"]
        assert gpu0.process.identity == gpu0.port_owner.identity
        assert gpu0.process.pid == one.process.pid
        assert gpu0.process.argv[3:6] == ("fake-engine", "--port", str(one.port))
        assert (gpu0.process.parent, gpu0.process.directory) == (os.getpid(), str(Path.cwd()))
        assert timedelta() <= gpu0.process.age < timedelta(seconds=60)
        assert (gpu0.instant.status, gpu0.load.running) == (200, 2)
        assert (gpu0.diagnosis.lines, gpu0.log_tail) == (2, ("READY",))
        assert '/metrics Bearer k"\\ey' in one.asked
        assert (gpu1.process, gpu1.instant.outcome, gpu1.gpus) == (None, Outcome.REFUSED, ())

    run(scene, tmp_path)


def test_without_python_foreign_processes_and_records_are_seen_too(tmp_path):
    async def scene(stage):
        one = await start(stage / "one", argv0="nginx-or-so")
        sleeper = await asyncio.create_subprocess_exec("sleep", "60")
        for name, record in (("gpu0", {}), ("gpu1", {"pid": sleeper.pid, "started": started(sleeper.pid)})):
            (stage / "state" / name).mkdir(parents=True)
            (stage / "state" / name / "start.json").write_text(json.dumps(record))
        (stage / "state" / "gpu0" / "exit").write_text("3")
        hosts = [Host("h1", state_dir="~/state")]
        async with World(fleet(server("gpu0", one.port), server("gpu1", free_port()), hosts=hosts)) as world:
            world.transports["h1"] = commands(stage, "curl", *BASICS)
            seen = (await world.looks())[-1].servers
        await one.end()
        sleeper.kill()
        await sleeper.wait()
        gpu0, gpu1 = seen["gpu0"], seen["gpu1"]
        assert (gpu0.process, gpu0.exit_status) == (None, 3)
        assert (gpu0.port_owner.pid, gpu0.port_owner.argv[3]) == (one.process.pid, "nginx-or-so")
        assert gpu1.process.argv == ("sleep", "60")

    run(scene, tmp_path)


def test_without_curl_bash_asks(tmp_path):
    async def scene(stage):
        one = await start(stage / "one")
        async with served(silent) as deaf:
            servers = [server("gpu0", one.port), server("gpu1", free_port()), server("gpu2", deaf)]
            async with World(fleet(*servers, timeout=2)) as world:
                world.transports["h1"] = commands(stage, "bash", *BASICS)
                seen = (await world.looks(health=False))[-1].servers
        await one.end()
        assert [(facts.instant.outcome, facts.instant.status) for facts in seen.values()] == [
            (Outcome.ANSWERED, 200),
            (Outcome.REFUSED, None),
            (Outcome.TIMED_OUT, None),
        ]

    run(scene, tmp_path)


def test_where_nothing_can_be_asked_it_is_said_and_nothing_is_guessed(tmp_path):
    async def scene(stage):
        one = await start(stage / "one")
        async with World(fleet(server("gpu0", one.port))) as world:
            world.transports["h1"] = commands(stage, "true")
            facts = await world.facts("gpu0")
        await one.end()
        assert (facts.process, facts.sees_processes, facts.instant.outcome) == (None, False, Outcome.BROKEN)
        assert facts.instant.why == "the host has no python3, curl or bash to ask with"
        assert judge(facts, world.clock.now()).readiness not in (Readiness.DOWN, Readiness.CRASHED)

    run(scene, tmp_path)


def test_a_foreign_address_is_asked_from_here_and_its_processes_are_nobodys_guess(tmp_path):
    async def scene(stage):
        one = await start(stage)
        servers = [server("gpu0", one.port, address="::ffff:127.0.0.1"), server("gpu1", 9, address="::ffff:127.0.0.1")]
        async with World(fleet(*servers)) as world:
            seen = (await world.looks())[-1].servers.values()
            verdicts = [judge(facts, world.clock.now()).readiness for facts in seen]
        await one.end()
        assert [(facts.process, facts.sees_processes, facts.is_pending) for facts in seen] == [(None, False, False)] * 2
        assert verdicts == [Readiness.READY, Readiness.UNREACHABLE]

    run(scene, tmp_path)


def test_a_changed_fleet_lets_go_of_hosts_that_are_gone(tmp_path):
    async def scene(stage):
        one = await start(stage)
        async with World(fleet(server("gpu0", one.port))) as world:
            world.transports["h1"] = spoiled = Spoiled()
            await world.facts("gpu0")
            world.fleet = replace(world.fleet, hosts=(Host("h1", gpu_query=("other-smi",)),))
            assert (await world.facts("gpu0")).process.pid == one.process.pid
            assert len(spoiled.opened) == 2
            await until(lambda: spoiled.opened[0]._child is None)
        await one.end()

    run(scene, tmp_path)
