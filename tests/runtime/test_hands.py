from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.engine import WarmUp
from bot.domain.errors import HopError, StepFailed, TimedOut
from bot.domain.facts import Process
from bot.domain.flags import Flags
from bot.domain.fleet import Host, Launch, Server
from bot.ports import Completed, Hands, Launched
from bot.runtime.hands import FleetHands, has_generated, read_version
from bot.transports._local import Local
from tests.jumping import JumpingClock, run

GENERATED = b'{"text": " 4", "meta_info": {"completion_tokens": 1}}'
SECRET = 'k-"\\$(id)ü'


class Rack:
    """Hosts by name, each with its transport."""

    def __init__(self, **transports: Any) -> None:
        self.transports = transports
        self.find = {name: Host(name, state_dir=f"/state/{name}") for name in transports}.__getitem__

    def transport(self, host: Host) -> Any:
        return self.transports[host.name]


class NotingLauncher:
    """Notes what it was asked for."""

    name = "process"

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    async def launched(self, host, server, state_dir):
        return Launched()

    async def start(
        self, host: object, server: Server, argv: Sequence[str], env: Mapping[str, str], state_dir: str
    ) -> None:
        self.asked.append(("start", host, server.name, tuple(argv), dict(env), state_dir))

    async def adopt(self, host: object, server: Server, process: Process, state_dir: str) -> None:
        self.asked.append(("adopt", host, server.name, process.identity, state_dir))

    async def end(self, host: object, server: Server, process: Process, *, force: bool) -> None:
        self.asked.append(("end", host, server.name, process.identity, force))


class Saying:
    """A host whose commands all end as they were told, after some time; it notes what it was asked."""

    def __init__(self, *ends: Completed | Exception, takes: timedelta = timedelta(seconds=20)) -> None:
        self.ends = list(ends)
        self.takes = takes
        self.asked: list[tuple[str, ...]] = []

    async def run(self, argv, *, stdin=b"", timeout):
        self.asked.append(tuple(argv))
        await asyncio.sleep(self.takes.total_seconds())
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(end, Exception):
            raise end
        return end

    async def open(self, argv):
        raise NotImplementedError

    async def close(self):
        pass


ENGINE = SimpleNamespace(
    name="sglang",
    warm_up=WarmUp("/generate", '{"text": "2+2=ü\\n\\"", "sampling_params": {"max_new_tokens": 1}}'.encode()),
    version_argv=lambda server: (*server.launch.command[:1], "-c", "ask"),
)


def server(name: str = "gpu0", port: int = 1, **changes: Any) -> Server:
    values = {"launch": Launch(("python",)), "host": "h", "engine": "sglang", **changes}
    return Server(name=name, port=port, **values)


def hands_for(rack: Rack, launcher: NotingLauncher | None = None, **limits: timedelta) -> FleetHands:
    return FleetHands(
        rack, rack.find, {"process": launcher or NotingLauncher()}, {"sglang": ENGINE}, JumpingClock(), **limits
    )


def test_start_and_end_go_to_the_servers_launcher_on_its_host():
    rack, launcher = Rack(h="transport h", other="transport o"), NotingLauncher()
    hands: Hands = hands_for(rack, launcher)

    async def scenario() -> None:
        await hands.start(server(), ["a", "b"], {"X": "1"})
        await hands.end(server(host="other"), Process(5, 6), force=True)
        await hands.adopt(server(host="other"), Process(7, 8))

    asyncio.run(scenario())
    assert launcher.asked == [
        ("start", "transport h", "gpu0", ("a", "b"), {"X": "1"}, "/state/h"),
        ("end", "transport o", "gpu0", (5, 6), True),
        ("adopt", "transport o", "gpu0", (7, 8), "/state/other"),
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"host": "gone"}, "gpu0: there is no host gone any more"),
        ({"launcher": "docker"}, "gpu0: there is no launcher docker"),
        ({"engine": "tgi"}, "gpu0: there is no engine tgi"),
    ],
)
def test_what_is_configured_no_more_is_a_failed_step(changes, why):
    hands = hands_for(Rack(h=Saying(Completed(0))))
    odd = server(**changes)
    acts = [hands.warm_up(odd), hands.flags_known(odd)] if "engine" in changes else [hands.start(odd, ["a"], {})]
    for act in acts:
        with pytest.raises(StepFailed) as failed:
            asyncio.run(act)
        assert str(failed.value) == why


# Warm-up, against a real socket on this machine


@contextlib.asynccontextmanager
async def answering(
    status: str, body: bytes, *, after: float = 0, seen: list[bytes] | None = None
) -> AsyncIterator[int]:
    tasks: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            content = await reader.readexactly(int(lengths[0].partition(b":")[2]))
            if seen is not None:
                seen.extend((head, content))
            await asyncio.sleep(after)
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
            )
            await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for task in filter(None, tasks):
            task.cancel()
        await asyncio.gather(*filter(None, tasks))


def only(folder: Path, *tools: str) -> Local:
    """This machine with only these tools; proxies in the environment must not be asked."""
    for tool in tools:
        found = sys.executable if tool == "python3" else shutil.which(tool)  # not a shim that needs more tools
        assert found is not None
        (folder / tool).write_text(f'#!/bin/sh\nexec "{os.path.realpath(found)}" "$@"\n')
        (folder / tool).chmod(0o755)
    (folder / "sh").symlink_to("/bin/sh")
    return Local(
        {
            "PATH": str(folder),
            "HOME": str(folder),
            "http_proxy": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
        }
    )


@pytest.fixture(params=["curl", "python3"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Local:
    """A host that asks with curl, and one that asks with python3."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return only(tmp_path, request.param)


def warmed(
    host: Any, status: str, body: bytes, *, after: float = 0, seen: list[bytes] | None = None, **changes: Any
) -> float:
    async def scenario() -> float:
        async with answering(status, body, after=after, seen=seen) as port:
            hands = hands_for(Rack(h=host), warm_up_within=timedelta(seconds=1.5))
            return await hands.warm_up(server(port=port, **changes))

    return asyncio.run(scenario())


def test_a_warm_up_asks_for_tokens_from_the_host_itself_and_tells_how_long_it_took(host):
    seen: list[bytes] = []
    launch = Launch(("python",), Flags.of({"api-key": SECRET}))
    took = warmed(host, "200 OK", GENERATED, after=0.2, seen=seen, launch=launch, address="0.0.0.0")
    head, content = seen
    assert 0.2 <= took < 1.5
    assert head.startswith(b"POST /generate HTTP/1.1\r\n")
    assert b"content-type: application/json\r\n" in head.lower()
    assert json.loads(content) == json.loads(ENGINE.warm_up.body)
    (authorization,) = [line for line in head.split(b"\r\n") if line.startswith(b"Authorization")]
    assert authorization in (
        f"Authorization: Bearer {SECRET}".encode(),
        f"Authorization: Bearer {SECRET}".encode("latin-1"),
    )


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (
            "200 OK",
            b'{"text": "", "meta_info": {"completion_tokens": 0}}',
            'HTTP 200, {"text": "", "meta_info": {"completion_tokens": 0}}',
        ),
        ("200 OK", b"", "HTTP 200, an empty answer"),
        ("200 OK", b"<html>\n hello\x1b[1m", "HTTP 200, <html> hello[1m"),
        ("503 Busy", b'{"error": "draining"}', 'HTTP 503, {"error": "draining"}'),
        ("401 No", GENERATED, f"HTTP 401, {GENERATED.decode()}"),
        ("500 Oops", b"x" * 5000, "HTTP 500, " + "x" * 300),
    ],
)
def test_an_answer_without_tokens_is_a_failed_step(host, status, body, why):
    with pytest.raises(StepFailed) as failed:
        warmed(host, status, body)
    assert str(failed.value) == f"gpu0 generated nothing: {why}"


def test_a_server_that_never_answers_is_a_failed_step_in_time(host):
    with pytest.raises(StepFailed, match=r"^gpu0 generated nothing: .*time"):
        warmed(host, "200 OK", GENERATED, after=30)


def test_a_port_where_nobody_listens_is_a_failed_step(host):
    async def scenario() -> None:
        async with answering("200 OK", b"") as port:
            pass
        await hands_for(Rack(h=host)).warm_up(server(port=port))

    with pytest.raises(StepFailed, match=r"^gpu0 generated nothing: .*(refused|connect)"):
        asyncio.run(scenario())


def test_a_host_without_curl_and_python_says_so(tmp_path):
    with pytest.raises(StepFailed) as failed:
        warmed(only(tmp_path), "200 OK", GENERATED)
    assert str(failed.value) == "gpu0 generated nothing: neither curl nor python3 is there to ask with"


def test_a_transport_that_gives_up_is_a_failed_step_and_a_failed_hop_stays_one():
    with pytest.raises(StepFailed, match=r"^gpu0 generated nothing within 2 m$"):
        run(hands_for(Rack(h=Saying(TimedOut("sh did not end")))).warm_up(server()))
    with pytest.raises(HopError, match=r"^container 200 is stopped$"):
        run(hands_for(Rack(h=Saying(HopError("container 200", "is stopped")))).warm_up(server()))


@pytest.mark.parametrize(
    "output", [b"", b"\n", b"200 1.5", b"x\n200\n", b"x\n000 0.1\n", b"x\n200 nan?\n", b"\xff\n\xff \xff"]
)
def test_a_host_that_answers_nonsense_generated_nothing(output):
    with pytest.raises(StepFailed, match=r"^gpu0 generated nothing"):
        run(hands_for(Rack(h=Saying(Completed(0, output)))).warm_up(server()))


@pytest.mark.parametrize(
    ("body", "is_so"),
    [
        (GENERATED, True),
        (b'[{"text": "a", "meta_info": {"completion_tokens": 1}}]', True),
        (b'{"choices": [{"text": "a"}], "usage": {"completion_tokens": 4}}', True),
        (b'{"choices": [{"message": {"content": "a"}}]}', True),
        (b'{"text": "a", "meta_info": {"completion_tokens": 0}}', False),
        (b'{"text": ""}', False),
        (b'{"completion_tokens": "1"}', False),
        (b'{"error": "x"}', False),
        (b"[" * 100_000, False),
        (b"null", False),
    ],
)
def test_tokens_are_what_proves_that_something_was_generated(body, is_so):
    assert has_generated(body) is is_so


@given(
    st.binary()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["text", "content", "completion_tokens"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_answer_is_read(body):
    assert has_generated(body) in (True, False)


# Versions and flags

INSTALLED = Completed(0, b"0.5.13\n--port\n--mamba-scheduler-strategy\n")
KNOWN = ("0.5.13", frozenset({"--port", "--mamba-scheduler-strategy"}))


def test_eight_servers_of_one_host_ask_once_and_another_host_for_itself():
    one, other = Saying(INSTALLED), Saying(Completed(0, b"0.5.23\n"))
    hands = hands_for(Rack(h=one, o=other))

    async def scenario() -> list[tuple[str, frozenset[str]]]:
        eight = [server(f"gpu{number}") for number in range(8)]
        return await asyncio.gather(*map(hands.flags_known, [*eight, server("x", host="o")]))

    assert run(scenario()) == [KNOWN] * 8 + [("0.5.23", frozenset())]
    assert one.asked == other.asked == [("python", "-c", "ask")]


def test_after_ten_minutes_the_old_answer_is_given_at_once_and_the_next_one_is_new_and_a_failure_is_not_kept():
    host = Saying(
        Completed(1, b"", b"Traceback\nModuleNotFoundError: No module named 'sglang'\n"),
        INSTALLED,
        Completed(0, b"0.5.23\n"),
    )
    hands = hands_for(Rack(h=host))

    async def scenario() -> list[str]:
        with pytest.raises(StepFailed) as failed:
            await hands.flags_known(server())
        assert (
            str(failed.value)
            == "gpu0: the installed sglang can't be asked for its flags: ModuleNotFoundError: No module named 'sglang'"
        )
        versions = []
        for minutes in (0, 9, 2, 1, 24 * 60):
            await asyncio.sleep(minutes * 60)
            versions.append((await hands.flags_known(server()))[0])
        return versions

    assert run(scenario()) == ["0.5.13", "0.5.13", "0.5.13", "0.5.23", "0.5.23"]


def test_the_version_is_asked_in_the_directory_in_which_the_server_is_launched(tmp_path):
    place = tmp_path / "it's $(here)"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").write_text("#!/bin/sh\necho 9.9\necho --port\necho 'usage: --not-one x'\n")
    (place / "bin" / "python").chmod(0o755)
    hands = hands_for(Rack(h=Local()))
    asked = hands.flags_known(server(launch=Launch(("bin/python",), directory=str(place))))
    assert asyncio.run(asked) == ("9.9", frozenset({"--port"}))
    with pytest.raises(StepFailed, match=r"can't be asked for its flags: .*missing"):
        asyncio.run(hands.flags_known(server(launch=Launch(("bin/python",), directory=str(tmp_path / "missing")))))


@pytest.mark.parametrize("output", [b"", b"\n \n", b"--port\n0.5\n"])
def test_an_answer_without_a_version_is_a_failed_step(output):
    with pytest.raises(StepFailed, match="can't be asked for its flags: exit status 0"):
        run(hands_for(Rack(h=Saying(Completed(0, output)))).flags_known(server()))


@given(st.binary())
def test_any_version_output_is_read(output):
    version, known = read_version(output)
    assert len(version) <= 80
    assert all(flag.startswith("--") and " " not in flag for flag in known)
