"""Makes the servers of a fleet file: templates are unfolded, and what servers have in common is put under each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bot.domain.flags import Flags
from bot.domain.fleet import Launch, Membership, Server, unit_name
from bot.domain.routing import place
from bot.settings import naming, words
from bot.settings.document import Document, Path_
from bot.settings.launchers import launcher_settings
from bot.settings.models import FleetFile, Section, ServerSection

_T = TypeVar("_T")
Made = tuple[Path_, Server]
JOURNAL = "journal"


def servers(
    document: Document, file: FleetFile, engines: Collection[str], launchers: Collection[str]
) -> Iterator[Made]:
    """Every server with the place that it comes from; ConfigError for what can't be made."""
    count = 0
    for template, section in file.servers.items():
        path: Path_ = ("servers", template)
        try:
            numbered = list(words.names(template))
        except words.Wrong as exc:
            raise document.error(path, str(exc)) from exc
        count += len(numbered)
        if count > words.MOST_SERVERS:
            raise document.error(path, f"that makes more than {words.MOST_SERVERS} servers")
        for one in numbered:
            yield path, _Making(document, file, path, section, one).server(engines, launchers)


@dataclass(frozen=True, slots=True)
class _Making:
    """One server out of its section, of what servers have in common, and of its number in the template."""

    document: Document
    file: FleetFile
    path: Path_
    section: ServerSection
    numbered: words.Numbered

    def server(self, engines: Collection[str], launchers: Collection[str]) -> Server:
        places = self._places()
        launcher, settings = self._launcher(launchers, places)
        return Server(
            name=places["name"],
            host=places["host"],
            port=int(places["port"]),
            engine=self._choice("engine", engines),
            launch=self._launch(places),
            launcher=launcher,
            launcher_settings=settings,
            gpus=self._read("gpus", lambda given: words.numbers(given, self.numbered.n)),
            log=self._log(places, launcher, dict(settings)),
            log_rotates=self._get("log_rotates"),
            groups=self._read("groups", _groups),
            usual=None if self._get("profile") is None else self._choice("profile", self.file.profiles),
            address=self._filled("address", places),
            grace=self._get("grace"),
            start_limit=self._get("start_limit"),
            target=self._get("target"),
            routers=self._routers(places),
        )

    def _places(self) -> dict[str, str]:
        """What may be filled in elsewhere."""
        name = naming.checked(self.document, self.path, self.numbered.name)
        port = self._read("port", lambda text: words.total(text, self.numbered.n))
        if not 0 < port < 65_536:
            raise self.document.error(self._path("port"), f"{port} is no port; ports go from 1 to 65535")
        self._refuse_missing("host")
        places = {"name": name, "port": str(port), "host": self._choice("host", self.file.hosts)}
        return places if self.numbered.n is None else {**places, "n": str(self.numbered.n)}

    def _get(self, key: str) -> Any:
        owner: Section = self.section if key in self.section.model_fields_set else self.file.defaults
        return getattr(owner if key in type(owner).model_fields else self.section, key)

    def _path(self, key: str) -> Path_:
        is_common = key not in self.section.model_fields_set and key in self.file.defaults.model_fields_set
        return ("defaults", key) if is_common else (*self.path, key)

    def _read(self, key: str, read: Callable[[Any], _T]) -> _T:
        try:
            return read(self._get(key))
        except words.Wrong as exc:
            raise self.document.error(self._path(key), str(exc)) from exc

    def _filled(self, key: str, places: Mapping[str, str]) -> str:
        return self._read(key, lambda text: words.filled(text, places, strict=True))

    def _refuse_missing(self, key: str) -> None:
        if self._get(key) is None:
            raise self.document.error((*self.path, key), "is missing, here and in `defaults`")

    def _choice(self, key: str, known: Iterable[str]) -> str:
        return naming.referred(self.document, self._path(key), str(self._get(key)), known, key)

    def _routers(self, places: Mapping[str, str]) -> tuple[Membership, ...]:
        """Each router with the URL by which it knows this server."""
        path, address = self._path("router"), self._filled("address", places)
        usual = f"http://{f'[{address}]' if ':' in address else address}:{places['port']}"
        found: list[Membership] = []
        for one in self._get("router"):
            router = naming.referred(self.document, path, one.router, self.file.routers, "router")
            at = self.file.routers[router].host
            if not one.url and at != places["host"] and place(usual)[0] == "127.0.0.1":
                where = f'{{{router}: "http://10.0.0.5:{{port}}"}}'
                why = f"{router} runs on {at} and {places['name']} on {places['host']}: say how it is reached, {where}"
                raise self.document.error(path, why)
            url = self._url(one.url, places) or usual
            if any(known.router == router for known in found):
                raise self.document.error(path, f"{router} stands twice")
            found.append(Membership(router, url.replace("//0.0.0.0:", "//127.0.0.1:")))
        return tuple(found)

    def _url(self, url: str, places: Mapping[str, str]) -> str:
        return self._read("router", lambda _given: words.filled(url, places, strict=True))

    def _launcher(self, known: Collection[str], places: Mapping[str, str]) -> tuple[str, tuple[tuple[str, str], ...]]:
        choice, path = self._get("launcher"), self._path("launcher")
        name = naming.referred(self.document, path, choice.name, known, "launcher")
        return name, launcher_settings(self.document, path, choice, places)

    def _log(self, places: Mapping[str, str], launcher: str, settings: Mapping[str, str]) -> str:
        """Where its log is; the journal is named with its unit, for whoever reads it."""
        log = self._filled("log", places)
        if log != JOURNAL:
            return log
        if launcher != "systemd":
            raise self.document.error(self._path("log"), "only the launcher systemd has a journal")
        kind = "user-journal" if settings.get("manager") == "user" else "journal"
        return f"{kind}:{unit_name(places['name'], settings.get('unit', ''))}"

    def _launch(self, places: Mapping[str, str]) -> Launch:
        self._refuse_missing("launch")
        line: tuple[str, ...] = self._get("launch")
        command, typed = words.cut(tuple(words.filled(word, places) for word in line))
        if len(command) == 1 and " " in command[0]:
            raise self.document.error(self._path("launch"), "is one word with spaces; quote less")
        port = typed.get("port")
        if port is not None and port != (places["port"],):
            why = f"its --port {' '.join(port)} is not the server's `port`, {places['port']}"
            raise self.document.error(self._path("launch"), why)
        return Launch(command, self._flags(typed, places), self._env(places), self._filled("directory", places))

    def _flags(self, typed: Flags, places: Mapping[str, str]) -> Flags:
        """The flags typed behind the command, those of all servers on top, the server's own above."""
        common = naming.without_port(self.document, ("defaults", "flags"), self.file.defaults.flags)
        own = naming.without_port(self.document, (*self.path, "flags"), self.section.flags)
        merged = own.over(common.over(typed)).merged(Flags(), without=("port",))
        return Flags(tuple((name, tuple(words.filled(value, places) for value in values)) for name, values in merged))

    def _env(self, places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        merged = {**self.file.defaults.env, **self.section.env}
        return tuple((key, words.filled(value, places)) for key, value in merged.items())


def _groups(given: tuple[str, ...]) -> tuple[str, ...]:
    for group in given:
        if not naming.is_name(group):
            raise words.Wrong(f"{words.shown(group)} is no name of a group")
    return given
