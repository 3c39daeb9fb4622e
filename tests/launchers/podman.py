"""Podman as a test has it: storage of its own, an image that holds nothing but busybox, and a command that stands for docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMAGE = "localhost/upbot-test"
CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
{runtime}
"""
COMMAND = """\
#!/bin/sh
export CONTAINERS_CONF='{conf}'
exec '{podman}' --storage-driver vfs --root '{place}/store' --runroot '{place}/run' --tmpdir '{place}/tmp' "$@"
"""


def missing() -> str | None:
    """Why there is no Podman for tests here; None when there is."""
    if shutil.which("podman") is None or not (shutil.which("runc") or shutil.which("crun")):
        return "needs Podman (Debian: apt-get install podman runc)"
    if _static_busybox() is None:
        return "needs a static busybox (Debian: apt-get install busybox-static)"
    return None


@contextmanager
def podman(folder: Path) -> Iterator[str]:
    """The command; every container is gone afterwards."""
    command, conf, program = folder / "docker", folder / "containers.conf", shutil.which("podman")
    # Of the two runc knows every arrangement of control groups.
    conf.write_text(CONF.format(runtime='runtime = "runc"' if shutil.which("runc") else ""))
    place = Path(tempfile.mkdtemp(prefix="upbot-", dir="/tmp"))  # Podman takes no runroot of over 50 characters
    command.write_text(COMMAND.format(conf=conf, podman=program, place=place))
    command.chmod(0o755)
    root = folder / "image"
    (root / "bin").mkdir(parents=True)
    (root / "tmp").mkdir()
    busybox = _static_busybox()
    assert busybox is not None
    shutil.copy(busybox, root / "bin/busybox")
    for applet in ("sh", "sleep", "cat", "env", "printf", "setsid", "kill", "true"):
        (root / "bin" / applet).symlink_to("busybox")
    archive = shutil.make_archive(str(folder / "image"), "tar", root)
    subprocess.run([str(command), "import", archive, IMAGE], check=True, capture_output=True)
    try:
        yield str(command)
    finally:
        subprocess.run([str(command), "rm", "-f", "-a", "-t", "0"], check=False, capture_output=True)
        _unmount(place)
        shutil.rmtree(place, ignore_errors=True)


def _static_busybox() -> str | None:
    for path in ("/bin/busybox", "/usr/bin/busybox"):
        if os.path.exists(path):  # noqa: PTH110 - a plain look
            needed = subprocess.run(["ldd", path], check=False, capture_output=True, text=True)
            if needed.returncode != 0:
                return path
    return None


def _unmount(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((one for one in mounts if one.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)
