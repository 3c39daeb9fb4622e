from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from datetime import timedelta
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.facts import Outcome
from bot.runtime.probing import gpus
from bot.runtime.probing.line import ARGV, Line, NoPython
from bot.runtime.probing.scout.connection import Connection
from bot.runtime.probing.scout.files import read_on
from bot.runtime.probing.scout.folders import MOST, place_of, walked
from bot.runtime.probing.scout.kernel import MOST_LINES, KernelLog
from bot.runtime.probing.scout.processes import survey
from bot.runtime.probing.scout.sockets import from_kernel, from_table, listening, readable
from bot.runtime.probing.wire import (
    AskKernel,
    Begun,
    Chunk,
    Counted,
    Folder,
    Follow,
    Get,
    Got,
    GpusSeen,
    KernelLines,
    Processes,
    Request,
    Tail,
    Tailed,
    Watch,
)
from bot.transports._local import Local
from tests.runtime.probing.stage import (
    Spoiled,
    answering,
    asked,
    free_port,
    lined,
    ok,
    served,
    silent,
    start,
    until,
)

SCOUT = [one for one in resources.files("bot.runtime.probing.scout").iterdir() if one.name.endswith(".py")]


def get(port: int, *paths: str, limit: float = 5, body: int = 1000, token: str | None = None) -> Get:
    return Get("127.0.0.1", port, paths or ("/",), timedelta(seconds=limit), body, token)


def gots(items) -> dict[int, Got]:
    return {one.key: one for one in items if isinstance(one, Got)}


@pytest.mark.parametrize("module", SCOUT, ids=lambda one: one.name)
def test_the_scout_is_python_3_6_and_needs_nothing_installed(module):
    tree = ast.parse(module.read_text("utf-8"), feature_version=(3, 6))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {name for name in imported if name.startswith("bot.runtime.probing.scout.")}
    assert imported - own <= sys.stdlib_module_names
    assert "__future__" not in imported
    newer = {"removeprefix", "removesuffix", "capture_output", "perf_counter_ns", "monotonic_ns"}
    assert not newer & {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("module", SCOUT, ids=lambda one: one.name)
def test_annotations_outside_of_functions_are_text_so_that_3_6_does_not_evaluate_them(module):
    tree = ast.parse(module.read_text("utf-8"))
    notes = [node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation]
    notes += [node.returns for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns]
    assert not [ast.unparse(note) for note in notes if isinstance(note, (ast.Subscript, ast.BinOp))]


def test_each_answer_comes_when_it_is_ready():
    async def scene():
        slow = answering(ok(b"slow"), delay=0.3)
        async with served(slow) as one, served(answering(ok(b"quick"))) as two, lined() as line:
            items = []
            begun = time.monotonic()
            await line.ask(
                Request((get(one), get(two), get(free_port()))),
                lambda item: items.append((time.monotonic() - begun, item)),
            )
        found = [(item.key, item.outcome, item.body, when < 0.25) for when, item in items if isinstance(item, Got)]
        assert sorted(found[:2]) == [(1, Outcome.ANSWERED, b"quick", True), (2, Outcome.REFUSED, b"", True)]
        assert found[2] == (0, Outcome.ANSWERED, b"slow", False)

    asyncio.run(scene())


def test_a_port_that_accepts_and_never_answers_times_out_and_others_do_not_wait():
    async def scene():
        async with served(silent) as deaf, lined() as line:
            begun = time.monotonic()
            found = gots(await asked(line, Request((get(deaf, limit=0.2), get(deaf, limit=0.4)))))
            assert 0.35 < time.monotonic() - begun < 3
        assert [one.outcome for one in found.values()] == [Outcome.TIMED_OUT] * 2
        assert found[0].took >= timedelta(seconds=0.2)

    asyncio.run(scene())


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"\x00" * 99,
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
    ],
)
def test_what_is_not_http_is_said_to_be_so(raw):
    async def scene():
        async with served(answering(raw, raw)) as port, lined() as line:
            return gots(await asked(line, Request((get(port),))))[0]

    got = asyncio.run(scene())
    assert (got.outcome, got.status) == (Outcome.BROKEN, None)
    assert got.why in ("the answer is not HTTP", "closed", "closed in the middle of an answer")


def test_a_body_in_the_middle_of_which_the_server_dies_is_broken():
    async def scene():
        async with served(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as port, lined() as line:
            return gots(await asked(line, Request((get(port),))))[0]

    got = asyncio.run(scene())
    assert (got.outcome, got.why) == (Outcome.BROKEN, "closed in the middle of an answer")


def test_a_huge_body_is_cut_and_not_read_to_its_end():
    async def endless(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async def scene():
        async with served(endless) as port, lined() as line:
            return gots(await asked(line, Request((get(port, body=100_000),))))[0]

    got = asyncio.run(scene())
    assert (got.outcome, got.status, len(got.body)) == (Outcome.ANSWERED, 200, 100_000)


def test_connections_are_kept_and_one_that_died_meanwhile_is_replaced():
    async def scene():
        opened = []

        async def twice(reader, writer):
            opened.append(1)
            await answering(ok(b"1"), ok(b"2"))(reader, writer)

        async with served(twice) as port, lined() as line:
            bodies = []
            for _look in range(4):
                bodies.append(gots(await asked(line, Request((get(port, body=9),))))[0].body)
                await asyncio.sleep(0.05)
            return bodies, len(opened)

    assert asyncio.run(scene()) == ([b"1", b"2", b"1", b"2"], 2)


def test_the_first_path_that_is_there_answers_and_the_key_is_shown():
    async def scene():
        seen = []
        async with served(answering(ok(b"", 404), ok(b"", 404), ok(b"here"), seen=seen)) as port, lined() as line:
            got = gots(await asked(line, Request((get(port, "/a", "/b", "/c", token="k3y"),))))[0]
            return got.path, got.status, got.body, [head.split()[1] for head in seen], seen[2]

    path, status, body, asked_for, head = asyncio.run(scene())
    assert (path, status, body, asked_for) == ("/c", 200, b"here", [b"/a", b"/b", b"/c"])
    assert b"\r\nAuthorization: Bearer k3y\r\n" in head


def test_processes_are_told_as_before_until_they_change(tmp_path):
    async def scene():
        one = await start(tmp_path)
        watch = Watch((one.port,), ("fake-engine",), (str(tmp_path / "gpu0"),), ("CUDA_VISIBLE_DEVICES",))
        async with lined() as line:
            first = [item for item in await asked(line, Request(watch=watch)) if isinstance(item, Processes)]
            second = [item for item in await asked(line, Request(watch=watch)) if isinstance(item, Processes)]
            await one.end()
            third = [item for item in await asked(line, Request(watch=watch)) if isinstance(item, Processes)]
        return one, first, second, third

    one, first, second, third = asyncio.run(scene())
    (found,) = [row for row in first[0].report.processes if row.process.pid == one.process.pid]
    assert found.process.argv[3:6] == ("fake-engine", "--port", str(one.port))
    assert (found.process.parent, found.process.directory, found.uid) == (os.getpid(), str(Path.cwd()), os.getuid())
    (listener,) = first[0].report.listeners
    assert (listener.address, listener.port, listener.holder) == ("127.0.0.1", one.port, one.process.pid)
    # Other programs of this machine may come and go in between.
    assert second[0] == Processes(is_final=False, report=None)
    assert second[1].is_final
    assert third[-1].report.listeners == ()
    assert one.process.pid not in [row.process.pid for row in third[-1].report.processes]


def test_of_the_environment_only_what_is_allowed_leaves_the_host():
    async def scene():
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "2,3", "HF_TOKEN": "hf_secret"}
        sleeper = await asyncio.create_subprocess_exec("sleep", "61.25", env=env)
        async with lined() as line:
            items = await asked(line, Request(watch=Watch((), ("61.25",), (), ("CUDA_VISIBLE_DEVICES",))))
        sleeper.kill()
        await sleeper.wait()
        return next(one for one in items[-1].report.processes if one.process.pid == sleeper.pid)

    assert asyncio.run(scene()).env == {"CUDA_VISIBLE_DEVICES": "2,3"}


def follow(path: Path, chunk: Chunk | None = None) -> Request:
    at = Follow(str(path)) if chunk is None else Follow(str(path), chunk.end, chunk.inode, chunk.seam)
    return Request(follows=(at,))


def test_a_log_is_read_from_its_end_then_on_and_anew_when_it_is_another():
    async def scene(tmp_path: Path):
        log = tmp_path / "log"
        log.write_bytes(b"".join(b"line %06d\n" % number for number in range(40_000)))
        async with lined() as line:

            async def read(chunk: Chunk | None = None) -> Chunk:
                (chunk,) = [one for one in await asked(line, follow(log, chunk)) if isinstance(one, Chunk)]
                return chunk

            first = await read()
            assert (first.is_reset, first.has_more, first.end) == (True, False, 480_000)
            assert first.data.startswith(b"line ")
            assert 256 * 1024 - 12 <= len(first.data) <= 256 * 1024
            with log.open("ab") as file:
                file.write("näw\n".encode())
            second = await read(first)
            assert (second.is_reset, second.data, second.start) == (False, "näw\n".encode(), first.end)
            assert (await read(second)).data == b""
            log.write_bytes(b"truncated\n")
            third = await read(second)
            assert (third.is_reset, third.data) == (True, b"truncated\n")
            log.write_bytes(b"truncated, and has grown past it\n")
            fourth = await read(third)
            assert (fourth.is_reset, fourth.data) == (True, b"truncated, and has grown past it\n")
            log.rename(tmp_path / "log.1")
            log.write_bytes(b"truncated, and has grown past it\nrotated\n")
            assert (await read(fourth)).is_reset
            log.unlink()
            assert (await read(fourth)).why == "No such file or directory"
            log.mkdir()
            assert (await read(fourth)).why == "Is a directory"

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scene(Path(folder)))


@given(st.lists(st.tuples(st.sampled_from(["append", "truncate"]), st.binary(max_size=40)), max_size=8))
def test_whatever_is_written_reading_on_gives_what_stands_there(acts):
    with tempfile.TemporaryFile() as file:
        offset, inode, seam, read = None, 0, "", b""
        for act, data in acts:
            if act == "truncate":
                file.truncate(0)
            os.lseek(file.fileno(), 0, os.SEEK_END)
            os.write(file.fileno(), data)
            found = read_on(file.fileno(), ["", offset, inode, seam, 1 << 16, 1 << 20], 1 << 16, 1 << 20)
            read = (b"" if found["reset"] else read) + found["data"].encode("latin-1")
            offset, inode, seam = found["end"], found["inode"], found["seam"]
            whole = os.pread(file.fileno(), 1 << 16, 0)
            # A file that was cut and has grown again over the very same bytes looks as if it had never been cut.
            assert len(read) >= len(whole) or read == whole
            assert read.endswith(whole[-32:])


def test_the_tail_of_a_log_says_whether_it_is_cut(tmp_path):
    (tmp_path / "log").write_text("one\ntwo\n")
    request = Request(tails=(Tail(str(tmp_path / "log"), 5), Tail(str(tmp_path / "log"), 50), Tail("/nowhere", 5)))

    async def scene():
        async with lined() as line:
            return [one for one in await asked(line, request) if isinstance(one, Tailed)]

    assert asyncio.run(scene()) == [
        Tailed(0, b"\ntwo\n", is_cut=True),
        Tailed(1, b"one\ntwo\n", is_cut=False),
        Tailed(2, b"", is_cut=False, why="No such file or directory"),
    ]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("sleep 60", "no answer in time"),
        ("echo NVIDIA-SMI has failed; exit 9", "NVIDIA-SMI has failed"),
        ("exit 3", "exit status 3"),
        ("yes", "exit status -9"),
    ],
)
def test_a_gpu_query_that_fails_says_why_and_is_ended(tmp_path, script, why):
    smi = tmp_path / "smi"
    smi.write_text(f"#!/bin/sh\n{script}\n")
    smi.chmod(0o755)

    async def scene():
        question = gpus.question((str(smi),))
        async with lined() as line:
            limit = timedelta(seconds=0.5)
            return await asked(
                line, Request(gpu=type(question)(question.argv, question.cards[:1], question.uses, limit))
            )

    (seen,) = [one for one in asyncio.run(scene()) if isinstance(one, GpusSeen)]
    assert (seen.cards, seen.why[:20]) == ("", why[:20]) or (script == "yes" and seen.why)


def test_the_scout_ends_when_its_stdin_closes_and_takes_its_children_along(tmp_path):
    smi = tmp_path / "smi"
    smi.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    smi.chmod(0o755)

    async def scene():
        transport = Spoiled()
        line = await Line.open(transport, "h1")
        asking = asyncio.create_task(line.ask(Request(gpu=gpus.question((str(smi),))), lambda _item: None))
        noted = tmp_path / "pid"
        await until(lambda: noted.exists() and bool(noted.read_text().strip()))
        child = transport.opened[0]._child
        child.write_eof()
        await child.done.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await line.close()
        await until(lambda: not Path(f"/proc/{noted.read_text().strip()}").exists())

    asyncio.run(scene())


def test_what_a_login_prints_before_is_passed_over():
    async def scene():
        async with lined(Spoiled(opens=("sh", "-c", 'echo "Welcome to h1!"; exec "$@"', "sh", *ARGV))) as line:
            return len(await asked(line, Request()))

    assert asyncio.run(scene()) == 1


def test_where_python_is_missing_or_too_old_it_is_said():
    async def scene(*argv):
        with pytest.raises(NoPython) as caught:
            await Line.open(Spoiled(opens=argv), "h1")
        return caught.value.why

    assert "python3-that-is-missing" in asyncio.run(scene("python3-that-is-missing"))
    assert (
        asyncio.run(scene("sh", "-c", "echo 'SyntaxError: invalid syntax' >&2; exit 1"))
        == "SyntaxError: invalid syntax"
    )
    assert asyncio.run(scene("sh", "-c", "yes")) == "too much is printed at login"


def answer(status: int, body: bytes, sizes: list[int], *, is_chunked: bool) -> bytes:
    if not is_chunked:
        return b"HTTP/1.1 %d OK\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)
    pieces, rest = [], body
    for size in sizes:
        piece, rest = rest[:size], rest[size:]
        if piece:
            pieces.append(b"%x;x=y\r\n%s\r\n" % (len(piece), piece))
    if rest:
        pieces.append(b"%X\r\n%s\r\n" % (len(rest), rest))
    return b"HTTP/1.1 %d OK\r\nTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % (status, b"".join(pieces))


class Socketless:
    def fileno(self):
        return 0


@given(
    st.sampled_from([200, 404, 503]),
    st.binary(max_size=200),
    st.lists(st.integers(1, 50), max_size=5),
    st.booleans(),
    st.lists(st.integers(1, 60), max_size=20),
)
def test_an_answer_is_the_same_however_it_is_cut(status, body, sizes, is_chunked, cuts):
    connection = Connection(Socketless())
    rest = answer(status, body, sizes, is_chunked=is_chunked)
    is_whole = False
    for cut in [*cuts, len(rest)]:
        if rest and not is_whole:
            is_whole = connection.feed(rest[:cut], 1000)
            rest = rest[cut:]
    assert is_whole
    assert (connection.status, b"".join(connection.pieces)) == (status, body)


@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\n"])
    )
)
def test_foreign_bytes_are_no_http_and_nothing_worse(pieces):
    connection = Connection(Socketless())
    try:
        for piece in pieces:
            if connection.feed(piece, 100):
                break
    except (ValueError, IndexError):
        return
    assert connection.got <= 100 + 60


@pytest.mark.parametrize(
    ("place", "family", "address"),
    [
        (b"0100007F", 2, "127.0.0.1"),
        (b"00000000", 2, "0.0.0.0"),
        (b"00000000000000000000000000000000", 10, "::"),
        (b"00000000000000000000000001000000", 10, "::1"),
        (b"0000000000000000FFFF00000100007F", 10, "127.0.0.1"),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the samples were taken on a little-endian machine")
def test_addresses_of_the_socket_table_are_read(place, family, address):
    assert readable(place, family) == address


def test_the_kernel_and_its_table_tell_the_same_of_who_listens():
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("::", 0), family=socket.AF_INET6) as two:
        ports = {one.getsockname()[1], two.getsockname()[1]}
        table = from_table(ports)
        assert sorted((row[0], row[1]) for row in table) == sorted(
            [("127.0.0.1", one.getsockname()[1]), ("::", two.getsockname()[1])]
        )
        assert listening(ports) == table
        assert sorted(row for row in from_kernel() if row[1] in ports) == table


def test_an_answer_to_a_look_that_was_given_up_harms_nobody():
    async def scene():
        async with served(answering(ok(b"late"), delay=0.3)) as port, lined(Local()) as line:
            told = []
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await line.ask(Request((get(port),)), told.append)
            await asyncio.sleep(0.4)
            return line.is_alive, await asked(line, Request()), gots(told)

    assert asyncio.run(scene()) == (True, [Begun()], {})


def test_a_reader_that_fails_fails_its_own_question_only():
    def fail(_item):
        raise KeyError("a mistake of ours")

    async def scene():
        async with lined() as line:
            with pytest.raises(KeyError, match="a mistake of ours"):
                await line.ask(Request(), fail)
            return await asked(line, Request())

    assert asyncio.run(scene()) == [Begun()]


def test_who_lives_on_in_a_session_whose_leader_is_gone_is_told(tmp_path):
    """As vLLM's engine does when its API process alone is killed."""

    async def scene():
        leader = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            "sleep 60 >/dev/null 2>&1 & echo $!; wait",
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        child = int(await leader.stdout.readline())
        (tmp_path / "start.json").write_text(json.dumps({"pid": leader.pid, "started": 1}))
        asked = {"ports": [], "words": [], "records": [str(tmp_path)], "env": []}
        try:
            alive = survey(asked, [])[0]["left"]
            leader.kill()
            await leader.wait()
            found = survey(asked, [])[0]
        finally:
            os.kill(child, signal.SIGKILL)
        return child, alive, found["left"], [row[0] for row in found["processes"]]

    child, alive, left, told = asyncio.run(scene())
    assert (alive, left, told) == ({}, {str(tmp_path): [child]}, [child])


# --- caches of kernels


def counted(*folders: Folder) -> list[Counted]:
    async def scene():
        async with lined() as line:
            return [one for one in await asked(line, Request(folders=folders)) if isinstance(one, Counted)]

    return asyncio.run(scene())


def test_the_files_of_a_folder_are_counted_with_the_newest_and_without_what_stands_beside_them(tmp_path):
    for name in ("abc/k.cubin", "abc/deep/er/k.json", "def/run.log", "locks/x.lock"):
        path = tmp_path / "cache" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    os.utime(tmp_path / "cache/abc/k.cubin", (time.time() - 500,) * 2)
    os.utime(tmp_path / "cache/abc/deep/er/k.json", (time.time() - 100,) * 2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    full, empty, missing, no_folder = counted(
        *(Folder((str(tmp_path / name),)) for name in ("cache", "empty", "nowhere", "file"))
    )
    assert (full.files, full.is_there) == (2, True)
    assert full.quiet is not None
    assert 99 < full.quiet.total_seconds() < 110
    assert empty == Counted(1, 0, None, is_there=True)
    assert missing == Counted(2, 0, None, is_there=False)
    assert no_folder == Counted(3, 0, None, is_there=False)


def test_of_several_places_the_first_counts_whose_variables_are_set(tmp_path):
    env = {"A_CACHE": "/a", "HOME": "/home/ana", "EMPTY": " "}
    assert place_of(["$NO_SUCH/x", "$A_CACHE/x", "~/x"], env) == "/a/x"
    assert place_of(["$EMPTY/x", "~/x"], env) == "/home/ana/x"
    assert place_of(["$A_CACHE"], {"A_CACHE": "~/kernels", "HOME": "/home/ana"}) == "/home/ana/kernels"
    assert place_of(["$NO_SUCH/x"], env) is None
    assert place_of(["/tmp/torchinductor_{user}"], env) == f"/tmp/torchinductor_{Path('~').expanduser().owner()}"
    assert counted(Folder(("$NO_SUCH/x",))) == [Counted(0, None, None, is_there=False)]


def test_a_folder_that_may_not_be_read_is_not_known(tmp_path):
    with pytest.raises(OSError, match="too long"):
        walked("/" + "x" * 5000, time.monotonic() + 1)
    assert counted(Folder(("/" + "x" * 5000,))) == [Counted(0, None, None, is_there=False)]


def test_a_huge_folder_is_counted_as_far_as_a_bound_and_links_are_not_followed(tmp_path):
    for number in range(MOST + 200):
        (tmp_path / str(number)).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    files, newest = walked(str(tmp_path), time.monotonic() + 30)
    assert MOST - 2 <= files <= MOST
    assert newest is not None
    with pytest.raises(OSError, match="more than is looked at"):  # nothing seen in time is not nothing there
        walked(str(tmp_path), time.monotonic() - 1)


# --- the kernel's log

WORDS = ("NVRM: Xid",)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus."


def kernel_says(*commands: tuple[str, ...]) -> list[KernelLines]:
    async def scene():
        async with lined() as line:
            found = []
            for command in commands:
                request = Request(kernel=AskKernel(command, WORDS, timedelta(seconds=2)))
                found += [one for one in await asked(line, request) if isinstance(one, KernelLines)]
            return found

    return asyncio.run(scene())


def test_the_telling_lines_of_a_command_come_with_the_hosts_clocks(tmp_path):
    log = tmp_path / "log"
    log.write_text(f"[ 1.0] usb\n[ 2.0] {XID}\n" + "[ 3.0] noise\n" * 1000 + f"[ 4.0] {XID}")
    (told,) = kernel_says(("cat", str(log)))
    assert told.lines == (f"[ 2.0] {XID}", f"[ 4.0] {XID}")
    assert abs(told.up - time.monotonic()) < 30
    assert abs(told.epoch - time.time()) < 30


@pytest.mark.parametrize(
    "command", [("false",), ("/no/such/program",), ("sh", "-c", "sleep 60"), ("sh", "-c", "exit 1")], ids=" ".join
)
def test_a_log_that_can_not_be_read_is_not_known_and_is_not_asked_for_again_at_once(command):
    begun = time.monotonic()
    assert kernel_says(command, command) == [KernelLines(), KernelLines()]
    assert time.monotonic() - begun < 8


def test_a_command_that_prints_without_end_is_ended_and_says_nothing():
    assert kernel_says(("sh", "-c", f"yes '{XID}'")) == [KernelLines()]


def test_the_hosts_own_log_is_read_where_it_may_be_and_never_an_error():
    (told,) = kernel_says(())
    assert told.lines is None or all("NVRM: Xid" in line for line in told.lines)


def test_records_of_the_kernels_device_are_read_once_and_as_dmesg_prints_them(tmp_path):
    device = tmp_path / "kmsg"
    os.mkfifo(device)
    log = KernelLog([], device=str(device))
    log.fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(device, os.O_WRONLY)
    try:
        for stamp in (1_000_000, 2_500_000):
            os.write(writer, f"3,812,{stamp},-;{XID}\n SUBSYSTEM=pci\n".encode().ljust(8192, b" "))
        os.write(writer, b"6,813,3000000,-;usb 1-1: new device\n".ljust(8192, b" "))
        told = log.read([b"NVRM: Xid"], time.monotonic() + 1)
        assert told is not None
        assert told[0] == [f"[    1.000000] {XID}", f"[    2.500000] {XID}"]
        os.write(writer, b"nonsense NVRM: Xid".ljust(8192, b" "))
        again = log.read([b"NVRM: Xid"], time.monotonic() + 1)
        assert again is not None
        assert again[0] == told[0]
        for number in range(2 * MOST_LINES):
            log.keep(b"3,1,%d,-;%s" % (number, XID.encode()))
        assert len(log.lines) == MOST_LINES
    finally:
        os.close(writer)
        os.close(log.fd)


def test_without_the_device_the_journal_is_read_on_and_an_empty_one_is_taken_for_one_that_may_not_be_read(tmp_path):
    def program(name: str, script: str) -> None:
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\n{script}\n')
        (tmp_path / name).chmod(0o755)

    def read(log: KernelLog) -> list[str] | None:
        told = log.read([b"NVRM: Xid"], time.monotonic() + 5)
        return None if told is None else told[0]

    before = os.environ["PATH"]
    os.environ["PATH"] = f"{tmp_path}:{before}"
    try:
        program("journalctl", "exit 0")
        program("dmesg", f"echo '[ 1.0] {XID}'")
        log = KernelLog([], device="/nowhere")
        assert read(log) == [f"[ 1.0] {XID}"]
        program("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
        assert read(KernelLog([], device="/nowhere")) is None
        program("journalctl", f"echo '1800000000.1 h1 kernel: {XID}'; echo '1800000001.1 h1 kernel: usb'")
        log = KernelLog([], device="/nowhere")
        assert read(log) == [f"1800000000.1 h1 kernel: {XID}"]
        program("journalctl", f"echo '1800000000.1 h1 kernel: {XID}'; echo '1800000009.1 h1 kernel: {XID}'")
        assert read(log) == [f"1800000000.1 h1 kernel: {XID}", f"1800000009.1 h1 kernel: {XID}"]
        program("journalctl", "exit 0")
        assert len(read(log) or ()) == 2
        calls = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("journalctl")]
        assert ["--since=@" in line for line in calls] == [False, False, False, True, True]
    finally:
        os.environ["PATH"] = before
