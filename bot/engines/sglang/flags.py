"""What stops SGLang's flags from working in a given version: names that changed, and values that exclude each other.

The versions were read in the releases' own sources (0.5.9, 0.5.10, 0.5.12, 0.5.13, 0.5.14, 0.5.19, 0.5.20 and
0.5.23). A rule speaks only where the flags say for sure that it applies: which models are hybrids is not known
here, so the Mamba rules need a Mamba strategy among the flags.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from bot.domain.engine import FlagProblem
from bot.domain.flags import Flags
from bot.engines._knowing import Finding, Rename, bad_values, mended, problems, unknown_flags, with_flag
from bot.engines._versions import Version, parsed

_NEW, _OLD = "mamba-radix-cache-strategy", "mamba-scheduler-strategy"
_STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
_STRICT, _RENAMED, _GONE = (0, 5, 10), (0, 5, 14), (0, 5, 20)

RENAMES = (
    Rename(_OLD, _NEW, _RENAMED, _GONE),
    Rename("cuda-graph-max-bs", "cuda-graph-max-bs-decode", _RENAMED, _GONE),
    Rename("cuda-graph-bs", "cuda-graph-bs-decode", _RENAMED, _GONE),
    Rename("piecewise-cuda-graph-max-tokens", "cuda-graph-max-bs-prefill", _RENAMED, _GONE),
    Rename("piecewise-cuda-graph-tokens", "cuda-graph-bs-prefill", _RENAMED, _GONE),
    Rename("piecewise-cuda-graph-compiler", "cuda-graph-tc-compiler", _RENAMED, _GONE),
    Rename("disable-piecewise-cuda-graph", "cuda-graph-backend-prefill", _RENAMED, _GONE, "disabled"),
    Rename("enforce-piecewise-cuda-graph", "cuda-graph-backend-prefill", _RENAMED, _GONE, "tc_piecewise"),
    Rename("enable-breakable-cuda-graph", "cuda-graph-backend-prefill", _RENAMED, _GONE, "breakable"),
    Rename("enable-nsa-prefill-context-parallel", "enable-prefill-cp", _RENAMED, _GONE),
    Rename("nsa-prefill-backend", "dsa-prefill-backend", (0, 5, 13), _GONE),
    Rename("nsa-decode-backend", "dsa-decode-backend", (0, 5, 13), _GONE),
    Rename("speculative-dflash-draft-window-size", "speculative-draft-window-size", (0, 5, 12), _GONE),
)


def check(version: str, known: frozenset[str], flags: Flags) -> tuple[FlagProblem, ...]:
    """What would stop these flags in that version; without ``known`` only what the version's number tells."""
    number = parsed(version)
    program = f"sglang {version}" if version else "this sglang"
    findings = list(unknown_flags(program, number, known, flags, RENAMES))
    if number is not None:
        findings.extend(_conflicts(_Asked.of(program, number, mended(flags, findings))))
    findings.extend(bad_values(known, flags, findings))
    return problems(flags, findings)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The flags that the Mamba rules are about."""

    program: str
    version: Version
    flags: Flags
    name: str
    strategy: str

    @staticmethod
    def of(program: str, version: Version, flags: Flags) -> _Asked:
        name = next((one for one, _values in reversed(flags.items) if one in (_NEW, _OLD)), _NEW)
        return _Asked(program, version, flags, name, flags.value(name) or "")

    def has(self, name: str) -> bool:
        return self.flags.get(name) is not None

    @property
    def keeps_radix(self) -> bool:
        return not self.has("disable-radix-cache")

    @property
    def speculates(self) -> bool:
        return self.has("speculative-algorithm") or self.has("speculative-num-draft-tokens")


def _conflicts(asked: _Asked) -> Iterator[Finding]:
    if not asked.strategy:
        return
    if asked.strategy not in _STRATEGIES:
        yield _no_such_strategy(asked)
    elif asked.version >= _RENAMED:
        if asked.keeps_radix:
            yield from _since_rename(asked)
    elif asked.version >= _STRICT:
        yield from _before_rename(asked)
    if asked.strategy == "extra_buffer_lazy":
        yield from _lazy(asked)
    if asked.strategy.startswith("extra_buffer") and asked.version >= _STRICT and asked.keeps_radix:
        yield from _track_interval(asked)


def _no_such_strategy(asked: _Asked) -> Finding:
    close = difflib.get_close_matches(asked.strategy[:50], _STRATEGIES, n=1, cutoff=0.6)
    hint = f"; the nearest is {close[0]}" if close else ""
    return Finding(asked.name, f"--{asked.name} has no choice {asked.strategy!r}{hint}")


def _since_rename(asked: _Asked) -> Iterator[Finding]:
    """From 0.5.14 an explicit no_buffer is checked by assertions at launch instead of being made to fit."""
    if asked.strategy != "no_buffer":
        return
    if not asked.has("disable-overlap-schedule"):
        yield Finding(
            asked.name,
            f"{asked.program} starts no_buffer only with --disable-overlap-schedule (since 0.5.14 it no longer"
            " switches overlap off by itself)",
            with_flag("disable-overlap-schedule"),
        )
    page = asked.flags.value("page-size")
    if page not in (None, "1"):
        yield Finding(
            "page-size",
            f"{asked.program} starts no_buffer only with --page-size 1, not {page}",
            with_flag("page-size", "1"),
        )
    if asked.flags.value("attention-backend") == "trtllm_mha":
        yield Finding("attention-backend", f"{asked.program} can't run no_buffer with --attention-backend trtllm_mha")


def _before_rename(asked: _Asked) -> Iterator[Finding]:
    """From 0.5.10 to 0.5.13 combinations that lose the radix cache or the overlap end with an error."""
    if asked.strategy in ("no_buffer", "auto") and asked.speculates and asked.keeps_radix:
        yield _speculation_without_buffer(asked)
    if asked.strategy.startswith("extra_buffer") and not asked.keeps_radix:
        yield Finding(
            asked.name,
            f"{asked.program} refuses {asked.strategy} with --disable-radix-cache; without a radix cache no_buffer"
            " does the same and keeps overlap scheduling",
            with_flag(asked.name, "no_buffer"),
        )
    uses_flashinfer = asked.flags.value("linear-attn-decode-backend") == "flashinfer"
    if asked.strategy == "no_buffer" and uses_flashinfer and asked.version < (0, 5, 12):
        yield Finding(
            "linear-attn-decode-backend",
            f"{asked.program} can't run no_buffer with --linear-attn-decode-backend flashinfer; extra_buffer can",
            with_flag(asked.name, "extra_buffer"),
        )


def _speculation_without_buffer(asked: _Asked) -> Finding:
    means = "no_buffer" if asked.strategy == "no_buffer" else "auto, which means no_buffer there,"
    why = f"{asked.program} refuses speculative decoding with {means} while the radix cache is on; extra_buffer works"
    if asked.version < (0, 5, 12):
        return Finding(asked.name, f"{why} together with SGLANG_ENABLE_SPEC_V2=1 in the environment")
    return Finding(asked.name, why, with_flag(asked.name, "extra_buffer"))


def _lazy(asked: _Asked) -> Iterator[Finding]:
    plain = with_flag(asked.name, "extra_buffer")
    if asked.version < (0, 5, 13):
        why = f"{asked.program} has no extra_buffer_lazy (it came with 0.5.13); it has extra_buffer"
        yield Finding(asked.name, why, plain)
    elif asked.speculates and asked.version < (0, 5, 19) and asked.keeps_radix:
        yield Finding(
            asked.name,
            f"{asked.program} can't run extra_buffer_lazy with speculative decoding (it can from 0.5.19);"
            " extra_buffer can",
            plain,
        )
    elif asked.keeps_radix and asked.flags.value("disaggregation-mode") in ("prefill", "decode"):
        yield Finding(asked.name, f"{asked.program} can't run extra_buffer_lazy in a prefill/decode split", plain)


def _track_interval(asked: _Asked) -> Iterator[Finding]:
    interval = _whole(asked.flags.value("mamba-track-interval"))
    page, drafts = (_whole(asked.flags.value(name)) for name in ("page-size", "speculative-num-draft-tokens"))
    if interval is None:
        return
    if page and interval % page:
        why = f"--mamba-track-interval {interval} must be a multiple of --page-size {page}"
        yield Finding("mamba-track-interval", why)
    if drafts and interval < drafts:
        why = f"--mamba-track-interval {interval} must be at least --speculative-num-draft-tokens {drafts}"
        yield Finding("mamba-track-interval", why)


def _whole(word: str | None) -> int | None:
    return int(word) if word and word.isascii() and word.isdecimal() and len(word) < 10 else None
