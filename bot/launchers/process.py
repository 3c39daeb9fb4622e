"""The launcher ``process``: a server is a detached process on its host, beside a keeper that notes how it ended.

What it leaves in ``<state_dir>/<server>/`` there: ``start.json`` (pid, the kernel's start ticks, the keeper's pid,
when, and the argv without its secrets), ``exit`` (the status once it has ended, 128+n for signal n), and ``log``
where the server has no log of its own. Starting what already runs with the same argv is done already; with
another argv it is refused, so that nobody takes the old flags for the new. A host needs a POSIX shell, /proc,
setsid, and what coreutils or busybox bring.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog

from bot.domain.errors import StepFailed
from bot.domain.facts import Process
from bot.domain.fleet import Server
from bot.domain.shell import END_OF_RECORDS, record, variables, words
from bot.launchers._process_scripts import KEEPER, KILL_TREE, LAUNCHED, START, TERMINATE
from bot.ports import Completed, Launched, Transport

START_WITHIN = timedelta(seconds=30)
LOOK_WITHIN = timedelta(seconds=10)
SIGNAL_WITHIN = timedelta(seconds=15)
OLD_LOGS = 5
_TOLD = 300

_SECRET_NAME = re.compile(r"(?:^|[-_.])(?:key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
_SECRET_WORD = re.compile(r"\b(?:hf_|sk-|xox[a-z]-|xapp-)[\w-]{8,}|(?<=://)[^/@\s]+(?=@)")

_log = structlog.get_logger(__name__)


class ProcessLauncher:
    """The plug-in."""

    name = "process"

    async def launched(self, host: Transport, server: Server, state_dir: str) -> Launched:
        done = await host.run(_sh(LAUNCHED, state_dir, _folder(server)), timeout=LOOK_WITHIN)
        if not done.is_ok:
            raise StepFailed(f"{server.name}: what was launched can't be read: {_why(done)}")
        status, _, recorded = done.stdout.decode("utf-8", "replace").partition("\n")
        exit_status = int(status) if re.fullmatch(r"[0-9]{1,3}", status) else None
        return Launched(read_record(recorded)[0], exit_status)

    async def start(
        self, host: Transport, server: Server, argv: Sequence[str], env: Mapping[str, str], state_dir: str
    ) -> None:
        if not argv or not argv[0]:
            raise StepFailed(f"{server.name} can't be started: there is no command")
        shown = redacted(argv)
        records = words(argv) + record("N", json.dumps(shown)) + variables(env) + END_OF_RECORDS
        keep = OLD_LOGS if server.log_rotates else 0
        script = _sh(START, state_dir, _folder(server), server.launch.directory, server.log, str(keep), KEEPER)
        done = await host.run(script, stdin=records, timeout=START_WITHIN)
        first, _, rest = done.stdout.decode("utf-8", "replace").partition("\n")
        if first == "running":
            _same_or_refused(server, shown, rest)
        elif not first.startswith("started "):
            raise StepFailed(f"{server.name} can't be started: {_why(done)}")
        _log.info("server process", server=server.name, outcome=first)

    async def end(self, host: Transport, server: Server, process: Process, *, force: bool) -> None:
        if process.pid < 1 or process.started < 1:
            raise StepFailed(f"{server.name}: pid {process.pid} is no process that can be ended")
        script = KILL_TREE if force else TERMINATE
        done = await host.run(_sh(script, str(process.pid), str(process.started)), timeout=SIGNAL_WITHIN)
        outcome = done.stdout.decode("utf-8", "replace").strip()
        if not done.is_ok or not outcome.startswith(("signalled", "gone")):
            raise StepFailed(f"{server.name}, pid {process.pid}, can't be ended: {_why(done)}")
        _log.info("server process", server=server.name, outcome=outcome, signal="KILL" if force else "TERM")


def redacted(argv: Sequence[str]) -> list[str]:
    """The words with what is secret replaced: values of flags and variables so named, known token forms."""
    shown: list[str] = []
    is_secret = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if is_secret and not word.startswith("--"):
            shown.append("***")
        elif equals and _SECRET_NAME.search(name):
            shown.append(f"{name}=***")
        else:
            shown.append(_SECRET_WORD.sub("***", word))
        is_secret = not equals and word.startswith("-") and bool(_SECRET_NAME.search(word))
    return shown


def read_record(text: str) -> tuple[int | None, list[str] | None]:
    """Pid and argv of a start.json; None for what a damaged one does not say."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(found, dict):
        return None, None
    pid, argv = found.get("pid"), found.get("argv")
    is_pid = isinstance(pid, int) and not isinstance(pid, bool) and pid > 0
    is_argv = isinstance(argv, list) and all(isinstance(word, str) for word in argv)
    return pid if is_pid else None, argv if is_argv else None


def _same_or_refused(server: Server, shown: list[str], recorded: str) -> None:
    pid, argv = read_record(recorded)
    if argv != shown:
        raise StepFailed(f"{server.name} already runs with other arguments, pid {pid}; it has to be stopped first")


def _folder(server: Server) -> str:
    """The server's name as a folder's; StepFailed when it would lead elsewhere."""
    if not server.name or server.name in (".", "..") or "/" in server.name or "\0" in server.name:
        raise StepFailed(f"{server.name!r} can't be the name of a folder, and what was launched is kept in one")
    return server.name


def _sh(script: str, *words_: str) -> list[str]:
    return ["sh", "-c", script, "upbot", *words_]


def _why(done: Completed) -> str:
    """What the script says, else what its shell said last, in one line."""
    said = done.stdout.decode("utf-8", "replace").strip()
    heard = done.stderr.decode("utf-8", "replace").strip().splitlines()
    text = said.removeprefix("failed ") or (heard[-1] if heard else f"exit status {done.status}")
    return "".join(char if char.isprintable() else " " for char in text)[:_TOLD]


LAUNCHER = ProcessLauncher()
