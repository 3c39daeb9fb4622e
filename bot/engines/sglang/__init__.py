"""SGLang, 0.4 to 0.5.23: how it is launched, recognised, asked and read.

Which endpoint exists in which version was read in the sources of those releases. ``/get_load`` (0.5.2–0.5.20)
is left out on purpose: it asks the scheduler and, where it is gone, fills the server's own log with 404s.
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
from bot.engines.sglang import caches, http
from bot.engines.sglang import flags as rules
from bot.engines.sglang.log import SglangReader

_DEFAULT_PORT = 30_000
_LAUNCHER = "sglang.launch_server"
_SIMULATED = "bot.demo.engine"
_COMMANDS = frozenset({"sglang", "sglang.cli.main"})
_FILE = "sglang/launch_server.py"


class Sglang:
    """What Upbot knows of SGLang."""

    name = "sglang"
    health_path = "/health"
    instant_paths = ("/ready", "/model_info", "/get_model_info")
    """``/ready`` exists since 0.5.20 and ``/model_info`` since 0.5.6; a 404 means: ask the next."""
    load_paths = ("/metrics", "/v1/loads")
    config_paths = ("/server_info", "/get_server_info")
    """The older name logs a warning at every call since 0.5.9: it is for what answers 404 to the first."""
    metric_names = http.WANTED
    warm_up = WarmUp(
        "/generate", b'{"text":"1 2 3","sampling_params":{"max_new_tokens":4,"temperature":0,"ignore_eos":true}}'
    )

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
        return SglangReader()

    def version_argv(self, server: Server) -> tuple[str, ...]:
        asks_launcher = ((_LAUNCHER, ()),)
        return _asking.question(
            server,
            distributions=("sglang",),
            own=dict.fromkeys((_LAUNCHER, *sorted(_COMMANDS)), asks_launcher),
            extra=dict.fromkeys(_COMMANDS, ("--model-type",)),
        )

    def caches_used(self, version: str | None, flags: Flags) -> tuple[KernelCache, ...]:
        return caches.used(version, flags)

    def check(self, version: str, known: frozenset[str], flags: Flags) -> tuple[FlagProblem, ...]:
        return rules.check(version, known, flags)


def _main_words(entry: Entry | None) -> tuple[str, ...] | None:
    """The words after the entry of a server's main process; None for benches, routers, children and the like."""
    if entry is None or entry.only_asks:
        return None
    if entry.module in (_LAUNCHER, _SIMULATED) or (entry.python and entry.script.endswith(_FILE)):
        return entry.rest
    if (entry.module or entry.program) in _COMMANDS and entry.rest[:1] == ("serve",):
        return entry.rest[1:]
    return None


ENGINE = Sglang()
