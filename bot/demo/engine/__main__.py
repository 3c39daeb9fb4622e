"""``python -m bot.demo.engine --model-path … --port … [SGLang's flags]``; also ``--help`` and ``--version``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from bot.demo.engine.flags import known_flags, parser, uses_deprecated_strategy, version_of
from bot.demo.engine.setup import Setup, model_problem, setup_of, version_text_of
from bot.demo.engine.sizes import NoRoomError, conflict_of, sizes_of
from bot.demo.engine.voice import Voice
from bot.demo.machine import Entry, Machine, process_started

if TYPE_CHECKING:
    from bot.demo.engine.process import ServerProcess

_RUN = 'Traceback (most recent call last):\n  File "sglang/launch_server.py", line 29, in run_server\n'


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run one server; the exit status of the real one in the same case."""
    if "--version" in argv:
        print("\n".join((version_text_of(env), *(known_flags(version_of(version_text_of(env)))))))  # noqa: T201 - asked for
        return 0
    voice, version = Voice(), version_of(version_text_of(env))
    args = parser(version).parse_args(argv)
    if uses_deprecated_strategy(argv, version):
        voice.say(
            "The argument '--mamba-scheduler-strategy' is deprecated. Use '--mamba-radix-cache-strategy' instead."
        )
    problem = model_problem(args.model_path) or conflict_of(args, version)
    if problem is not None:
        return _fail(voice, problem)
    try:
        setup = setup_of(args, env, sizes_of(args, version))
    except NoRoomError as exc:
        return _fail(voice, str(exc))
    return _live(setup, env, voice)


def _fail(voice: Voice, problem: str) -> int:
    pid = os.getpid()
    voice.say(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
    voice.bar(f"{_RUN}{problem}\n")
    return 1


def _live(setup: Setup, env: Mapping[str, str], voice: Voice) -> int:
    # Imported late: questions about flags and versions are answered without the HTTP server.
    import asyncio  # noqa: PLC0415 - see above

    machine, pid = Machine.of(env), os.getpid()
    entry = Entry(pid, process_started(pid) or 0, "engine", setup.args.port, setup.gpus, seats=setup.sizes.seats)
    machine.note(entry, "started")
    machine.register(entry)

    async def life() -> int:
        from bot.demo.engine.process import ServerProcess  # noqa: PLC0415 - see above

        server: ServerProcess = ServerProcess(setup, machine, entry, voice)
        return await server.run()

    try:
        return asyncio.run(life())
    finally:
        machine.note(entry, "ended")


def run() -> NoReturn:
    """The command line's entry."""
    sys.exit(main(sys.argv[1:], os.environ))


if __name__ == "__main__":
    run()
