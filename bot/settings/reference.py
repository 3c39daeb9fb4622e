"""Makes docs/fleet-file.md from the models.

    python -m bot.settings.reference bot.transports.ssh bot.transports.pct … > docs/fleet-file.md

The transports' modules are named on the command line, since settings know none.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bot.domain.phrases import span
from bot.ports import TransportKind
from bot.settings.models import (
    AlertmanagerSection,
    ChannelSection,
    DockerSection,
    FleetFile,
    GrantSection,
    HostSection,
    JobSection,
    LimitsSection,
    PersonSection,
    ProfileSection,
    ProgressSection,
    PrometheusSection,
    RouterSection,
    ServerDefaults,
    ServerSection,
    SystemdSection,
    TeamSection,
)
from bot.settings.words import FlagChoice

_INTRODUCTION = """\
# The fleet file

One YAML file says which servers there are, how they are reached and launched, and who may do what. It is read when
the bot starts, and again on `reload` or SIGHUP; a file with a mistake changes nothing. `upbot check` names the
mistake with its line, its key and the nearest right one. Tokens never stand in it: they come from the environment.

Examples: [eight servers in a container](../config/fleet.example.yaml), [one server over eight
GPUs](../config/single-tp8.yaml), [plain machines](../config/plain-hosts.yaml).

Some words that hold everywhere:

- A **template** such as `gpu{0..7}` as a server's name makes eight servers; `n` is each one's number, in
  `port: 30000+n` and `gpus: n` (also `2*n+1`). `{name}`, `{n}`, `{port}` and `{host}` are filled in wherever a
  server's texts hold them.
- A **command** is one line, quoted as in a shell, or a list of words. No shell runs it, so nothing is expanded.
- **Flags** are a mapping: `true` is a bare switch, `false` takes an inherited flag away, a list gives several
  values. Numbers keep the digits that are typed. `--port` is never a flag here: it is the server's `port`.
- A **span** has a unit: `900 ms`, `90 s`, `5 min`, `1 h 30 m`.
- Where several words may stand, one word may stand alone.
"""
_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("hosts: name: …", HostSection),
    ("servers: name: …", ServerSection),
    ("servers: name: launcher: systemd: …", SystemdSection),
    ("servers: name: launcher: docker: …", DockerSection),
    ("routers: name: …", RouterSection),
    ("profiles: name: …", ProfileSection),
    ("jobs: name: …", JobSection),
    ("jobs: name: progress: …", ProgressSection),
    ("people: name: …", PersonSection),
    ("teams: name: …", TeamSection),
    ("people, teams: name: also: …", GrantSection),
    ("channels: name: …", ChannelSection),
    ("limits: …", LimitsSection),
    ("prometheus: …", PrometheusSection),
    ("alertmanager: …", AlertmanagerSection),
)
_COMMON = (
    "The keys of a server, except `port`, may stand in `defaults` too, for all servers that do not say otherwise.\n"
)


def reference(kinds: Mapping[str, TransportKind]) -> str:
    """The whole page."""
    return "\n".join(
        [
            _INTRODUCTION,
            "## The whole file\n",
            *_table(FleetFile),
            *(line for title, model in _SECTIONS for line in _section(title, model)),
            "## Transports\n",
            "What may stand in `reach`; a bare value fills the key in bold.\n",
            *(line for name in sorted(kinds) for line in _transport(kinds[name])),
        ]
    )


def _section(title: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"## `{title}`\n"
    yield f"{(model.__doc__ or '').strip()}\n"
    if issubclass(model, ServerDefaults):
        yield _COMMON
    yield from _table(model)


def _transport(kind: TransportKind) -> Iterator[str]:
    yield f"### `{kind.name}`\n"
    yield f"{(kind.settings.__doc__ or '').strip().splitlines()[0]}\n"
    yield from _table(kind.settings, kind.shorthand)


def _table(model: type[BaseModel], bold: str = "") -> Iterator[str]:
    yield "| key | meaning | without it |"
    yield "|---|---|---|"
    for key, field in sorted(model.model_fields.items(), key=lambda one: not one[1].is_required()):
        name = f"**`{key}`**" if key == bold else f"`{key}`"
        yield f"| {name} | {_escaped(_meaning(field))} | {_escaped(_default(field))} |"
    yield ""


def _meaning(field: FieldInfo) -> str:
    choices = ", ".join(f"`{one}`" for one in _choices(field.annotation))
    return " ".join(part for part in (field.description or "", f"One of {choices}." if choices else "") if part)


def _choices(annotation: Any) -> Iterable[Any]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _default(field: FieldInfo) -> str:
    """What holds when the key is not there, as a person would write it."""
    if field.is_required():
        return "must be there"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", (), [], {}) or isinstance(value, (BaseModel, FlagChoice)):
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, timedelta):
        return f"`{_span(value)}`"
    if isinstance(value, tuple):
        is_place = len(value) == 2 and isinstance(value[1], int)
        return f"`{value[0]}:{value[1]}`" if is_place else f"`{' '.join(value)}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _span(value: timedelta) -> str:
    return f"{value.total_seconds() * 1000:.0f} ms" if value < timedelta(seconds=1) else span(value)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def main(modules: Iterable[str]) -> None:
    """Print the page with the transports of these modules."""
    kinds = [importlib.import_module(module).TRANSPORT for module in modules]
    sys.stdout.write(reference({kind.name: kind for kind in kinds}))


if __name__ == "__main__":
    main(sys.argv[1:])
