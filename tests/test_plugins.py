"""Plug-ins are found by scanning, and one that is wrong stops the start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bot.domain.errors import ConfigError
from bot.plugins import load


def _package(folder: Path, name: str, **modules: str) -> str:
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text("")
    for module, text in modules.items():
        (package / f"{module}.py").write_text(text)
    sys.path.insert(0, str(folder))
    return name


THING = "class _T:\n    name = {name!r}\nTHING = _T()\n"


def test_every_public_module_gives_its_constant(tmp_path: Path) -> None:
    name = _package(tmp_path, "pk_good", one=THING.format(name="a"), two=THING.format(name="b"), _own="x = 1\n")
    assert set(load(name, "THING")) == {"a", "b"}


def test_a_module_without_its_constant_stops_the_start(tmp_path: Path) -> None:
    name = _package(tmp_path, "pk_without", one="x = 1\n")
    with pytest.raises(ConfigError, match=r"^pk_without\.one: exports no THING; a module of pk_without is a plug-in$"):
        load(name, "THING")


def test_two_with_one_name_stop_the_start(tmp_path: Path) -> None:
    name = _package(tmp_path, "pk_twice", one=THING.format(name="a"), two=THING.format(name="a"))
    with pytest.raises(ConfigError, match=r"^pk_twice\.two: THING: the name 'a' is taken by pk_twice\.one$"):
        load(name, "THING")


def test_the_shipped_ones_are_all_found() -> None:
    assert set(load("handlers", "COMMAND")) >= {
        "up",
        "status",
        "restart",
        "start",
        "stop",
        "cancel",
        "logs",
        "job",
        "help",
    }
    assert set(load("bot.engines", "ENGINE")) == {"sglang", "vllm"}
    assert set(load("bot.transports", "TRANSPORT")) == {"local", "ssh", "pct", "docker", "sudo"}
    assert set(load("bot.launchers", "LAUNCHER")) >= {"process"}
