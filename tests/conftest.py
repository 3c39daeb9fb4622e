"""What all tests share: what is missing on this machine is skipped with its reason, and in CI nothing may be."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("UPBOT_HYPOTHESIS", "fixed"))
"""The same examples in every run; `UPBOT_HYPOTHESIS=search` looks for new ones."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in its background ignores it, and so would every process that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROUTERS = Path(__file__).parents[1] / ".routers"
"""Where CI puts the routers themselves, each in an environment of its own."""
PROMETHEUS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def _missing(marker: str) -> str | None:
    """Why a test with this marker can't run here; None when it can."""
    if marker == "browser" and not any(shutil.which(name) for name in CHROMIUM):
        return "needs Chromium (Debian: apt-get install chromium)"
    if marker == "sshd" and not Path("/usr/sbin/sshd").exists():
        return "needs an OpenSSH server (Debian: apt-get install openssh-server)"
    if marker == "tmux" and shutil.which("tmux") is None:
        return "needs tmux"
    if marker == "prometheus" and not all(shutil.which(one) for one in PROMETHEUS):
        return "needs Prometheus and Alertmanager (Debian: apt-get install prometheus prometheus-alertmanager)"
    if marker == "strace" and shutil.which("strace") is None:
        return "needs strace"
    if marker == "root" and (os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("nsenter") is None):
        return "needs root and namespaces (unshare, nsenter)"
    if marker == "routers" and not all((ROUTERS / name / "bin" / name).exists() for name in ("sglang-router", "smg")):
        return "needs sglang-router and smg in .routers (.ci/run installs them)"
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--slow` runs what takes minutes."""
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes, as CI does")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what can't run; under CI=true let it run and fail, since there it was to be installed."""
    if os.environ.get("CI") == "true":
        return
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; `make test ARGS=--slow` runs it, and so does CI"))
        for marker in ("browser", "sshd", "tmux", "root", "strace", "routers", "prometheus"):
            if item.get_closest_marker(marker) and (why := _missing(marker)) is not None:
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True)
def logging_of_its_own() -> Iterator[None]:
    """A test that sets up the logs must not leave its closed stream to the next one."""
    yield
    structlog.reset_defaults()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """A skip is a failure in CI: whoever wrote it has to have it installed there."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped under CI: {report.longrepr}"
