"""The command line: run, demo, check, ask, diagnose, audit, backup, replay, export, heartbeat.

Exit codes: 0 all well, 1 not all ready or refused (diagnose: crashed; audit: broken; heartbeat: none), 2 wrong usage
or configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import getpass
import json
import os
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from bot import __version__
from bot.app import ways
from bot.app.process import configure_logging
from bot.domain.errors import ConfigError, StoreError, UpbotError, UserError
from bot.domain.moments import moment
from bot.domain.phrases import count
from bot.runtime import auditing, diagnosing, heartbeat, replaying
from bot.runtime.clock import SystemClock

USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the words say; the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.do(arguments))
    except (ConfigError, StoreError) as error:
        print(f"upbot: {error}", file=sys.stderr)
        return USAGE
    except UpbotError as error:
        print(f"upbot: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def entry() -> None:
    """The console script."""
    sys.exit(main())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("upbot", description="A Slack bot for fleets of LLM inference servers.")
    parser.add_argument("--version", action="version", version=f"upbot {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    run = commands.add_parser("run", help="the bot, in Slack")
    _where(run)
    run.add_argument("--console", action="store_true", help="talk in this terminal instead of in Slack")
    run.add_argument("--http", action="store_true", help="Slack calls us (signing secret) instead of Socket Mode")
    run.add_argument("--as", dest="person", default=None, help="in the console: whom of the fleet file you are")
    run.add_argument("--json-logs", action="store_true", help="a JSON object a line on stderr")
    run.set_defaults(do=_run)

    demo = commands.add_parser("demo", help="everything on this machine: a workspace, simulated servers, the bot")
    demo.add_argument("--port", type=int, default=8420, help="of the page (8420)")
    demo.add_argument("--base-port", type=int, default=30000, help="of the first simulated server (30000)")
    demo.add_argument("--speed", type=float, default=1.0, help="starts and waits are so many times faster (1)")
    demo.add_argument("--headless", action="store_true", help="open no browser")
    demo.add_argument("--home", type=Path, default=None, help="where it keeps its files (a temporary folder)")
    demo.set_defaults(do=_demo)

    check = commands.add_parser("check", help="the doctor: files, tokens and every host, and what to do")
    _where(check)
    check.set_defaults(do=_check)

    ask = commands.add_parser("ask", help='one command, the answer on stdout: upbot ask "up?"')
    _where(ask)
    ask.add_argument("text", nargs="+", help="the command, as one would type it in the channel")
    ask.add_argument("--as", dest="person", default=None, help="whom of the fleet file you are (by your login)")
    ask.add_argument("--json", action="store_true", help="one JSON object with an object a server")
    ask.add_argument("--no-wait", action="store_true", help="do not wait for a press or an operation's end")
    ask.add_argument(
        "--yes", action="store_true", help="without a running bot, where the fleet file allows it: confirm"
    )
    ask.set_defaults(do=_ask)

    read = commands.add_parser("diagnose", help="read an engine's log: where it stands, why it died, what to do")
    read.add_argument("file", nargs="*", metavar="FILE", help="logs, .gz too; - or none reads stdin")
    read.add_argument("--json", action="store_true", help="one JSON object a log, or with -f one a change")
    read.add_argument("-f", "--follow", action="store_true", help="go on reading as they grow, through rotation")
    read.set_defaults(do=_diagnose)

    audit = commands.add_parser("audit", help="what was done through the bot, by whom; and whether that was changed")
    _where(audit)
    audit.add_argument("--verify", action="store_true", help="check the chain; exit 1 names the first broken row")
    audit.add_argument("--expect", metavar="HASH", help="with --verify: a hash noted earlier that must be in the chain")
    audit.add_argument("--since", metavar="SPAN", help="24h, 7d, 03:12 (UTC), 2026-11-30")
    audit.add_argument("--json", action="store_true", help="one JSON object a line")
    audit.set_defaults(do=_audit)

    _watching(commands)

    backup = commands.add_parser("backup", help="copy the state into a new file, also while the bot runs")
    _where(backup)
    backup.add_argument("file", metavar="FILE", type=Path, help="must not exist yet")
    backup.set_defaults(do=_backup)
    return parser


def _watching(commands: Any) -> None:
    """The commands about what the watcher has read."""
    replay = commands.add_parser("replay", help="what the rules would have told over recorded readings")
    replay.add_argument("file", metavar="SAMPLES", help="an export, one JSON object a line, .gz too; - reads stdin")
    replay.add_argument("--json", action="store_true", help="one JSON object a line")
    replay.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another threshold: starved_for=60s"
    )
    replay.set_defaults(do=_replay)

    export = commands.add_parser("export", help="what the watcher has read, a JSON object a reading")
    _where(export)
    export.add_argument("--since", metavar="SPAN", default="24h", help="24h (at most 26 h are kept), 03:12 (UTC)")
    export.add_argument("file", nargs="?", type=Path, metavar="FILE", help="must not exist yet; without it: stdout")
    export.set_defaults(do=_export)

    heart = commands.add_parser("heartbeat", help="for monitors: exit 1 when the bot does not look, or is cut off")
    _where(heart)
    heart.add_argument("--within", metavar="SPAN", default="60s", help="how old the last round may be (60s)")
    heart.set_defaults(do=_heartbeat)


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fleet", type=Path, default=None, help="the fleet file (UPBOT_FLEET, fleet.yaml)")
    parser.add_argument("--state", type=Path, default=None, help="the state's folder (UPBOT_STATE)")


def _setup(arguments: argparse.Namespace, *, level: str | None = None, is_json: bool = False) -> ways.Setup:
    setup = ways.Setup.of(os.environ, fleet=arguments.fleet, state=arguments.state)
    configure_logging(is_json=is_json, level=level or setup.environment.log_level)
    return setup


def _run(arguments: argparse.Namespace) -> int:
    level = "warning" if arguments.console else None
    setup = _setup(arguments, level=level, is_json=arguments.json_logs)
    if arguments.console:
        _loop(lambda: ways.run_console(setup, arguments.person or _person(setup)))
    else:
        _loop(lambda: ways.run_slack(setup, http=arguments.http))
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="upbot-demo-") as temporary:
        home = (arguments.home or Path(temporary)).absolute()
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("UPBOT_", "SLACK_"))}
        setup = ways.Setup.of(environ, state=home / "state")
        configure_logging(is_json=False, level=os.environ.get("UPBOT_LOG_LEVEL", "warning"))

        def started(url: str) -> None:
            print(f"Upbot's demo is at {url}  (Ctrl-C ends it)", flush=True)
            print(f'Ask it from a shell: upbot ask --fleet {home}/fleet.yaml --state {home}/state "up?"', flush=True)
            if not arguments.headless:
                webbrowser.open(url)

        _loop(
            lambda: ways.run_demo(
                setup,
                home,
                getpass.getuser(),
                port=arguments.port,
                base_port=arguments.base_port,
                speed=arguments.speed,
                started=started,
            )
        )
    return 0


def _check(arguments: argparse.Namespace) -> int:
    setup = _setup(arguments, level="error")
    findings = _loop(lambda: ways.check(setup))
    for finding in findings:
        print(finding.line)
    return 0 if all(finding.is_ok for finding in findings) else 1


def _ask(arguments: argparse.Namespace) -> int:
    setup = _setup(arguments, level="error")
    text = " ".join(arguments.text)

    async def send(value: dict[str, Any]) -> None:
        if "says" in value and not arguments.json:
            print(value["says"], flush=True)
        if value.get("done") and arguments.json:
            print(json.dumps({key: value.get(key) for key in ("command", "ok", "text", "servers", "operation")}))
        if value.get("error"):
            print(f"upbot: {value['error']}", file=sys.stderr)

    is_ok = _loop(
        lambda: ways.ask(
            setup,
            text,
            arguments.person,
            getpass.getuser(),
            send,
            is_waiting=not arguments.no_wait,
            may_confirm=arguments.yes,
        )
    )
    return 0 if is_ok else 1


def _diagnose(arguments: argparse.Namespace) -> int:
    names = list(dict.fromkeys(arguments.file)) or [diagnosing.STDIN]
    teller = diagnosing.Teller(lambda text: print(text, flush=True), is_json=arguments.json, is_one=len(names) == 1)
    if diagnosing.STDIN in names and sys.stdin.isatty():
        print("upbot: give the name of a log, or pipe one in", file=sys.stderr)
        return USAGE
    try:
        readings = _follow(names, teller) if arguments.follow else [diagnosing.read(name) for name in names]
        for reading in readings:
            teller.whole(reading)
    except UserError as error:
        print(f"upbot: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        return 1
    return 1 if any(reading.diagnosis().is_crashed for reading in readings) else 0


def _follow(names: Sequence[str], teller: diagnosing.Teller) -> Sequence[diagnosing.Reading]:
    """Follow until Ctrl-C, or until a pipe's end."""
    follower = diagnosing.Follower([diagnosing.source_of(name) for name in names], SystemClock(), teller.changed)
    with contextlib.suppress(KeyboardInterrupt):
        _loop(follower.run)
    return follower.readings


def _audit(arguments: argparse.Namespace) -> int:
    setup = _setup(arguments, level="error")
    with ways.audit_of(setup) as audit:
        if arguments.verify or arguments.expect:
            return _verify(audit.verify(arguments.expect), is_json=arguments.json)
        since = auditing.since(arguments.since, setup.clock.now())
        try:
            for line in auditing.lines(audit.since(since), is_json=arguments.json):
                print(line)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
            return 1
    return 0


def _verify(found: ways.Verified, *, is_json: bool) -> int:
    if is_json:
        print(json.dumps(dataclasses.asdict(found)))
    elif found.broken_at is not None:
        print(f"broken at row {found.broken_at}: {found.why} ({count(found.rows, 'row')} before it)")
    else:
        print(f"{count(found.rows, 'row')}, unbroken; the newest has the hash {found.newest}")
    return 0 if found.broken_at is None else 1


def _replay(arguments: argparse.Namespace) -> int:
    try:
        limits = replaying.limits(arguments.set)
    except UserError as error:
        print(f"upbot: {error}", file=sys.stderr)
        return USAGE
    with replaying.opened(arguments.file) as source:
        if arguments.json:
            return _print(replaying.as_json(source, limits, arguments.file))
        return _print(replaying.Replay(limits, arguments.file).lines(source))


def _export(arguments: argparse.Namespace) -> int:
    setup = _setup(arguments, level="error")
    since = auditing.since(arguments.since, setup.clock.now())
    assert since is not None  # noqa: S101 - it has a default; for the type checker
    with ways.samples_of(setup) as samples:
        lines = replaying.exported(samples.readings(since))
        if arguments.file is None:
            return _print(lines)
        number = replaying.write_new(lines, arguments.file)
    print(f"{arguments.file}: {number:,} readings")
    return 0 if number else 1


def _heartbeat(arguments: argparse.Namespace) -> int:
    setup = _setup(arguments, level="error")
    now = setup.clock.now()
    began = moment(arguments.within, now)
    if began is None:
        raise ConfigError(f"takes a span such as 60s, not {arguments.within[:40]!r}", key="--within")
    found = heartbeat.health(setup.environment.state_dir / heartbeat.NAME, now, now - began)
    print(found.why)
    return 0 if found.is_ok else 1


def _print(lines: Iterable[str]) -> int:
    try:
        for line in lines:
            print(line)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        return 1
    return 0


def _backup(arguments: argparse.Namespace) -> int:
    size = ways.back_up(_setup(arguments, level="error"), arguments.file)
    print(f"{arguments.file}: {size:,} bytes, checked")
    return 0


def _person(setup: ways.Setup) -> str:
    return setup.person(getpass.getuser())


def _loop(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run on the fast loop where there is one."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.run(work())
    return uvloop.run(work())


if __name__ == "__main__":
    entry()
