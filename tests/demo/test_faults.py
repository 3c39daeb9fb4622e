"""Breaking simulated servers and mending them."""

import asyncio
import signal
import time

import pytest

from bot.demo.faults import FAULTS, Faults, main
from bot.demo.machine import Control, GpuTrouble, Machine
from bot.demo.nvidia_smi import answer
from bot.engines._reading.kernel import Clocks, bus, read
from tests.demo.simulation import bench, get, until


def test_a_kill_meets_the_server_of_that_port_only(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one, other = await there.ready(gpu=0), await there.ready(gpu=1)
            said = Faults(there.machine).apply("kill", one.port)
            return said, one.process.pid, await one.ended(), (await get(other.port, "/health"))[0]

    said, pid, status, health = asyncio.run(story())
    assert (said, status, health) == (f"killed pid {pid}", -signal.SIGKILL, 200)


def test_a_port_is_taken_and_given_back(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready()
            faults = Faults(there.machine)
            try:
                faults.apply("take-port", one.port)
                await one.ended()
                await _answers(one.port, "some page")
                strangers = there.machine.living("stranger")
                second = await there.engine(one.port, gpu=1)
                status = await second.ended()
            finally:
                faults.mend(one.port)
            await until(lambda: not there.machine.living("stranger"))
            third = await there.engine(one.port, gpu=2)
            await third.says("Uvicorn running")
            return [stranger.port == one.port for stranger in strangers], status

    assert asyncio.run(story()) == ([True], 3)


async def _answers(port, words):
    for _ in range(200):
        if words in (await get(port, "/"))[1]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the port was not taken")


def test_one_that_lurks_takes_the_port_when_the_server_has_gone(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready()
            faults = Faults(there.machine)
            try:
                faults.apply("lurk", one.port)
                before = await get(one.port, "/model_info")
                one.process.terminate()
                await one.ended()
                await _answers(one.port, "some page")
            finally:
                faults.mend(one.port)
            return before[0]

    assert asyncio.run(story()) == 200


def test_an_xid_stands_in_the_kernels_log_with_the_address_that_the_query_gives_the_gpu(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready(gpu=5)
            said = Faults(there.machine).apply("xid", one.port, "94")
            return said, one.process.pid, await one.ended(), there.machine

    said, pid, status, machine = asyncio.run(story())
    assert (said, status) == (f"Xid 94 on GPU 5, killed pid {pid}", -signal.SIGKILL)
    (word,) = read(machine.kernel_log.read_text().splitlines(), Clocks(time.monotonic(), time.time()))
    assert (word.code, word.pid, word.age.total_seconds() < 60) == (94, pid, True)
    assert answer(["--query-gpu=pci.bus_id", "--format=csv,noheader"], machine, 8)[1].splitlines()[5] == (
        "00000000:57:00.0"
    )
    assert word.pci == bus("00000000:57:00.0")


def test_a_start_without_compiled_kernels_compiles_and_leaves_them_for_the_next(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            kernels = {"TRITON_CACHE_DIR": str(there.machine.kernels)}
            first = await there.ready(gpu=0, **kernels)
            Faults(there.machine).apply("cold", first.port)
            cold = await there.ready(gpu=1, instant=False, **kernels)
            warm = await there.ready(gpu=2, instant=False, **kernels)
            plain = await there.ready(gpu=3, instant=False)
            return ["FlashInfer autotune" in one.text() for one in (first, cold, warm, plain)]

    assert asyncio.run(story()) == [False, True, False, False]


def test_heat_slows_the_server_and_mending_takes_all_back(tmp_path):
    async def story():
        async with bench(tmp_path) as there:
            one = await there.ready(gpu=5)
            faults, machine = Faults(there.machine), there.machine
            faults.apply("heat", one.port)
            faults.apply("fail-next", one.port, "nccl")
            broken = machine.control(one.port), machine.trouble(5).is_hot
            faults.apply("kill", one.port)
            await one.ended()
            faults.apply("mend", one.port)
            return broken, (machine.control(one.port), machine.trouble(5), machine.take_failure(one.port))

    broken, mended = asyncio.run(story())
    assert broken == (Control(slowdown=0.61), True)
    assert mended == (Control(), GpuTrouble(), None)


def test_faults_add_up_until_they_are_mended(tmp_path):
    faults = Faults(Machine(tmp_path))
    faults.apply("slow", 1, "0.4")
    faults.apply("hang", 1)
    assert Machine(tmp_path).control(1) == Control(is_hung=True, slowdown=0.4)


@pytest.mark.parametrize(
    ("name", "choice"),
    [("explode", ""), ("slow", "fast"), ("slow", "0"), ("slow", "nan"), ("fail-next", "gremlins"), ("xid", "7")],
)
def test_what_is_not_known_is_refused(tmp_path, name, choice):
    with pytest.raises(ValueError, match=name if name == "explode" else choice):
        Faults(Machine(tmp_path)).apply(name, 30_000, choice)


def test_a_port_without_a_server_is_no_error(tmp_path):
    assert Faults(Machine(tmp_path)).apply("kill", 1) == "killed nothing: no simulated server has that port"


def test_the_command_line_does_the_same(tmp_path, capsys):
    env = {"UPBOT_SIM_DIR": str(tmp_path)}
    assert main(["slow", "30001", "0.5"], env) == 0
    assert main(["fail-next", "30001", "gremlins"], env) == 2
    assert capsys.readouterr().out == "port 30001 decodes at 50% of its speed\n"
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
