"""The launcher ``process``: a server is a detached process on its host, beside a keeper that notes how it ended.

What it leaves in ``<state_dir>/<server>/`` there: ``start.json`` (pid, the kernel's start ticks, the keeper's pid,
when, and the argv without its secrets), ``exit`` (the status once it has ended, 128+n for signal n), and ``log``
where the server has no log of its own. Starting what already runs with the same argv is done already; with
another argv it is refused, so that nobody takes the old flags for the new. A host needs a POSIX shell, /proc,
setsid, and what coreutils or busybox bring.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from bot.domain.facts import Process
from bot.domain.fleet import Server
from bot.domain.shell import END_OF_RECORDS, record, variables, words
from bot.launchers import _host
from bot.launchers._host import read_record as read_record  # noqa: PLC0414 - the record is this launcher's format
from bot.launchers._host import redacted as redacted  # noqa: PLC0414 - as above
from bot.launchers._process_scripts import KEEPER, START
from bot.ports import Launched, Transport


class ProcessLauncher:
    """The plug-in."""

    name = "process"

    async def launched(self, host: Transport, server: Server, state_dir: str) -> Launched:
        return await _host.launched(host, server, state_dir)

    async def start(
        self, host: Transport, server: Server, argv: Sequence[str], env: Mapping[str, str], state_dir: str
    ) -> None:
        _host.refuse_nothing(server, argv)
        shown = redacted(argv)
        records = words(argv) + record("N", json.dumps(shown)) + variables(env) + END_OF_RECORDS
        place = (state_dir, _host.folder(server), server.launch.directory, server.log)
        script = _host.sh(START, *place, _host.old_logs(server), KEEPER)
        _host.begun(server, shown, await host.run(script, stdin=records, timeout=_host.START_WITHIN))

    async def adopt(self, host: Transport, server: Server, process: Process, state_dir: str) -> None:
        await _host.adopt(host, server, process, state_dir)

    async def end(self, host: Transport, server: Server, process: Process, *, force: bool) -> None:
        await _host.end(host, server, process, force=force)


LAUNCHER = ProcessLauncher()
