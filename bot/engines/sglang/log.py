"""Reads SGLang's log, 0.1 to 0.5: the phases of a start, the numbers of its service, the root of its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from bot.domain.diagnosis import Phase
from bot.engines._reading.failures import Failures
from bot.engines._reading.reader import Reader, any_of
from bot.engines._reading.records import Record
from bot.engines._reading.verdict import Stop
from bot.engines.sglang.batch import last_numbers
from bot.engines.sglang.causes import ERRORS, FATAL

_VERSION = re.compile(
    r"\bsglang(?:\[[\w,]+\])?(?:==|[ _-]version[=: ]+'?|-|/)v?(0\.\d+\.\d+(?:[.]?(?:post|rc|dev)\d+)?)"
)

_LAUNCHED = re.compile(r"^\s*server_args=(?:\w*\(|\{)")
_SEATS_ASKED = re.compile(r"\bmax_running_requests'?[=:] ?(\d{1,8})\b")
_SPAWNED = re.compile(r"Init (?:torch distributed|parallel) (?:begin|end)|Using default HuggingFace chat")
_LOAD_BEGINS = re.compile(r"(?i)\bload weight begin")
_LOAD_ENDED = re.compile(r"(?i)\bload weight end")
_POOLS = re.compile(r"(?:KV|Mamba) Cache is allocated|Memory pool (?:begin|end)")
_CAPPED = re.compile(
    r"max_running_requests is capped to (\d+) by the mamba state cache \(max_mamba_cache_size=(\d+)",
)
_CAPTURES = re.compile(r"(?i)\bCapture (?:.{0,60} )?graph (?P<edge>begin|end)|\bCapture \w+ graph bs")
_COMPILES = re.compile(r"Running FlashInfer autotune|DeepGEMM JIT|[Pp]iecewise.{0,40}compil|Compiling a graph")
_BUILDS = re.compile(r"Loading JIT ops|\[aiter\] start build|JIT compil")
_LIMITS = re.compile(r"\bmax_total_num_tokens?=\d+, .{0,300}?\bcontext_len=")
_HTTP = re.compile(r"Started server process|Waiting for application st|Application startup complete|Uvicorn running on")
_READY = re.compile(r"The server is fired up and ready to roll")
_RETRACTED = re.compile(r"pool is full\. Retract requests|#retracted_reqs: \d+")

_LIMIT_FIELDS = re.compile(
    r"\b(?:(max_total_num_token|max_running_request|context_len)s?=(\d+)|available_\w+_mem=(\d+(?:\.\d+)?) ?GB)",
)
_LIMIT_NAMES = {
    "max_total_num_token": "max_total_num_tokens",
    "max_running_request": "max_running_requests",
    "context_len": "context_len",
    "": "available_gpu_mem_gb",
}
_KV_TOKENS = re.compile(r"KV Cache is allocated\..{0,200}?#tokens: (\d+)")
_MAMBA_SIZE = re.compile(r"max_mamba_cache_size[=:] ?(\d+)")

_WEIGHT_BAR = re.compile(
    r"Loading (?:safetensors|pt|np_?cache|GGUF|checkpoint|shards)[\w .]*(?:shards|using [\w ]+)?:|Multi-thread loading",
)
_GRAPH_BAR = re.compile(
    r"(?i)Captur(?:e|ing) [\w -]{0,60}\(|Capturing (?:batches|num tokens|prefill|[\w -]{0,40}graphs?)\b"
)
_BARE_BAR = re.compile(r"\s*\d{1,3}%\|")
_COMPILE_BAR = re.compile(r"Compiling num tokens|DeepGEMM warm ?up|torch\.compile|[Aa]utotun\w*")

_GENERATES = re.compile(rb'"POST /(?:generate|encode|classify|v1/(?!loads))')

_ASKED_TO_STOP = re.compile(r"SIGTERM received|Gracefully exiting|SIGINT received")
_UVICORN_DOWN = re.compile(r"^(?:Shutting down|Finished server process)")
_HEALTH_FAILED = "Health check failed. Server couldn't get a response"
_DEPRECATED = re.compile(
    r"(?<![\w-])(--[\w-]{1,60})['\"]? (?:is|are|has been) deprecated|deprecated.{0,40}?(--[\w-]{1,60})",
)

_WORDS = (
    'rror,File ",ERR,xcept,ceback,Load,load,ptur,memory,Memory,plication startup,utdown,utting down,xit,kill,Kill,'
    "llegal,failed,Failed,died,dead,JIT,mpil,utotun,NCCL,CUDA,Cuda,HIP,bort,fault,Fault,rtion `,SIG,Terminat,"
    "terminat,rrupt,^C,cefully,precat,%|,Xid,OOM,oom-,Stopp,vated succ,not found,No module,free(),Fatal,fatal,"
    "Timeout,Empty,Uvicorn,ver process,Bus error,was sent,weight,llocated,ver_args,ver is fired,hdog,EMM,"
    "retract,Retract,gquit,chat templ,[aiter,fill batch,crash,unbal,glang,max_total,max_running,graph ,Graph ,"
    "Init torch,Init par,Health check"
)
"""Pieces of words, one of which stands in every line that may matter; rare letters first make it fast."""


class SglangReader(Reader):
    """Reads one SGLang log; a LogReader."""

    engine = "sglang"
    words = tuple(_WORDS.encode().split(b","))
    _is_telling = any_of(words)

    def __init__(self) -> None:
        super().__init__(Failures(ERRORS, FATAL))
        self._events: tuple[tuple[re.Pattern[str], Callable[[Record, re.Match[str]], None]], ...] = (
            (_LAUNCHED, self._launched),
            (_LIMITS, self._limits),
            (_LOAD_BEGINS, self._load_begins),
            (_LOAD_ENDED, self._load_ended),
            (_SPAWNED, self._spawned),
            (_POOLS, self._pools),
            (_CAPPED, self._capped),
            (_CAPTURES, self._captures),
            (_COMPILES, self._compiles),
            (_BUILDS, self._builds),
            (_HTTP, self._http),
            (_READY, self._ready),
            (_RETRACTED, self._retracted),
        )

    def _event(self, record: Record) -> bool:
        text = record.text
        if self._version is None and (found := _VERSION.search(text)):
            self._version = found[1]
        if "#running-req: " in text or "new fill batch." in text:
            self._traffic([text.encode()])
            return True
        if self._bars(text):
            return True
        for pattern, act in self._events:
            match = pattern.search(text)
            if match is not None:
                act(record, match)
                return True
        return self._ends(record) or self._notes(record)

    def _bars(self, text: str) -> bool:
        if "%" not in text:
            return False
        if _WEIGHT_BAR.search(text):
            return self._bar(Phase.LOADING_WEIGHTS, text)
        if _COMPILE_BAR.search(text):
            return self._bar(Phase.JIT_COMPILING, text)
        is_capture = self._phases.phase is Phase.CAPTURING_GRAPHS and _BARE_BAR.match(text)
        return bool(is_capture or _GRAPH_BAR.search(text)) and self._bar(Phase.CAPTURING_GRAPHS, text)

    def _launched(self, record: Record, _match: re.Match[str]) -> None:
        self._launch()
        asked = _SEATS_ASKED.search(record.text)
        self._seats_asked = int(asked[1]) if asked is not None else None

    def _spawned(self, record: Record, _match: re.Match[str]) -> None:
        if self._phases.phase in {None, Phase.SPAWNED}:
            self._began(Phase.SPAWNED, record.rank)

    def _load_begins(self, record: Record, _match: re.Match[str]) -> None:
        self._load(record)

    def _load_ended(self, record: Record, _match: re.Match[str]) -> None:
        self._within_start(Phase.ALLOCATING_CACHE, record)

    def _pools(self, record: Record, _match: re.Match[str]) -> None:
        for pattern, name in ((_KV_TOKENS, "kv_tokens"), (_MAMBA_SIZE, "max_mamba_cache_size")):
            found = pattern.search(record.text)
            if found is not None:
                self._numbers[name] = float(found[1])
        if self._phases.phase is not Phase.CAPTURING_GRAPHS:
            self._within_start(Phase.ALLOCATING_CACHE, record)

    def _capped(self, _record: Record, match: re.Match[str]) -> None:
        self._numbers["max_mamba_cache_size"] = float(match[2])
        self._warn(
            "capped", f"max_running_requests is capped to {match[1]} by the Mamba state cache ({match[2]} slots)"
        )

    def _captures(self, record: Record, match: re.Match[str]) -> None:
        self._within_start(Phase.CAPTURING_GRAPHS, record)
        if match["edge"] == "begin" and not self._phases.is_past_start:
            self._phases.begin_pass()

    def _compiles(self, record: Record, _match: re.Match[str]) -> None:
        self._within_start(Phase.JIT_COMPILING, record)

    def _builds(self, record: Record, _match: re.Match[str]) -> None:
        """A kernel is built or loaded: a phase of its own before the capture, and a part of it within."""
        if self._phases.phase is Phase.ALLOCATING_CACHE:
            self._began(Phase.JIT_COMPILING, record.rank)

    def _limits(self, record: Record, _match: re.Match[str]) -> None:
        for name, count, memory in _LIMIT_FIELDS.findall(record.text):
            self._numbers[_LIMIT_NAMES[name]] = float(count or memory)
        if self._phases.phase in {None, Phase.SPAWNED, Phase.LOADING_WEIGHTS}:
            self._within_start(Phase.ALLOCATING_CACHE, record)
        self._live()

    def _http(self, _record: Record, _match: re.Match[str]) -> None:
        if not self._phases.is_up:
            self._began(Phase.WARMING_UP)
            self._is_warming_up = True

    def _ready(self, _record: Record, _match: re.Match[str]) -> None:
        self._is_ready()

    def _retracted(self, record: Record, _match: re.Match[str]) -> None:
        self._degraded = (record.line, "Once a minute is fine; more often, raise --schedule-conservativeness to 1.3.")
        self._warn("retracted", "The KV cache was full, and running requests were put back")
        self._serve()

    def _ends(self, record: Record) -> bool:
        text = record.text
        if _ASKED_TO_STOP.search(text):
            stop = Stop("other:ctrl_c" if "SIGINT" in text else "other:sigterm", record.line)
        elif _UVICORN_DOWN.search(text):
            stop = Stop("other:shutdown_requested", record.line, is_firm=False)
        else:
            return False
        self._verdict.ask_to_stop(stop, is_up=self._phases.is_up)
        return True

    def _notes(self, record: Record) -> bool:
        if _HEALTH_FAILED in record.text:
            self._degraded = (
                record.line,
                "Look if tokens still move: a long prefill or compile does this too, a hang stays.",
            )
            self._warn("health", "A health check got no answer within its time")
            return True
        deprecated = _DEPRECATED.search(record.text)
        if deprecated is not None:
            flag = deprecated[1] or deprecated[2]
            self._warn(f"deprecated {flag}", f"{flag} is deprecated")
        return deprecated is not None

    @classmethod
    def _telling(cls, line: bytes) -> bool:
        at = line.find(b"#running-req: ")
        if at >= 0:  # traffic; a bracket after its numbers begins a record that is glued to it
            return line.find(b"[", at) >= 0
        return cls._is_telling(line) is not None and not _is_answer(line)

    @staticmethod
    def _is_traffic(line: bytes) -> bool:
        return b"#running-req: " in line or _is_answer(line)

    def _traffic(self, lines: Sequence[bytes]) -> None:
        self._numbers.update(last_numbers(lines))
        self._live(len(lines))
        if any(b"cuda graph: False" in line and b"gen throughput" in line for line in lines):
            self._warn("graph", "Decoding ran without CUDA graphs")
        if self._phases.phase is not Phase.WARMING_UP or any(b"gen throughput" in line for line in lines):
            self._serve()

    def _serve(self) -> None:
        if self._phases.phase in {None, Phase.WARMING_UP, Phase.READY}:
            self._phases.reach(Phase.SERVING)


def _is_answer(line: bytes) -> bool:
    """Whether it tells of a request that was answered."""
    return b'"POST /' in line and b'" 200' in line and _GENERATES.search(line) is not None
