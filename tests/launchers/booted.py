"""A machine for tests: this one's file system under an overlay, in a container whose init is systemd.

Nothing that happens in it reaches this machine but what is written into the shared folder. Needs root, LXC and systemd.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import hosts

INIT = Path("/lib/systemd/systemd")
# They would work on what the container shares with this machine's kernel, take long on its files, or listen for nobody.
MASKED = (
    "systemd-sysctl.service",
    "systemd-modules-load.service",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-journal-flush.service",
    "systemd-sysusers.service",
    "systemd-tmpfiles-setup.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-update-utmp.service",
    "systemd-random-seed.service",
    "ldconfig.service",
    "podman.socket",
    "avahi-daemon.socket",
    "docker.socket",
)
CONFIG = """\
lxc.uts.name = {name}
lxc.rootfs.path = dir:{root}
lxc.apparmor.profile = unconfined
lxc.net.0.type = empty
lxc.mount.auto = proc:mixed sys:mixed cgroup:mixed
lxc.mount.entry = {shared} {inside} none bind,create=dir 0 0
lxc.init.cmd = {init} --unit=basic.target
"""


def missing() -> str | None:
    """Why there can be no such machine here; None when there can."""
    if shutil.which("lxc-start") is None:
        return "needs LXC (Debian: apt-get install lxc)"
    if not INIT.exists() or shutil.which("dbus-daemon") is None:
        return "needs systemd and D-Bus (Debian: apt-get install systemd dbus)"
    return None


@contextmanager
def booted(folder: Path, shared: Path) -> Iterator[list[str]]:
    """Boot it; gives the words that lead into it. ``shared`` is the one folder that both have."""
    layers, name = folder / "layers", f"upbot-{folder.name}"[:60]
    layers.mkdir()
    _call("mount", "-t", "tmpfs", "none", str(layers))
    try:
        for part in ("upper", "work", "root"):
            (layers / part).mkdir()
        options = f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work"
        _call("mount", "-t", "overlay", "overlay", "-o", options, str(layers / "root"))
        try:
            _mask(layers / "root")
            with _container(folder, name, layers / "root", shared) as init:
                yield ["nsenter", "-t", str(init), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
        finally:
            _call("umount", "-l", str(layers / "root"))
    finally:
        _call("umount", "-l", str(layers))


@contextmanager
def _container(folder: Path, name: str, root: Path, shared: Path) -> Iterator[int]:
    config = folder / "lxc.conf"
    config.write_text(CONFIG.format(name=name, root=root, shared=shared, inside=str(shared).lstrip("/"), init=INIT))
    (folder / "lxc").mkdir()
    argv = ["lxc-start", "-P", str(folder / "lxc"), "-n", name, "-f", str(config), "-F", "-o", str(folder / "lxc.log")]
    with (folder / "console").open("wb") as console:
        starter = hosts.spawn(argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    try:
        yield _wait_for_init(starter, folder)
    finally:
        subprocess.run(["lxc-stop", "-P", str(folder / "lxc"), "-n", name, "-k"], check=False, capture_output=True)
        hosts.end(starter.pid)
        starter.wait(20)


def _wait_for_init(starter: subprocess.Popen[bytes], folder: Path) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and starter.poll() is None:
        for child in Path(f"/proc/{starter.pid}/task/{starter.pid}/children").read_text().split():
            if hosts.command_line(int(child)).startswith(str(INIT).encode()):
                state = ["nsenter", "-t", child, "-a", "systemctl", "is-system-running"]
                told = subprocess.run(state, check=False, capture_output=True, text=True).stdout.strip()
                if told in ("running", "degraded"):
                    return int(child)
        time.sleep(0.1)
    raise AssertionError(f"systemd did not boot: {hosts.read(folder / 'lxc.log')[-500:]}")


def _mask(root: Path) -> None:
    folder = root / "etc/systemd/system"
    folder.mkdir(parents=True, exist_ok=True)
    for unit in MASKED:
        if not (folder / unit).exists():
            (folder / unit).symlink_to("/dev/null")


def _call(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
