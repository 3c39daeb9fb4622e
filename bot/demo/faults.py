"""Breaks simulated servers on purpose, and mends them: what the demo's panel and the tests do.

``python -m bot.demo.faults kill 30003`` (hang, slow, heat, xid, cold, take-port, lurk, fail-next, mend). Servers are
found by their port in the simulated machine's directory, and only a process that is provably the one written down
there is ever signalled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bot.demo.engine.failures import FAILURES
from bot.demo.machine import Control, Entry, GpuTrouble, Machine, bus_of, process_started
from bot.demo.spawn import end, reap, spawn

HOT_PACE = 0.61
"""What is left of a hot GPU's speed: 412 tokens a second of 671."""
CAUSES = tuple(FAILURES)
XIDS = {
    "79": "GPU has fallen off the bus.",
    "94": "Contained: SM (0x1). RST: No, D-RST: No",
    "31": "Ch 00000018, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2a_bc000000",
}
"""Errors of a GPU as the driver writes them behind number and process."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that may be done to a server: its name, what a button says, and the arguments it takes, if any."""

    name: str
    label: str
    choices: tuple[str, ...] = ()


FAULTS = (
    Fault("kill", "Kill it (SIGKILL)"),
    Fault("hang", "Let it hang"),
    Fault("slow", "Slow it down", ("0.6", "0.4", "0.8")),
    Fault("heat", "Overheat its GPU"),
    Fault("xid", "Break its GPU (Xid)", ("79", "94", "31")),
    Fault("cold", "Throw compiled kernels away"),
    Fault("take-port", "Kill it and take its port"),
    Fault("lurk", "Take its port when it is next free"),
    Fault("fail-next", "Let its next start fail", CAUSES),
    Fault("mend", "Mend everything"),
)


class Faults:
    """The hand that breaks things, on one simulated machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def apply(self, name: str, port: int, choice: str = "") -> str:
        """Do a fault by its name; what was done, in words. ValueError for one that is not known."""
        if name == "kill":
            return f"killed {self.kill(port)}"
        if name == "hang":
            return self.hang(port)
        if name == "slow":
            return self.slow(port, _pace(choice))
        if name == "heat":
            return self.heat(port)
        if name == "xid":
            return self.xid(port, choice or "79")
        if name == "cold":
            self._machine.empty_kernels()
            return "compiled kernels are thrown away: the next start compiles"
        if name in ("take-port", "lurk"):
            return f"pid {self.take_port(port, lurk=name == 'lurk')} takes port {port}"
        if name == "fail-next":
            return self.fail_next(port, choice or "oom")
        if name == "mend":
            return self.mend(port)
        raise ValueError(f"no fault is called {name!r}")

    def kill(self, port: int) -> str:
        """SIGKILL to the server of that port."""
        entry = self._machine.server(port)
        if entry is None:
            return "nothing: no simulated server has that port"
        end(entry, signal.SIGKILL)
        return f"pid {entry.pid}"

    def hang(self, port: int) -> str:
        """Tokens stop, and what needs the scheduler is answered no more.

        With requests under way the server's watchdog ends it after ``--watchdog-timeout`` (300 s at speed 1).
        """
        self._machine.set_control(port, replace(self._machine.control(port), is_hung=True))
        return f"port {port} hangs"

    def slow(self, port: int, pace: float) -> str:
        """Decode at a fraction of the usual speed."""
        self._machine.set_control(port, replace(self._machine.control(port), slowdown=pace))
        return f"port {port} decodes at {pace:.0%} of its speed"

    def heat(self, port: int) -> str:
        """Let the server's GPUs throttle: slower, and the driver says why."""
        entry = self._machine.server(port)
        for gpu in entry.gpus if entry is not None else ():
            self._machine.set_trouble(gpu, GpuTrouble(is_hot=True, port=port))
        self.slow(port, HOT_PACE)
        return f"port {port}: thermal slowdown"

    def xid(self, port: int, code: str) -> str:
        """Let the kernel's log name an error of the server's GPU, which ends it; ValueError for one not known."""
        entry = self._machine.server(port)
        if code not in XIDS:
            raise ValueError(f"no Xid {code!r} is pretended: {', '.join(XIDS)}")
        if entry is None:
            return "nothing: no simulated server has that port"
        process = f"pid={entry.pid}, name=python3"
        self._machine.kernel_says(f"NVRM: Xid (PCI:{bus_of(entry.gpus[0])}): {code}, {process}, {XIDS[code]}")
        return f"Xid {code} on GPU {entry.gpus[0]}, killed {self.kill(port)}"

    def take_port(self, port: int, *, lurk: bool = False) -> int:
        """Let a foreign process have the port, now or as soon as it is free; its pid."""
        if not lurk:
            self.kill(port)
        pid = spawn(["-m", "bot.demo.faults", "stranger", str(port)], {"UPBOT_SIM_DIR": str(self._machine.root)})
        self._machine.register(Entry(pid, process_started(pid) or 0, "stranger", port))
        return pid

    def fail_next(self, port: int, cause: str) -> str:
        """Let the next start on that port die; ValueError for a cause that is not known."""
        if cause not in FAILURES:
            raise ValueError(f"no start fails of {cause!r}: {', '.join(CAUSES)}")
        self._machine.fail_next(port, cause)
        return f"the next start on port {port} fails: {cause}"

    def mend(self, port: int) -> str:
        """Take everything back that was done to a port, except deaths."""
        self._machine.set_control(port, Control())
        self._machine.fail_next(port, None)
        self._machine.mend_gpus(port)
        for stranger in self._machine.living("stranger"):
            if stranger.port == port:
                end(stranger, signal.SIGKILL)
                self._machine.forget(stranger.pid)
                reap(stranger.pid)
        return f"port {port} is mended"


def _pace(text: str) -> float:
    try:
        pace = float(text or "0.6")
    except ValueError as exc:
        raise ValueError(f"{text!r} is no fraction") from exc
    if not 0 < pace <= 1:
        raise ValueError(f"{text!r} is not between 0 and 1")
    return pace


async def be_a_stranger(port: int) -> None:
    """Hold a port as a foreign process would: answer everything with a page that is no engine's."""
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\nConnection: close\r\n\r\nsome page"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            writer.write(page)
            await writer.drain()
        writer.close()

    while True:
        try:
            server = await asyncio.start_server(serve, "127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        await server.serve_forever()


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """The command line; 2 for what is not known."""
    parser = argparse.ArgumentParser(prog="python -m bot.demo.faults", description="Break simulated servers.")
    parser.add_argument("fault", choices=[*(fault.name for fault in FAULTS), "stranger"])
    parser.add_argument("port", type=int)
    parser.add_argument("choice", nargs="?", default="", help="a fraction for slow, a cause for fail-next, an Xid")
    asked = parser.parse_args(argv)
    if asked.fault == "stranger":
        asyncio.run(be_a_stranger(asked.port))
        return 0
    try:
        done = Faults(Machine.of(env)).apply(asked.fault, asked.port, asked.choice)
    except ValueError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    sys.stdout.write(f"{done}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
