"""Reads a log of which nobody said by which engine it was written."""

from __future__ import annotations

import re
from dataclasses import replace

from bot.domain.diagnosis import Diagnosis
from bot.engines._reading.lines import SLICE, Cutter
from bot.engines._reading.reader import Reader
from bot.engines.sglang.log import SglangReader
from bot.engines.vllm.log import VllmReader

_SURE = re.compile(
    rb"(?P<sglang>Load weight (?:begin|end)|load weight (?:begin|end)|The server is fired up|sglang::"
    rb"|sglang\.launch_server"
    rb"|(?:Decode|Prefill) batch(?: \[\d+\])?[.,] ?#|\bserver_args=|launch_server\.py: error|sglang(?: serve)?: error"
    rb"|sglang/srt|sglang/launch_server|Scheduler hit an exception|Received sigquit from a child|usage: sglang"
    rb"|#running-req: \d|max_total_num_tokens=\d+, |usage: launch_server\.py|SGLangEngine|sglang\.service|sglang serve"
    rb"|Init torch distributed begin|scheduler (?:is dead|died during)|Mamba Cache is allocated|Memory pool end\.)"
    rb"|(?P<vllm>\((?:A[Pp][Ii]Server|EngineCore|VllmWorker|Worker)\w*[ )(]|Avg prompt throughput: |vLLM API server"
    rb"|vllm(?: serve)?: error|vllm/(?:v1|entrypoints|engine)/|api_server\.py: error|LLM engine \(v|VLLM::|vllm serve"
    rb"|EngineCore (?:failed|hit|encountered)|Engine core initialization failed|usage: vllm|\[core\.py:\d+\]"
    rb"|Starting vLLM|vLLM to use /|# (?:GPU|cuda|CUDA) blocks: |non-default args: \{|WorkerProc (?:hit|failed))"
)
_HINT = re.compile(
    rb"(?P<sglang>sglang|SGLang|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [DTPE]P\d+)*\] )|(?P<vllm>vllm|vLLM|VLLM"
    rb"|\b(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d "
    rb"|^(?:INFO|ERROR): {4,5}\S)"
)
_LINES_OF_HINTS = 5000


class AnyReader:
    """Reads with all readers until a line settles whose log it is; a LogReader.

    The first line that only one engine writes settles it. Without one, the engine that is named more often is
    taken, and none when neither is named.
    """

    def __init__(self) -> None:
        self._cutter = Cutter()
        self._readers: dict[str, Reader] = {"sglang": SglangReader(), "vllm": VllmReader()}
        self._hints = dict.fromkeys(self._readers, 0)
        self._seen = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        if len(self._readers) > 1:
            for begin in range(0, len(data), SLICE):
                self._weigh(self._cutter.cut(data[begin : begin + SLICE]))
        for reader in self._readers.values():
            reader.feed(data)

    def diagnosis(self) -> Diagnosis:
        """What the log says up to here; ``engine`` is None while nothing tells it."""
        engine, is_known = self._guess()
        diagnosis = self._readers[engine].diagnosis()
        return diagnosis if is_known else replace(diagnosis, engine=None)

    def _guess(self) -> tuple[str, bool]:
        if len(self._readers) == 1:
            return next(iter(self._readers)), True
        rest = self._cutter.rest
        match = _SURE.search(rest)
        if match is not None:
            return str(match.lastgroup), True
        hints = dict(self._hints)
        _count(rest, hints)
        engine = max(hints, key=lambda name: hints[name])
        return engine, hints[engine] > 0

    def _weigh(self, lines: list[bytes]) -> None:
        for line in lines:
            match = _SURE.search(line)
            if match is not None:
                self._readers = {str(match.lastgroup): self._readers[str(match.lastgroup)]}
                self._cutter = Cutter()
                return
            if self._seen < _LINES_OF_HINTS:
                self._seen += 1
                _count(line, self._hints)


def _count(line: bytes, hints: dict[str, int]) -> None:
    match = _HINT.search(line)
    if match is not None and match.lastgroup is not None:
        hints[match.lastgroup] += 1
