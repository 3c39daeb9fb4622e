"""The launcher ``systemd``: a server is a unit, its own (``upbot-<server>``) or one that the administrator has made.

Both are started with the flags and the environment that were decided, which stand in files of the runtime directory
(``/run/systemd/system``, for a login's own manager ``$XDG_RUNTIME_DIR/systemd/user``): of a configured unit (a
template's ``sglang@30000`` as well) a drop-in replaces ``ExecStart=`` and, where the fleet file says so, the working
directory and the output, and adds variables; everything else (its user, limits, ``Restart=``) stays its own. So a
profile can change there what it can change anywhere. With the next boot the unit is again what its own files say.

Only the main process is ever signalled. What has ``Restart=`` would come back, so it is told ``Restart=no`` before,
in a drop-in that the next start by us (or the next boot) takes away. The exit status is noted by systemd itself.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from bot.domain.errors import StepFailed
from bot.domain.facts import Process
from bot.domain.fleet import Server, unit_name
from bot.domain.shell import END_OF_RECORDS, record, words
from bot.launchers import _host
from bot.launchers._systemd_scripts import ENDED, HOLD, LAST, START
from bot.ports import Launched, Transport

_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\-]+(?:@[A-Za-z0-9:_.\\-]+)?")
_PLAIN = frozenset((string.ascii_letters + string.digits + "_-./:,+@=").encode())
_JOURNALS = ("journal:", "user-journal:")

_log = structlog.get_logger(__name__)


class SystemdLauncher:
    """The plug-in. Its settings: ``unit`` (none: one of its own) and ``manager`` (system or user)."""

    name = "systemd"

    async def launched(self, host: Transport, server: Server, state_dir: str) -> Launched:
        unit = _unit(server)
        script = _host.sh(LAST, state_dir, _host.folder(server), unit.name, unit.manager)
        done = await host.run(script, timeout=_host.LOOK_WITHIN)
        if not done.is_ok:
            raise StepFailed(f"{server.name}: what was launched can't be read: {_host.why(done)}")
        status, _, recorded = _host.text_of(done).partition("\n")
        return Launched(_host.read_record(recorded)[0], _host.exit_status(status))

    async def start(
        self, host: Transport, server: Server, argv: Sequence[str], env: Mapping[str, str], state_dir: str
    ) -> None:
        _host.refuse_nothing(server, argv)
        unit, shown = _unit(server), _host.redacted(argv)
        arguments = "".join(f" {quoted(word)}" for word in argv[1:])
        records = words([arguments]) + record("N", environment(env)) + END_OF_RECORDS
        log = "-" if server.log.startswith(_JOURNALS) else server.log
        place = (state_dir, _host.folder(server), unit.name, unit.kind, unit.manager, server.launch.directory, log)
        script = _host.sh(START, *place, _host.old_logs(server), argv[0], json.dumps(shown), ENDED)
        _host.begun(server, shown, await host.run(script, stdin=records, timeout=_host.START_WITHIN))

    async def adopt(self, host: Transport, server: Server, process: Process, state_dir: str) -> None:
        await _host.adopt(host, server, process, state_dir)

    async def end(self, host: Transport, server: Server, process: Process, *, force: bool) -> None:
        _host.refuse_nobody(server, process)
        unit = _unit(server)
        script = _host.sh(HOLD, unit.name, unit.manager, str(process.pid))
        done = await host.run(script, timeout=_host.SIGNAL_WITHIN)
        outcome = _host.text_of(done).strip()
        if not done.is_ok or not outcome.startswith(("held", "main", "other")):
            raise StepFailed(f"{server.name}, pid {process.pid}, can't be ended: {_host.why(done)}")
        _log.info("server unit", server=server.name, unit=unit.name, outcome=outcome)
        await _host.end(host, server, process, force=force)


@dataclass(frozen=True, slots=True)
class _Unit:
    name: str
    kind: str
    manager: str


def _unit(server: Server) -> _Unit:
    """The unit of a server; StepFailed when its name can be none."""
    configured = server.launcher_setting("unit")
    name = unit_name(server.name, configured)
    if not _UNIT_NAME.fullmatch(name) or len(name) > 250:
        raise StepFailed(f"{name!r} can't be the name of a unit")
    return _Unit(name, "configured" if configured else "own", server.launcher_setting("manager", "system"))


def quoted(word: str) -> str:
    """A word of a unit's command line, so that systemd neither splits nor expands it."""
    pieces = []
    for byte in _encoded(word):
        if byte in _PLAIN:
            pieces.append(chr(byte))
        else:
            pieces.append({0x25: "%%", 0x24: "$$"}.get(byte, f"\\x{byte:02x}"))
    return f'"{"".join(pieces)}"'


def environment(env: Mapping[str, str]) -> str:
    """The lines of an environment file; StepFailed for what systemd would leave out."""
    lines = []
    for name, value in env.items():
        if not name.isascii() or not name.isidentifier():
            raise StepFailed(f"{name!r} can't be the name of an environment variable")
        _encoded(value)
        if any(char < " " and char not in "\t\n" for char in value):
            raise StepFailed(f"{name} holds a control character, and systemd takes none in a variable")
        escaped = re.sub(r'([\\"$`])', r"\\\1", value)
        lines.append(f'{name}="{escaped}"\n')
    return "".join(lines)


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise StepFailed("a NUL character can't be passed to a process")
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise StepFailed("systemd takes only UTF-8, and a value holds something else") from exc


LAUNCHER = SystemdLauncher()
