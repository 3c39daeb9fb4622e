"""What stops vLLM's flags from working in a given version; vLLM itself refuses them at once, with exit status 2."""

from __future__ import annotations

from collections.abc import Iterator

from bot.domain.engine import FlagProblem
from bot.domain.flags import Flags
from bot.engines._knowing import Finding, bad_values, problems, unknown_flags, without_flag
from bot.engines._versions import parsed


def check(version: str, known: frozenset[str], flags: Flags) -> tuple[FlagProblem, ...]:
    """What would stop these flags in that version; nothing can be said of names without ``known``."""
    program = f"vllm {version}" if version else "this vllm"
    findings = [_quiet_requests(one, known) for one in unknown_flags(program, parsed(version), known, flags, ())]
    findings.extend(_bad_values(flags))
    findings.extend(bad_values(known, flags, findings))
    return problems(flags, findings)


def _quiet_requests(finding: Finding, known: frozenset[str]) -> Finding:
    """Not logging requests became the default, and its flag went away."""
    if finding.flag == "disable-log-requests" and "--enable-log-requests" in known:
        why = f"{finding.why.split(';', 1)[0]}; it logs requests only with --enable-log-requests"
        return Finding(finding.flag, why, without_flag(finding.flag))
    return finding


def _bad_values(flags: Flags) -> Iterator[Finding]:
    share = flags.value("gpu-memory-utilization")
    if share is not None and not _is_share(share):
        yield Finding("gpu-memory-utilization", f"--gpu-memory-utilization {share} is no fraction from 0 to 1")


def _is_share(word: str) -> bool:
    try:
        return 0 < float(word) <= 1
    except ValueError:
        return False
