"""The demo as a process, driven through its control API."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def free_ports(count: int) -> int:
    """The first of so many free ports in a row, below the ephemeral range."""
    for base in range(20_000 + os.getpid() % 5_000, 31_000, count):
        taken = []
        try:
            taken.extend(socket.create_server(("127.0.0.1", port)) for port in range(base, base + count))
        except OSError:
            continue
        else:
            return base
        finally:
            for one in taken:
                one.close()
    raise RuntimeError("no free ports")


class Demo:
    """Speaks with a running demo."""

    def __init__(self, url: str, home: Path, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.home = home
        self.process = process

    @property
    def state(self) -> Path:
        return self.home / "state"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def post(self, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def is_ready(self) -> bool:
        try:
            return bool(self.get("/control/ready")["ok"])
        except (urllib.error.URLError, OSError):
            return False

    def say(self, text: str, user: str = "ana") -> str:
        return str(self.post("/control/say", channel="fleet", user=user, text=text)["ts"])

    def press(self, message: str, button: str, user: str = "ana") -> None:
        self.post("/control/press", channel="fleet", message=message, button=button, user=user)

    def messages(self, after: str = "0") -> list[dict[str, Any]]:
        return list(self.get(f"/control/messages?channel=fleet&after={after}")["messages"])

    def until(self, found: Any, after: str = "0", within: float = 10.0) -> Any:
        """What ``found`` makes of the messages, as soon as it is something."""
        deadline = time.monotonic() + within
        while True:
            messages = self.messages(after)
            if (result := found(messages)) or time.monotonic() > deadline:
                assert result, "\n".join(whole(one) for one in messages)
                return result
            wait(0.05)


def wait(seconds: float) -> None:
    """Between two looks at a real process."""
    threading.Event().wait(seconds)


def whole(message: dict[str, Any]) -> str:
    """All text of a message."""
    parts: list[str] = []
    for block in message["blocks"] or []:
        _texts(block, parts)
    return "\n".join(parts) or message["text"]


def _texts(value: Any, parts: list[str]) -> None:
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            parts.append(value["text"])
        for one in value.values():
            _texts(one, parts)
    elif isinstance(value, list):
        for one in value:
            _texts(one, parts)


@contextlib.contextmanager
def running(home: Path, *, speed: float = 1.0, arguments: tuple[str, ...] = ()) -> Iterator[Demo]:
    """The demo from its start until nothing of it is left; its SIGTERM must end it within ten seconds."""
    page, base = free_ports(1), 0
    base = free_ports(9) + 1
    command = (
        *(sys.executable, "-m", "bot", "demo", "--headless", "--port", str(page), "--base-port", str(base)),
        *("--speed", f"{speed:g}", "--home", str(home), *arguments),
    )
    with (home.parent / "demo.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    demo = Demo(f"http://127.0.0.1:{page}", home, process)
    try:
        deadline = time.monotonic() + 60
        while not demo.is_ready():
            assert process.poll() is None, (home.parent / "demo.log").read_text()
            assert time.monotonic() < deadline, (home.parent / "demo.log").read_text()
            wait(0.1)
        yield demo
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
