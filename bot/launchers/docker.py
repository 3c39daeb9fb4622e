"""The launcher ``docker``: a server is a container, ``upbot-<server>``, of Docker or of Podman (the same words).

The server's command line is the container's, in place of the image's entry point; its environment is passed on; what
the container needs besides (GPUs, volumes, the host's network) stands in ``args``. What runs already with the same
image, arguments and environment is started already; with others it is refused. One that has ended is removed and made
anew, but only when its label says that it is ours.

A container's first process gets no SIGTERM that it has no handler for: an engine has one as soon as it serves, and
with ``--init`` in ``args`` it is ended at any time. ``--restart`` is refused, since the bot decides what comes back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

import structlog

from bot.domain.errors import StepFailed
from bot.domain.facts import Process
from bot.domain.fleet import Server
from bot.domain.shell import END_OF_RECORDS, record, words
from bot.launchers import _host
from bot.launchers._docker_scripts import KEEPER, LAST, SIGNAL, START
from bot.ports import Launched, Transport

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_OURS = (
    *("--name", "--restart", "--rm", "--detach", "-d"),
    *("--entrypoint", "--env-file", "--label-file", "--workdir", "-w"),
)

_log = structlog.get_logger(__name__)


class DockerLauncher:
    """The plug-in. Its settings: ``image``, ``args`` (a JSON list) and ``command`` (docker or podman)."""

    name = "docker"

    async def launched(self, host: Transport, server: Server, state_dir: str) -> Launched:
        script = _host.sh(LAST, state_dir, _host.folder(server), _tool(server), _container(server))
        done = await host.run(script, timeout=_host.LOOK_WITHIN)
        if not done.is_ok:
            raise StepFailed(f"{server.name}: what was launched can't be read: {_host.why(done)}")
        status, _, recorded = _host.text_of(done).partition("\n")
        return Launched(_host.read_record(recorded)[0], _host.exit_status(status))

    async def start(
        self, host: Transport, server: Server, argv: Sequence[str], env: Mapping[str, str], state_dir: str
    ) -> None:
        _host.refuse_nothing(server, argv)
        name, shown, run, variables = _container(server), _host.redacted(argv), run_words(server, argv), env_file(env)
        digest = hashlib.sha256(json.dumps([run, variables]).encode()).hexdigest()
        records = words(run) + record("N", variables) + END_OF_RECORDS
        place = (state_dir, _host.folder(server), server.log, _host.old_logs(server), _tool(server), name)
        script = _host.sh(START, *place, digest, json.dumps(shown), KEEPER)
        _host.begun(server, shown, await host.run(script, stdin=records, timeout=_host.START_WITHIN))

    async def adopt(self, host: Transport, server: Server, process: Process, state_dir: str) -> None:
        await _host.adopt(host, server, process, state_dir)

    async def end(self, host: Transport, server: Server, process: Process, *, force: bool) -> None:
        _host.refuse_nobody(server, process)
        words_ = (str(process.pid), str(process.started), "KILL" if force else "TERM")
        script = _host.sh(SIGNAL, _tool(server), _container(server), *words_)
        done = await host.run(script, timeout=_host.SIGNAL_WITHIN)
        outcome = _host.text_of(done).strip()
        if not done.is_ok or not outcome.startswith(("signalled", "gone", "other")):
            raise StepFailed(f"{server.name}, pid {process.pid}, can't be ended: {_host.why(done)}")
        if outcome == "other":
            await _host.end(host, server, process, force=force)
        else:
            _log.info("server container", server=server.name, outcome=outcome, signal=words_[2])


def run_words(server: Server, argv: Sequence[str]) -> list[str]:
    """The words that follow ``docker run``; StepFailed for what docker would not pass on as it is."""
    image = server.launcher_setting("image")
    if not image or image.startswith("-"):
        raise StepFailed(f"{server.name} can't be started: its launcher names no image")
    args = json.loads(server.launcher_setting("args", "[]"))
    for word in args:
        if word.partition("=")[0] in _OURS:
            raise StepFailed(f"{server.name} can't be started: {word} is the launcher's own, not one of its args")
    directory = ["--workdir", server.launch.directory] if server.launch.directory else []
    found = [*args, *directory, "--entrypoint", argv[0], image, *argv[1:]]
    for word in found:
        _refuse_bytes(word)
    return found


def env_file(env: Mapping[str, str]) -> str:
    """The lines of docker's environment file: taken as they stand, so that a value can hold no line break."""
    for name, value in env.items():
        if not name.isascii() or not name.isidentifier():
            raise StepFailed(f"{name!r} can't be the name of an environment variable")
        _refuse_bytes(value)
        if "\n" in value or "\r" in value:
            raise StepFailed(f"{name} holds a line break, and docker takes none in a variable")
    return "".join(f"{name}={value}\n" for name, value in env.items())


def _refuse_bytes(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise StepFailed("docker takes only UTF-8, and a value holds something else") from exc


def _container(server: Server) -> str:
    """The container of a server; StepFailed when its name can be none."""
    if not _NAME.fullmatch(server.name):
        raise StepFailed(f"{server.name!r} can't be in the name of a container")
    return f"upbot-{server.name}"


def _tool(server: Server) -> str:
    return server.launcher_setting("command", "docker")


LAUNCHER = DockerLauncher()
