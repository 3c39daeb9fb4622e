"""Finds the plug-ins: every module of a package must export its one constant, and no two may have one name.

commands = load("handlers", "COMMAND")
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from bot.domain.errors import ConfigError


def load(package: str, constant: str) -> dict[str, Any]:
    """Import every public module of a package and collect its constant by the constant's ``name``.

    Modules that begin with an underscore are the package's own. ConfigError when a module lacks the
    constant or two share a name: a plug-in that is silently missing would be found out at night.
    """
    found: dict[str, Any] = {}
    home: dict[str, str] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.name.startswith("_"):
            continue
        module = f"{package}.{info.name}"
        plugin = getattr(importlib.import_module(module), constant, None)
        if plugin is None:
            raise ConfigError(f"exports no {constant}; a module of {package} is a plug-in", file=module)
        if plugin.name in found:
            raise ConfigError(f"the name {plugin.name!r} is taken by {home[plugin.name]}", file=module, key=constant)
        found[plugin.name], home[plugin.name] = plugin, module
    return found
