"""Reads vLLM's log, 0.6 to 0.33: the phases of a start, the numbers of its service, the root of its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from bot.domain.diagnosis import Phase
from bot.engines._reading.failures import Failures
from bot.engines._reading.reader import Reader, any_of
from bot.engines._reading.records import Record
from bot.engines._reading.verdict import Stop
from bot.engines.vllm.causes import ERRORS, FATAL
from bot.engines.vllm.stats import accepted, last_numbers

_VERSION = re.compile(
    r"(?:LLM engine \(v?|API server version:? v?|[ █▀▄] version v?|\bvllm==|vLLM version:? v?)(\d+\.\d+[\w.+]*)",
)
_SEATS_ASKED = re.compile(r"\bmax_num_seqs'?[=:] ?(\d{1,8})\b")
_LAUNCHED = re.compile(r"vLLM API server version|non-default args: |^args: Namespace\(|^\s*vLLM version|█ +version ")
_SPAWNED = re.compile(
    r"Initializing an? (?:V\d )?LLM engine|rank \d+ in world size|distributed_init_method|Resolved architecture"
    r"|Automatically detected platform",
)
_LOADING = re.compile(r"Starting to load (?:model|draft)|Loading draft(?:er)? model|Loading model from scratch")
_WEIGHTS_IN = re.compile(r"Loading (?:model )?weights took [\d.]+ s")
_LOADED = re.compile(r"[Mm]odel (?:loading|weights) (?:took|take)")
_COMPILING = re.compile(
    r"Dynamo bytecode transform|Compiling a graph|torch\.compile (?:takes|took)|Start compiling function"
    r"|Directly load (?:the )?compiled graph|Cache the graph|[Aa]utotun(?:e|ing)|DeepGEMM.{0,40}(?:warm|JIT)"
    r"|Warming up model for the compilation|saved AOT compiled|for (?:vLLM's )?torch\.compile$|Compiling .{0,60}graph",
)
_ALLOCATING = re.compile(
    r"Available KV cache memory|KV cache size: |# (?:GPU|cuda|CPU|NPU|\w+) blocks|Maximum concurrency for"
    r"|Memory profiling (?:takes|results)|the current vLLM instance can use|for KV cache on node"
    r"|Setting attention block size",
)
_CAPTURING = re.compile(r"Capturing (?:the model|(?:CUDA|NPU|ACL)? ?(?:cuda)?graphs?)|Graph capturing finished")
_READY = re.compile(r"Application startup complete|Uvicorn running on")
_GOES_ON = re.compile(r"init engine \(|Starting vLLM (?:API )?server|Started server process|Waiting for application st")

_NUMBERS = (
    (re.compile(r"Available KV cache memory: (-?\d+(?:\.\d+)?) GiB"), "available_kv_cache_gib"),
    (re.compile(r"KV cache size: (\d[\d,]*) tokens"), "kv_tokens"),
    (re.compile(r"Maximum concurrency for [\d,]+ tokens per request: (\d+(?:\.\d+)?)x"), "max_concurrency_x"),
    (re.compile(r"[Mm]odel (?:loading|weights) (?:took|take) (\d+(?:\.\d+)?) ?GiB"), "model_memory_gib"),
)
_WEIGHT_BAR = re.compile(
    r"Loading [\w .-]{0,60}(?:shards|weights)[\w .-]{0,60}:|Multi-thread loading|Loading safetensors using",
)
_GRAPH_BAR = re.compile(r"Capturing (?:CUDA|NPU|ACL|XPU|HIP)? ?(?:cuda)?graphs?|Capturing cudagraph")
_COMPILE_BAR = re.compile(r"[Cc]ompil(?:e|ing)|DeepGEMM warm ?up|[Aa]utotun\w*|JIT")

_ASKED_TO_STOP = re.compile(
    r"\[shutdown\] API server: shutdown triggered|Received (?:SIGTERM|SIGINT)|^Gracefully stopping"
)
_DOWN = re.compile(
    r"^(?:Shutting down|Finished server process)|Shutting down FastAPI HTTP server|EngineCore: trigger received signal",
)
_PREEMPTED = re.compile(r"preempted by|is preempted")
_PREEMPTIONS = "Requests were preempted: the KV cache is too small for this load"
_EAGER = re.compile(r"Cudagraph is disabled under eager mode|CUDA graphs? (?:is|are) disabled|Falling back to eager")
_HUNG = 3
_STILL = re.compile(
    rb"prompt throughput: 0\.0 tokens/s, Avg generation throughput: 0\.0 tokens/s, Running: [1-9]\d* reqs",
)
_WAITING = "shared memory broadcast block found"
_DEPRECATED = re.compile(
    r"(?<![\w-])(--[\w-]{1,60})['\"`]? (?:is|are|has been) deprecated|deprecated.{0,40}?(--[\w-]{1,60})",
)

_WORDS = (
    'rror,File ",ERR,xcept,ceback,Load,load,ptur,memory,Memory,plication startup,utdown,utting down,xit,kill,Kill,'
    "llegal,failed,Failed,died,dead,JIT,mpil,utotun,NCCL,CUDA,Cuda,HIP,bort,fault,Fault,rtion `,SIG,Terminat,"
    "terminat,rrupt,^C,cefully,precat,%|,Xid,OOM,oom-,Stopp,vated succ,not found,No module,free(),Fatal,fatal,"
    "Timeout,Empty,Uvicorn,ver process,Bus error,was sent,ver version,vLLM,preempt,Preempt,ynamo,ersion,ngine,"
    "KV cache,concurrency,blocks,block found,block size,args,cceptance,rofil,took,takes,eager,rank ,graph,platform,"
    "architecture"
)
"""Pieces of words, one of which stands in every line that may matter; rare letters first make it fast."""


class VllmReader(Reader):
    """Reads one vLLM log; a LogReader."""

    engine = "vllm"
    words = tuple(_WORDS.encode().split(b","))
    _is_telling = any_of(words)

    def __init__(self) -> None:
        super().__init__(Failures(ERRORS, FATAL))
        self._events: tuple[tuple[re.Pattern[str], Callable[[Record], None]], ...] = (
            (_LAUNCHED, self._launched),
            (_SPAWNED, self._spawned),
            (_LOADING, self._load),
            (_WEIGHTS_IN, self._weights_in),
            (_LOADED, self._loaded),
            (_COMPILING, self._compiling),
            (_ALLOCATING, self._allocating),
            (_CAPTURING, self._capturing),
            (_READY, self._ready),
            (_GOES_ON, self._goes_on),
        )

    def _start_anew(self) -> None:
        super()._start_anew()
        self._still = 0

    def _event(self, record: Record) -> bool:
        text = record.text
        if self._version is None and (found := _VERSION.search(text)):
            self._version = found[1].rstrip(".")
        if "Avg prompt throughput: " in text:
            self._traffic([text.encode()])
            return True
        if record.level in {"ERROR", "CRITICAL"}:
            return False
        if self._bars(text):
            return True
        self._count(text)
        for pattern, act in self._events:
            if pattern.search(text):
                act(record)
                return True
        return self._ends(record) or self._notes(record)

    def _count(self, text: str) -> None:
        for pattern, name in _NUMBERS:
            found = pattern.search(text)
            if found is not None:
                self._numbers[name] = float(found[1].replace(",", ""))

    def _bars(self, text: str) -> bool:
        if "%" not in text:
            return False
        if _WEIGHT_BAR.search(text):
            return self._bar(Phase.LOADING_WEIGHTS, text)
        if _GRAPH_BAR.search(text):
            return self._bar(Phase.CAPTURING_GRAPHS, text)
        return _COMPILE_BAR.search(text) is not None and self._bar(Phase.JIT_COMPILING, text)

    def _launched(self, record: Record) -> None:
        self._launch()
        asked = _SEATS_ASKED.search(record.text)
        if asked is not None:
            self._seats_asked = int(asked[1])

    def _spawned(self, record: Record) -> None:
        if self._phases.phase in {None, Phase.SPAWNED}:
            self._began(Phase.SPAWNED, record.rank)

    def _weights_in(self, record: Record) -> None:
        if self._phases.phase in {None, Phase.SPAWNED}:
            self._began(Phase.LOADING_WEIGHTS, record.rank)
        self._live()

    def _loaded(self, record: Record) -> None:
        self._within_start(Phase.ALLOCATING_CACHE, record)

    def _compiling(self, record: Record) -> None:
        self._within_start(Phase.JIT_COMPILING, record)

    def _allocating(self, record: Record) -> None:
        self._within_start(Phase.ALLOCATING_CACHE, record)

    def _capturing(self, record: Record) -> None:
        self._within_start(Phase.CAPTURING_GRAPHS, record)

    def _ready(self, _record: Record) -> None:
        self._is_ready()

    def _goes_on(self, _record: Record) -> None:
        self._live()
        if self._phases.phase is None:
            self._phases.reach(Phase.SPAWNED)

    def _ends(self, record: Record) -> bool:
        text = record.text
        if _ASKED_TO_STOP.search(text):
            stop = Stop("other:ctrl_c" if "SIGINT" in text else "other:sigterm", record.line)
        elif _DOWN.search(text):
            stop = Stop("other:shutdown_requested", record.line, is_firm=False)
        else:
            return False
        self._verdict.ask_to_stop(stop, is_up=self._phases.is_up)
        return True

    def _notes(self, record: Record) -> bool:
        text = record.text
        length = accepted(text)
        deprecated = _DEPRECATED.search(text)
        if length is not None:
            self._numbers["accept_len"] = length
        elif _PREEMPTED.search(text):
            self._degraded = (record.line, "Lower --max-num-seqs, or raise --gpu-memory-utilization.")
            self._warn("preempted", _PREEMPTIONS)
        elif _WAITING in text:
            self._warn("waiting", "Its ranks have waited a minute for each other: one compiles, or hangs")
        elif _EAGER.search(text):
            self._warn("graph", "It runs without CUDA graphs (eager mode)")
        elif deprecated is not None:
            flag = deprecated[1] or deprecated[2]
            self._warn(f"deprecated {flag}", f"{flag} is deprecated")
        else:
            return False
        return True

    @classmethod
    def _telling(cls, line: bytes) -> bool:
        at = line.find(b"Avg prompt throughput: ")
        if at >= 0:  # traffic; a bracket after its numbers begins a record that is glued to it
            return line.find(b"[", at) >= 0
        return cls._is_telling(line) is not None and not _is_answer(line)

    @staticmethod
    def _is_traffic(line: bytes) -> bool:
        return b"Avg prompt throughput: " in line or _is_answer(line)

    def _traffic(self, lines: Sequence[bytes]) -> None:
        self._numbers.update(last_numbers(lines))
        self._hung(lines)
        if any(b", Preemptions: " in line for line in lines):
            self._warn("preempted", _PREEMPTIONS)
        self._live(len(lines))
        if self._phases.phase in {None, Phase.READY}:
            self._phases.reach(Phase.SERVING)

    def _hung(self, lines: Sequence[bytes]) -> None:
        """Requests that run without a token: three lines of it in a row are worth telling, until tokens come."""
        for line in lines:
            if _STILL.search(line):
                self._still += 1
            elif b"Avg prompt throughput: " in line:
                self._still = 0
        if self._still >= _HUNG:
            self._warn("hung", f"Requests run and no token came in {self._still} reports: it hangs")
        else:
            self._warnings.pop("hung", None)


def _is_answer(line: bytes) -> bool:
    """Whether it tells of a request that was answered; most of them carry no number."""
    return b'"POST /' in line and b'" 200' in line
