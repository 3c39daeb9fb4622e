"""Looks at a job and acts on it, by looking each time: the panes of its tmux session, its pid file, its record.

A job runs when a pane of its session has it in the foreground (the pane's own process, or what a person started
from the pane's shell), or when the process of its pid file or of our own record lives. A pid file may be an old
one, so its process counts only when its command line is the job's; a record has the kernel's start time. A job
without a session is started by a launcher, as a server is, under the name ``job-<its name>``.

Asking a job to end is noted on its host with the process that was asked: a second Ctrl-C would interrupt the
saving that the first one began, so the same process is asked again only after its stop limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.domain.errors import FleetError, StepFailed
from bot.domain.facts import JobFacts, JobState
from bot.domain.fleet import Host, Job, Launch, Server
from bot.domain.shell import END_OF_RECORDS, record, variables, words
from bot.ports import Clock, Completed, Hosts, Launcher
from bot.runtime._job_scripts import INTERRUPT, KEYS, LOOK, OPEN, PANE
from bot.runtime.progress import READ_LIMIT, Pace, Reading, read_progress

LOOK_WITHIN = timedelta(seconds=10)
ACT_WITHIN = timedelta(seconds=20)
_TOLD = 200
_SESSION = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_+@, -]*")
_SHELLS = frozenset(("sh", "ash", "bash", "dash", "fish", "ksh", "zsh"))
_PROCESS = re.compile(r"process ([0-9]+) (\S) (-?[0-9]+) (-?[0-9]+) ([0-9]+) (.*)", re.DOTALL)
_PANE = re.compile(r"pane (%[0-9]+),([01]),([0-9]*),([0-9]+)")
_OPENER = "upbot-job"
_SIZE = ("-x", "200", "-y", "50")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    group: int
    front: int
    started: int
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Pane:
    id: str
    is_dead: bool
    status: int | None
    pid: int


@dataclass(slots=True)
class _Report:
    """What the host said of a job."""

    exit_status: int | None = None
    ended: tuple[int, int] | None = None
    asked: str = ""
    recorded: tuple[int, int] | None = None
    pid: int | None = None
    processes: dict[int, _Process] = field(default_factory=dict)
    panes: list[_Pane] = field(default_factory=list)
    trouble: str = ""
    progress: bytes | None = None
    no_progress: str = ""


@dataclass(frozen=True, slots=True)
class _Live:
    """The process that is the job, and the pane in which it runs."""

    process: _Process
    pane: str | None = None
    is_as_configured: bool = True


class FleetJobs:
    """The JobHands of a fleet.

    ``find_host`` gives the host of a name as it is configured now; ``launcher`` starts jobs that have no session;
    ``tmux`` is the command that stands for tmux on the hosts.
    """

    def __init__(
        self,
        hosts: Hosts,
        find_host: Callable[[str], Host],
        launcher: Launcher,
        clock: Clock,
        tmux: Sequence[str] = ("tmux",),
    ) -> None:
        self._hosts = hosts
        self._find_host = find_host
        self._launcher = launcher
        self._clock = clock
        self._tmux = tuple(tmux)
        self._paces: dict[str, Pace] = {}

    async def look(self, job: Job) -> JobFacts:
        try:
            report = await self._report(job)
        except FleetError as error:
            return JobFacts(job.name, self._clock.now(), why=str(error))
        now = self._clock.now()
        reading = _reading(job, report)
        live = _live(job, report)
        state, why = _state(report, live, reading)
        facts = JobFacts(job.name, now, state, reading.done, reading.total, reading.rate, why=why)
        return replace(facts, eta=self._eta(facts))

    async def stop(self, job: Job) -> None:
        report = await self._report(job)
        live = _live(job, report)
        if live is None:
            if report.trouble:
                raise StepFailed(f"job {job.name} can't be stopped: {report.trouble}")
            return
        now = self._clock.now()
        if _was_asked(report, live.process, now, job.stop_limit):
            return
        note = f"{now.isoformat()} {live.process.pid} {live.process.started}"
        if live.pane is None:
            await self._act(job, INTERRUPT, note, str(live.process.pid), str(live.process.started))
        else:
            await self._act(job, KEYS, note, *self._keys(job, live.pane))

    async def start(self, job: Job, concurrency: int | None) -> None:
        argv = command_of(job, concurrency)
        report = await self._report(job)
        if _live(job, report) is not None:
            return
        if report.trouble:
            raise StepFailed(f"job {job.name} can't be started: {report.trouble}")
        if job.session is None:
            host = self._host(job)
            server = as_server(job)
            await self._launcher.start(self._hosts.transport(host), server, argv, dict(job.env), host.state_dir)
            return
        order = words(argv) + record("N", job.directory) + variables(dict(job.env)) + END_OF_RECORDS
        await self._act(job, OPEN, job.directory, *self._opening(job, report), stdin=order)

    def _keys(self, job: Job, pane: str) -> list[str]:
        # Somebody may have scrolled: in tmux's copy mode keys would go to the scrolling instead of the job.
        leave = ["if-shell", "-F", "-t", pane, "#{pane_in_mode}", f"send-keys -X -t {pane} cancel"]
        keys = [word for key in job.stop_keys for word in (";", "send-keys", "-t", pane, "--", _tmux_word(key))]
        return [*self._tmux, *leave, *keys]

    def _opening(self, job: Job, report: _Report) -> list[str]:
        """A dead pane is used again; a session with somebody's shell gets another window; else a new session."""
        session = _session(job)
        command = ["sh", "-c", PANE, _OPENER, _tmux_word(self._host(job).state_dir), _tmux_word(_folder(job))]
        stays = [";", "set-option", "-w", "-t", f"={session}:", "remain-on-exit", "on"]
        dead = next((pane for pane in report.panes if pane.is_dead), None)
        if dead is not None:
            return [*self._tmux, "respawn-pane", "-t", dead.id, *command]
        if report.panes:
            return [*self._tmux, "new-window", "-t", f"={session}:", *command, *stays]
        return [*self._tmux, "new-session", "-d", "-s", session, *_SIZE, *command, *stays]

    async def _report(self, job: Job) -> _Report:
        host = self._host(job)
        file = job.progress.file if job.progress else ""
        script = _sh(
            LOOK, host.state_dir, _folder(job), job.directory, job.pid_file or "", file, str(READ_LIMIT), _session(job),
            *self._tmux,
        )  # fmt: skip
        done = await self._hosts.transport(host).run(script, timeout=LOOK_WITHIN)
        if not done.is_ok:
            raise StepFailed(f"job {job.name} can't be seen: {_why(done)}")
        return _read_report(done.stdout)

    async def _act(self, job: Job, script: str, *arguments: str, stdin: bytes = b"") -> None:
        host = self._host(job)
        argv = _sh(script, host.state_dir, _folder(job), *arguments)
        done = await self._hosts.transport(host).run(argv, stdin=stdin, timeout=ACT_WITHIN)
        if not done.is_ok:
            verb = "started" if script is OPEN else "stopped"
            raise StepFailed(f"job {job.name} can't be {verb}: {_why(done)}")

    def _host(self, job: Job) -> Host:
        try:
            return self._find_host(job.host)
        except KeyError as exc:
            raise StepFailed(f"job {job.name}: there is no host {job.host} any more") from exc

    def _eta(self, facts: JobFacts) -> timedelta | None:
        pace = self._paces.setdefault(facts.job, Pace())
        if facts.state is not JobState.RUNNING:
            pace.forget()
        if facts.state is not JobState.RUNNING or facts.done is None:
            return None
        pace.saw(facts.at, facts.done)
        return None if facts.total is None else pace.eta(facts.at, facts.done, facts.total)


def command_of(job: Job, concurrency: int | None) -> tuple[str, ...]:
    """The job's command, with a concurrency in the place of its own where there is a flag for it."""
    if concurrency is None or job.concurrency_flag is None:
        return job.command
    return (*_without_concurrency(job), job.concurrency_flag, str(concurrency))


def _without_concurrency(job: Job) -> tuple[str, ...]:
    flag = job.concurrency_flag
    kept: list[str] = []
    is_value = False
    for word in job.command:
        if not is_value and not (flag and (word == flag or word.startswith(f"{flag}="))):
            kept.append(word)
        is_value = word == flag and not is_value
    return tuple(kept)


def _read_report(output: bytes) -> _Report:
    head, blank, progress = output.partition(b"\n\n")
    report = _Report(progress=progress if blank else None)
    for line in head.decode("utf-8", "surrogateescape").split("\n"):
        if match := _PROCESS.fullmatch(line):
            _note_process(report, match)
        elif match := _PANE.fullmatch(line):
            status = int(match[3]) if match[3] else None
            report.panes.append(_Pane(match[1], match[2] == "1", status, int(match[4])))
        else:
            _note(report, *line.split(" ", 1))
    return report


def _note_process(report: _Report, match: re.Match[str]) -> None:
    if match[2] in "ZXx":
        return
    pid, group, front, started = (int(match[number]) for number in (1, 3, 4, 5))
    words_ = match[6].replace("\x1f", "\n").split("\x1e")
    report.processes[pid] = _Process(pid, group, front, started, tuple(words_ if words_[-1] else words_[:-1]))


def _note(report: _Report, key: str, value: str = "") -> None:
    value = value.rstrip("\x1f")
    if key == "record" and (match := re.fullmatch(r"([0-9]{1,10}) ([0-9]{1,20})", value)):
        report.recorded = int(match[1]), int(match[2])
    elif key == "pid" and re.fullmatch(r"[0-9]{1,10}", value):
        report.pid = int(value)
    elif key == "exit" and re.fullmatch(r"[0-9]{1,3}", value):
        report.exit_status = int(value)
    elif key == "ended" and (match := re.fullmatch(r"([0-9]{1,10}) ([0-9]{1,3})", value)):
        report.ended = int(match[1]), int(match[2])
    elif key == "asked":
        report.asked = value
    elif key == "trouble":
        report.trouble = _line(value) or "tmux does not answer"
    elif key == "progress":
        report.no_progress = value


def _live(job: Job, report: _Report) -> _Live | None:
    """The process that is the job. One in its session counts whatever it is called: the session is the job's."""
    found = [live for pane in report.panes if (live := _in_pane(job, report, pane)) is not None]
    found.sort(key=lambda live: not live.is_as_configured)
    if found:
        return found[0]
    process = report.processes.get(report.pid) if report.pid else None
    if process is not None and _is_of(job, process.argv):
        return _Live(process)
    if report.recorded is not None:
        pid, started = report.recorded
        process = report.processes.get(pid)
        if process is not None and process.started == started:
            return _Live(process)
    return None


def _in_pane(job: Job, report: _Report, pane: _Pane) -> _Live | None:
    own = report.processes.get(pane.pid)
    if pane.is_dead or own is None:
        return None
    front = report.processes.get(own.front, own)
    if front.pid == own.pid and _is_idle_shell(own.argv):
        return None
    return _Live(front, pane.id, _OPENER in front.argv or _is_of(job, front.argv))


def _is_idle_shell(argv: tuple[str, ...]) -> bool:
    """Whether a pane's own process is a shell that waits for a person, and not one that runs a script."""
    if not argv or argv[0].lstrip("-").rpartition("/")[2] not in _SHELLS:
        return False
    return all(word.startswith("--") or (word.startswith("-") and "c" not in word) for word in argv[1:])


def _is_of(job: Job, argv: tuple[str, ...]) -> bool:
    """Whether a command line is the job's: its words, whatever the interpreter and the concurrency."""
    wanted = _without_concurrency(job)
    if len(wanted) < 2:
        name = wanted[0].rpartition("/")[2] if wanted else ""
        return any(word.rpartition("/")[2] == name for word in argv)
    return not Counter(wanted[1:]) - Counter(argv)


def _reading(job: Job, report: _Report) -> Reading:
    if job.progress is None:
        return Reading()
    if report.progress is None:
        return Reading(why=report.no_progress or "there is no progress file")
    return read_progress(job.progress, report.progress)


def _state(report: _Report, live: _Live | None, reading: Reading) -> tuple[JobState, str]:
    if live is not None:
        runs = _line(" ".join(live.process.argv[:4])) or "something else"
        return JobState.RUNNING, reading.why if live.is_as_configured else f"its session runs {runs}"
    if report.trouble:
        return JobState.UNKNOWN, report.trouble
    pid, status = _ended(report)
    has_all = reading.done is not None and reading.total is not None and 0 < reading.total <= reading.done
    was_asked = pid is not None and report.asked.split()[1:2] == [str(pid)]
    if has_all or (reading.done is None and status == 0 and not was_asked):
        return JobState.DONE, ""
    if pid is None or was_asked or status == 0:
        return JobState.STOPPED, reading.why
    return JobState.STOPPED, "it ended, and nobody saw how" if status is None else f"exit status {status}"


def _ended(report: _Report) -> tuple[int | None, int | None]:
    """Pid and exit status of the run that ended last: by a dead pane, its own note, or the launcher's record."""
    dead = next((pane for pane in report.panes if pane.is_dead), None)
    if dead is not None:
        is_noted = report.ended is not None and report.ended[0] == dead.pid
        return dead.pid, report.ended[1] if is_noted and report.ended else dead.status
    if report.ended is not None:
        return report.ended
    return (report.recorded[0] if report.recorded else None), report.exit_status


def _was_asked(report: _Report, process: _Process, now: datetime, limit: timedelta) -> bool:
    at, _, who = report.asked.partition(" ")
    try:
        since = now - datetime.fromisoformat(at)
    except (ValueError, TypeError):
        return False
    return who == f"{process.pid} {process.started}" and since < limit


def as_server(job: Job) -> Server:
    """The job as a launcher takes it."""
    launch = Launch(job.command, env=job.env, directory=job.directory)
    return Server(_folder(job), job.host, 0, "", launch, log=job.log, log_rotates=False)


def _folder(job: Job) -> str:
    return "job-" + job.name.replace("/", "_").replace("\0", "_")


def _session(job: Job) -> str:
    """The session's name as tmux keeps it; StepFailed for one that tmux would read as something else."""
    if job.session is None:
        return ""
    name = job.session.replace(":", "_").replace(".", "_")
    if not _SESSION.fullmatch(name):
        raise StepFailed(f"job {job.name}: {job.session!r} can't be a tmux session's name")
    return name


def _tmux_word(word: str) -> str:
    """A word that tmux takes as it is: a last semicolon would end its command."""
    return f"{word[:-1]}\\;" if word.endswith(";") else word


def _sh(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "upbot", *arguments]


def _why(done: Completed) -> str:
    said = done.stdout.decode("utf-8", "replace").strip()
    heard = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return _line(said.removeprefix("failed ") or (heard[-1] if heard else f"exit status {done.status}"))


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:_TOLD].strip()
