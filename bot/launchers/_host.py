"""What every launcher says to a host and hears from it: the record of a start, and the end of a process."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta

import structlog

from bot.domain.errors import StepFailed
from bot.domain.facts import Process
from bot.domain.fleet import Server
from bot.launchers._process_scripts import ADOPT, KILL_TREE, LAUNCHED, TERMINATE
from bot.ports import Completed, Launched, Transport

START_WITHIN = timedelta(seconds=30)
LOOK_WITHIN = timedelta(seconds=10)
SIGNAL_WITHIN = timedelta(seconds=15)
OLD_LOGS = 5
_TOLD = 300

_SECRET_NAME = re.compile(r"(?:^|[-_.])(?:key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
_SECRET_WORD = re.compile(r"\b(?:hf_(?![a-z_]+\b)|sk-|xox[a-z]-|xapp-)[\w-]{8,}|(?<=://)[^/@\s]+(?=@)")
_STATUS = re.compile(r"[0-9]{1,3}")

_log = structlog.get_logger(__name__)


async def launched(host: Transport, server: Server, state_dir: str) -> Launched:
    """What stands on record on the host."""
    done = await host.run(sh(LAUNCHED, state_dir, folder(server)), timeout=LOOK_WITHIN)
    if not done.is_ok:
        raise StepFailed(f"{server.name}: what was launched can't be read: {why(done)}")
    status, _, recorded = text_of(done).partition("\n")
    return Launched(read_record(recorded)[0], exit_status(status))


async def adopt(host: Transport, server: Server, process: Process, state_dir: str) -> None:
    """Put a process on record that somebody else has started, as if it had been launched."""
    if process.pid < 1 or process.started < 1:
        raise StepFailed(f"{server.name}: pid {process.pid} is no process that can be adopted")
    shown = json.dumps(redacted(process.argv))
    words = (state_dir, folder(server), str(process.pid), str(process.started), shown)
    done = await host.run(sh(ADOPT, *words), timeout=LOOK_WITHIN)
    if not done.is_ok or text_of(done).strip() != "adopted":
        raise StepFailed(f"{server.name}, pid {process.pid}, can't be adopted: {why(done)}")
    _log.info("server process", server=server.name, outcome="adopted", pid=process.pid)


async def end(host: Transport, server: Server, process: Process, *, force: bool) -> None:
    """SIGTERM to exactly that process, or SIGKILL to its tree; one that is gone already is no error."""
    refuse_nobody(server, process)
    script = KILL_TREE if force else TERMINATE
    done = await host.run(sh(script, str(process.pid), str(process.started)), timeout=SIGNAL_WITHIN)
    outcome = text_of(done).strip()
    if not done.is_ok or not outcome.startswith(("signalled", "gone")):
        raise StepFailed(f"{server.name}, pid {process.pid}, can't be ended: {why(done)}")
    _log.info("server process", server=server.name, outcome=outcome, signal="KILL" if force else "TERM")


def refuse_nobody(server: Server, process: Process) -> None:
    """StepFailed for what names no process."""
    if process.pid < 1 or process.started < 1:
        raise StepFailed(f"{server.name}: pid {process.pid} is no process that can be ended")


def begun(server: Server, shown: Sequence[str], done: Completed) -> None:
    """Read how a start went: it began, or runs already with these words; StepFailed with the reason otherwise."""
    first, _, rest = text_of(done).partition("\n")
    if first == "running":
        pid, argv = read_record(rest)
        if argv != list(shown):
            raise StepFailed(f"{server.name} already runs with other arguments, pid {pid}; it has to be stopped first")
    elif not first.startswith("started "):
        raise StepFailed(f"{server.name} can't be started: {why(done)}")
    _log.info("server process", server=server.name, outcome=first)


def refuse_nothing(server: Server, argv: Sequence[str]) -> None:
    """StepFailed for a launch without a command."""
    if not argv or not argv[0]:
        raise StepFailed(f"{server.name} can't be started: there is no command")


def old_logs(server: Server) -> str:
    """How many old logs a start keeps, as a script takes it."""
    return str(OLD_LOGS if server.log_rotates else 0)


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


def exit_status(text: str) -> int | None:
    """An exit status as it stands on record; None for anything else."""
    return int(text) if _STATUS.fullmatch(text) else None


def folder(server: Server) -> str:
    """The server's name as a folder's; StepFailed when it would lead elsewhere."""
    if not server.name or server.name in (".", "..") or "/" in server.name or "\0" in server.name:
        raise StepFailed(f"{server.name!r} can't be the name of a folder, and what was launched is kept in one")
    return server.name


def sh(script: str, *words: str) -> list[str]:
    """A script's argv; the words arrive as its positional arguments."""
    return ["sh", "-c", script, "upbot", *words]


def text_of(done: Completed) -> str:
    """What a script printed."""
    return done.stdout.decode("utf-8", "replace")


def why(done: Completed) -> str:
    """What the script says, else what its shell said last, in one line."""
    said = text_of(done).strip()
    heard = done.stderr.decode("utf-8", "replace").strip().splitlines()
    text = said.removeprefix("failed ") or (heard[-1] if heard else f"exit status {done.status}")
    return "".join(char if char.isprintable() else " " for char in text)[:_TOLD]
