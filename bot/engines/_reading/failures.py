"""Finds what speaks for a crash or a stop in the records that are no event of a start or of service."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot.domain.diagnosis import Phase
from bot.engines._reading import causes
from bot.engines._reading.causes import Rule
from bot.engines._reading.exceptions import CHAINED, DERIVED, TRACEBACK, TYPES, Raised, raised
from bot.engines._reading.phases import Phases
from bot.engines._reading.records import Record
from bot.engines._reading.verdict import GENERIC, MARKER, NAMED, PROVEN, SYMPTOM, TYPED, Evidence, Stop, Verdict

TRACEBACK_CAP = 400
"""Lines after which an open traceback is given up."""

LOOKED_AT = 4000
"""Characters of an error's text that are searched for its cause."""

_NEAR = 3
_FAR = 1 << 60
_REFUSALS = frozenset({"ValueError", "AssertionError", "NotImplementedError", "ValidationError"})
_FLAWED = _REFUSALS | {"TypeError", "RuntimeError", "Exception", "KeyError", "JSONDecodeError"}
"""Exceptions by which engines refuse their arguments."""
_CONFIG_FRAME = re.compile(
    r"(?:server_args|arg_utils|arg_groups[\w/]*|configs?/[\w/]+|model_config|config|cli_args)\.py$"
)
_FRAME = re.compile(r'\s*File "([^"]+)", line \d+')
_USAGE = re.compile(r"^(?P<program>[\w./ -]{1,80}?): error: (?P<what>.*)")
_STARTUP_FAILED = "Application startup failed"
_BIND = re.compile(r"error while attempting to bind on address")
_SHRUGGED = re.compile(
    r"^(?:Exception ignored in|--- Logging error ---|Ignore import error|Task exception was never retrieved"
    r"|Exception in callback|Exception while exporting)|usage_lib"
)
_REQUEST = re.compile(
    r"Exception in ASGI application|[Ee]rror in (?:preprocessing|processing|request|applying|generat|\w*(?:chat"
    r"|completion))"
    r"|Error(?: occurred)? (?:while|when) (?:processing|handling|parsing|streaming|fetching|loading (?:image"
    r"|video|audio))"
    r"|[Rr]equest .{0,80}(?:failed|error|abort)|Failed to (?:fetch|load) (?:image|video|audio)|Bad ?Request"
    r"|tool (?:parser|call)|\[http_server\] [Ee]rror|in streaming"
)
_REQUEST_MODULE = re.compile(
    r"^(?:serving\w*|protocol|render\w*|tool_\w+|\w*_tool_parser|\w*reasoning\w*|preprocess|exception_handlers"
    r"|server_utils)\.py$"
)
_VALUE_ERROR = re.compile(r"\s+(?:Value|Assertion) error, (?P<message>.*)")
_DIED = re.compile(r"(?:exited|died) unexpectedly")
_KILL_TYPED = re.compile(r"[$#>%]\s*(?:sudo )?(?:kill|pkill|killall)\s")
_SHELL_END = re.compile(
    r"^\s*(?:\[\d+\]\s*[+-]?\s*(?:\d+ )?|\S+: line \d+:\s*\d+ )?(?P<how>[Kk]illed|[Tt]erminated|\^C)\b"
)
_SIGNALLED = re.compile(
    r"(?i)\b(?:received|caught|got|trigger received)\b.{0,40}\b(?P<one>SIGTERM|SIGINT|signal:? (?:15|2)\b)"
    r"|\b(?P<two>SIGTERM|SIGINT) (?:signal )?(?:received|caught)"
)
_HARD_LINE = re.compile(
    r"^(?:[\w./-]+\.(?:cu|cuh|cpp|h):\d+: .*Assertion|Failed: C|C[Uu][Dd][Aa] [Ee]rror|HIP [Ee]rror|Memory access fault"
    r"|(?:nvcc|ptxas) fatal|:\d:rocdevice\.cpp.{0,200}Aborting with error|:?\d*:?[\w./]*(?:CUDA|HIP|hip)\w* error)"
    r"|Assertion `.*` failed|Watchdog caught collective operation timeout"
)
_NOT_STARTED = re.compile(
    r"^\S*python[\d.]*: (?:No module named|Error while finding module|can't open file)"
    r"|(?:sglang|vllm|python3?).{0,40}: (?:command )?not found|: command not found: (?:sglang|vllm|python3?)"
    r"|exec: \"[^\"]+\": executable file not found|Error response from daemon: "
)
_PROBE = re.compile(r"failed liveness probe, will be restarted|Stopping container \S+|was sent SIGTERM")
_EXIT_LINE = re.compile(r"(?i)exited with code|terminated with exit code|failed \(exitcode|terminated with signal")
_NCCL_WARN = re.compile(r"NCCL WARN (.*)")
_XID = re.compile(r"NVRM: Xid \([^)]*\): (\d+),")
_APPLICATION_XIDS = frozenset({"13", "31", "43", "45"})


@dataclass(slots=True)
class Failures:
    """Looks at records for errors, endings and stops; knows an engine's own rules beside the common ones.

    ``fatal`` are lines that a process writes when it ends, ``own`` the engine's rules for errors' texts.
    """

    own: tuple[Rule, ...]
    fatal: re.Pattern[str]
    _open: int = 0
    _excused: bool = False
    _begun: str = ""
    _frame: str = ""
    _previous: str = ""
    _excuse_at: int = -_FAR
    _was_excused: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a traceback has begun and its exception is still to come."""
        return self._open > 0

    @property
    def unfinished(self) -> Evidence | None:
        """A traceback whose exception is not there (yet), if it is more than one request's."""
        if not self.is_open or self._excused or not self._begun:
            return None
        return Evidence("scheduler_exception", self._begun, causes.EXCEPTION_REMEDY, MARKER)

    def close(self) -> None:
        """The engine goes on: a traceback that is open still was that of something else, or is cut."""
        self._open = 0

    def start_anew(self) -> None:
        """Forget the run before."""
        self._open, self._excused, self._begun, self._frame, self._previous = 0, False, "", "", ""
        self._excuse_at, self._was_excused = -_FAR, False

    def machine(self, record: Record, verdict: Verdict, phases: Phases) -> None:
        """Look at a line of the kernel or of systemd."""
        text = record.text
        killed = causes.KILLED.search(text)
        xid = _XID.search(text)
        if killed is not None:
            name = killed["name"] or killed["task"] or "python"
            if causes.OURS.search(name):
                verdict.consider(_evidence(causes.KILLED_RULE, killed, record.line), fatal=bool(killed["name"]))
        elif xid is not None:
            cause = "illegal_memory_access" if xid[1] in _APPLICATION_XIDS else "other:gpu_unavailable"
            remedy = f"The GPU reported Xid {xid[1]}: drain the host and reset the GPU if it comes back."
            weight = SYMPTOM if xid[1] in _APPLICATION_XIDS else PROVEN
            verdict.consider(Evidence(cause, record.line, remedy, weight))
        elif "Main process exited" in text:
            self._ended(causes.exit_code(text), record, verdict, phases)
        elif re.search(r"Stopp(?:ing|ed) .*(?i:sglang|vllm|llm|infer)|\.service: Deactivated successfully", text):
            verdict.ask_to_stop(Stop("other:service_stopped", record.line, is_firm=False), is_up=phases.is_up)

    def look(self, record: Record, at: int, verdict: Verdict, phases: Phases) -> None:
        """Look at a record of the server or of its shell; ``at`` is its line's number."""
        if self._open:
            self._open -= 1
        is_excused = self._is_excused(record, at, is_up=phases.is_up)
        if record.is_informative and not _DIED.search(record.text):
            self._stop(record, verdict, phases)
            return
        if not (
            self._stop(record, verdict, phases)
            or self._ending(record, verdict, phases)
            or self._traceback(record, excused=is_excused)
        ):
            self._exception(record, verdict, phases, excused=is_excused)
        self._previous = record.text[:300]

    def _is_excused(self, record: Record, at: int, *, is_up: bool) -> bool:
        """Whether the error is one request's, or one that the program shrugged off."""
        if self._open:
            return self._excused
        text = record.text
        is_chained = self._was_excused and text.lstrip(" |+-").startswith(CHAINED)
        is_request = is_up and (_REQUEST_MODULE.match(record.module.rpartition("/")[2]) or _REQUEST.search(text))
        if is_chained or _SHRUGGED.search(text) or (is_request and raised(text) is None):
            self._excuse_at = at
        return at - self._excuse_at <= _NEAR or bool(is_request and record.level)

    def _traceback(self, record: Record, *, excused: bool) -> bool:
        text = record.text
        frame = _FRAME.match(text)
        if frame is not None:
            self._frame = frame[1]
            if not self._open:
                self._open, self._excused, self._begun = TRACEBACK_CAP, excused, record.line
            return True
        if TRACEBACK in text:
            self._open, self._excused, self._begun, self._frame = TRACEBACK_CAP, excused, record.line, ""
            return True
        return self._open > 0 and text[:1].isspace() and raised(text) is None and not _VALUE_ERROR.match(text)

    def _exception(self, record: Record, verdict: Verdict, phases: Phases, *, excused: bool) -> None:
        inner = _VALUE_ERROR.fullmatch(record.text)
        error = Raised("ValueError", inner["message"]) if inner else raised(record.text, in_traceback=self.is_open)
        if error is None:
            if record.level in {"ERROR", "CRITICAL", "FATAL"}:
                self._error_line(record, verdict, phases, excused=excused)
            return
        self._open, self._was_excused = 0, excused
        if error.name in {"KeyboardInterrupt", "SignalException"}:
            cause = "other:sigterm" if re.search(r"terminated|15", error.message) else "other:ctrl_c"
            verdict.interrupt(Stop(cause, record.line), is_up=phases.is_up)
            return
        evidence = self.classify(error, record.line, phases)
        if not excused or evidence.is_lethal:
            verdict.consider(evidence)

    def _error_line(self, record: Record, verdict: Verdict, phases: Phases, *, excused: bool) -> None:
        """An error that is no exception's line: it says less than one that is."""
        found = self._matched(record.text, record.line, phases)
        if found is not None and not excused:
            weight = 0.5 if DERIVED.search(record.text) else found.weight - 0.5
            verdict.consider(Evidence(found.cause, found.line, found.remedy, weight))

    def classify(self, error: Raised, line: str, phases: Phases) -> Evidence:
        """What an exception speaks for."""
        found = self._matched(f"{error.name}: {error.message}", line, phases) or self._typed(error, line, phases)
        if error.is_derived:
            return Evidence(found.cause, line, found.remedy, 0.5)
        if error.name == "ValidationError" and found.weight < NAMED:
            return Evidence(found.cause, line, found.remedy, 0.9)
        return found

    def _matched(self, text: str, line: str, phases: Phases) -> Evidence | None:
        text = text[:LOOKED_AT]
        for rule in (*self.own, *causes.ERRORS):
            match = rule.pattern.search(text)
            if match is None:
                continue
            if rule.cause == "download_failed" and phases.is_up:
                continue
            found = _evidence(rule, match, line)
            if found.remedy == "{oom}":
                loading = phases.phase in {None, Phase.SPAWNED, Phase.LOADING_WEIGHTS}
                remedy = causes.OOM_LOADING if loading else causes.OOM_RUNNING
                found = Evidence(found.cause, line, remedy, found.weight)
            return found
        return None

    def _typed(self, error: Raised, line: str, phases: Phases) -> Evidence:
        cause = TYPES.get(error.name)
        is_of_weights = phases.phase in {None, Phase.SPAWNED, Phase.LOADING_WEIGHTS}
        if cause is not None and (is_of_weights or cause not in {"model_not_found", "download_failed"}):
            remedy = next((r.remedy for r in causes.ERRORS if r.cause == cause), causes.EXCEPTION_REMEDY)
            return Evidence(cause, line, remedy, TYPED)
        if error.name in _FLAWED and not phases.is_past_start:
            is_config = _CONFIG_FRAME.search(self._frame) is not None
            is_early = phases.phase in {None, Phase.SPAWNED}
            if causes.VALUE.search(error.message) and (is_config or is_early or error.name == "ValidationError"):
                return Evidence("bad_argument", line, causes.VALUE_REMEDY, TYPED)
            says_so = error.name in _REFUSALS or is_config or is_early
            if says_so and causes.CONFLICT.search(error.message):
                return Evidence("argument_conflict", line, causes.CONFLICT_REMEDY, TYPED)
            if is_config and error.name in _REFUSALS:
                return Evidence("argument_conflict", line, causes.CONFLICT_REMEDY, 1.5)
        return Evidence("scheduler_exception", line, causes.EXCEPTION_REMEDY, GENERIC)

    def _ending(self, record: Record, verdict: Verdict, phases: Phases) -> bool:
        """Lines by which a process ends, or by which another says that it ended."""
        text = record.text
        usage = _USAGE.match(text)
        if usage is not None and (self._matched(text, record.line, phases) or "usage:" in self._previous):
            found = self._matched(text, record.line, phases)
            evidence = found or Evidence("bad_argument", record.line, causes.VALUE_REMEDY)
            verdict.consider(evidence, fatal=True)
            return True
        if _BIND.search(text):
            found = self._matched(text, record.line, phases)
            verdict.consider(found or Evidence("bad_argument", record.line, causes.HOST_REMEDY, NAMED), fatal=True)
            return True
        if _NOT_STARTED.search(text):
            found = self._matched(text, record.line, phases)
            evidence = found or Evidence("other:command_not_found", record.line, causes.COMMAND_REMEDY, NAMED)
            verdict.consider(evidence, fatal=True)
            return True
        if self.fatal.search(text) or _STARTUP_FAILED in text:
            self._fatal(record, verdict, phases)
            return TRACEBACK not in text
        return self._native(record, verdict, phases)

    def _fatal(self, record: Record, verdict: Verdict, phases: Phases) -> None:
        code = causes.exit_code(record.text)
        if code is not None and code not in {0, 1}:
            self._ended(code, record, verdict, phases)
            return
        told = raised(record.text.partition("exception: ")[2])
        found = self.classify(told, record.line, phases) if told else self._matched(record.text, record.line, phases)
        if found is None or (DERIVED.search(record.text) and TRACEBACK not in record.text):
            weight = 0.5 if TRACEBACK in record.text else MARKER
            found = Evidence("scheduler_exception", record.line, causes.EXCEPTION_REMEDY, weight)
        verdict.consider(found, fatal=True)

    def _ended(self, code: int | None, record: Record, verdict: Verdict, phases: Phases) -> None:
        """A process ended: by a negative signal, or with an exit status."""
        if code is None:
            return
        if -code in causes.ASKED:
            verdict.ask_to_stop(Stop(causes.ASKED[-code], record.line), is_up=phases.is_up)
        elif code == 0:
            verdict.ask_to_stop(Stop("other:exited", record.line, is_firm=False), is_up=phases.is_up)
        else:
            cause, remedy = causes.SIGNALS.get(-code, ("scheduler_exception", causes.EXCEPTION_REMEDY))
            weight = SYMPTOM if -code in causes.SIGNALS else MARKER
            verdict.consider(Evidence(cause, record.line, remedy, weight), fatal=True)

    def _native(self, record: Record, verdict: Verdict, phases: Phases) -> bool:
        text = record.text
        for rule in causes.NATIVE:
            match = rule.pattern.search(text)
            if match is not None:
                verdict.consider(_evidence(rule, match, record.line), fatal=True)
                return True
        if causes.KILLED.search(text):
            self.machine(record, verdict, phases)
            return True
        if _EXIT_LINE.search(text):
            self._ended(causes.exit_code(text), record, verdict, phases)
            return True
        warned = _NCCL_WARN.search(text)
        if warned is not None:
            found = self._matched(warned[1], record.line, phases)
            cause, remedy = (found.cause, found.remedy) if found else ("nccl", _nccl_remedy())
            verdict.consider(Evidence(cause, record.line, remedy, SYMPTOM))
            return True
        if _HARD_LINE.search(text):
            found = self._matched(text, record.line, phases)
            if found is not None:
                verdict.consider(found)
            return True
        return False

    def _stop(self, record: Record, verdict: Verdict, phases: Phases) -> bool:
        """Lines by which somebody asked for the end."""
        text = record.text
        signalled = _SIGNALLED.search(text)
        ended = _SHELL_END.match(text)
        if signalled is not None:
            name = signalled["one"] or signalled["two"]
            cause = "other:ctrl_c" if name.upper() == "SIGINT" or name.endswith(" 2") else "other:sigterm"
            stop = Stop(
                cause, record.line, is_firm=not record.process.startswith(("EngineCore", "Worker", "VllmWorker"))
            )
        elif ended is not None and ended["how"] != "^C" and ended["how"].lower() == "killed":
            self._killed(record, verdict, phases)
            return True
        elif ended is not None:
            stop = Stop("other:ctrl_c" if ended["how"] == "^C" else "other:sigterm", record.line)
        elif _PROBE.search(text):
            stop = Stop("other:stopped_by_kubernetes", record.line, is_firm=False)
        elif _KILL_TYPED.search(text) and phases.phase is not None:
            stop = Stop("other:killed", record.line)
        else:
            return False
        verdict.ask_to_stop(stop, is_up=phases.is_up)
        return True

    def _killed(self, record: Record, verdict: Verdict, phases: Phases) -> None:
        """The shell's bare word says only that SIGKILL came; a fleet's usual sender is the kernel out of memory."""
        if not verdict.is_fatal and phases.phase is not None:
            verdict.consider(Evidence("host_oom_killed", record.line, causes.SIGNALS[9][1], SYMPTOM), fatal=True)


def _evidence(rule: Rule, match: re.Match[str], line: str) -> Evidence:
    return Evidence(rule.cause, line, match.expand(rule.remedy), rule.weight)


def _nccl_remedy() -> str:
    return next(rule.remedy for rule in causes.ERRORS if rule.cause == "nccl")
