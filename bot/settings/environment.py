"""What comes from the environment: tokens, which never stand in a file, and where the bot finds and keeps things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bot.domain.errors import ConfigError
from bot.settings.document import nearest

_PREFIX = "UPBOT_"
_OURS = (
    "UPBOT_FLEET",
    "UPBOT_STATE",
    "UPBOT_DATABASE",
    "UPBOT_LOG_LEVEL",
    "UPBOT_PROMETHEUS_AUTH",
    "UPBOT_ALERTMANAGER_AUTH",
    "UPBOT_WEBHOOK_SECRET",
)
_SLACK_API = "https://slack.com/api/"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LEVELS = ("debug", "info", "warning", "error")
_WHERE = "environment"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Slack's tokens; none of them is ever shown, not even in a repr."""

    bot: str = field(default="", repr=False)
    app: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)

    @staticmethod
    def of(environ: Mapping[str, str]) -> Tokens:
        """Read SLACK_BOT_TOKEN, SLACK_APP_TOKEN and SLACK_SIGNING_SECRET; ConfigError where one holds another's."""
        bot, app = (environ.get(name, "").strip() for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"))
        for name, value, begins, others in (
            ("SLACK_BOT_TOKEN", bot, "xoxb-", {"xapp-": "an app-level token", "xoxp-": "a user's token"}),
            ("SLACK_APP_TOKEN", app, "xapp-", {"xoxb-": "a bot token", "xoxp-": "a user's token"}),
        ):
            if value and not value.startswith(begins):
                what = next((said for prefix, said in others.items() if value.startswith(prefix)), "something else")
                raise ConfigError(f"must begin with {begins}; it holds {what}", file=_WHERE, key=name)
            if any(character.isspace() for character in value):
                raise ConfigError("holds a space or a line break", file=_WHERE, key=name)
        return Tokens(bot, app, environ.get("SLACK_SIGNING_SECRET", "").strip())

    def required(self, *, socket_mode: bool = True) -> Tokens:
        """The same tokens; ConfigError names the first that Slack needs and that is missing."""
        second = ("SLACK_APP_TOKEN", self.app) if socket_mode else ("SLACK_SIGNING_SECRET", self.signing_secret)
        for name, value in (("SLACK_BOT_TOKEN", self.bot), second):
            if not value:
                raise ConfigError("is not set; docs/slack.md says where to get it", file=_WHERE, key=name)
        return self

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, for those who take secrets out of texts."""
        return tuple(one for one in (self.bot, self.app, self.signing_secret) if one)


@dataclass(frozen=True, slots=True)
class MonitorKeys:
    """What Prometheus and Alertmanager ask of us (a bearer token, or "user:password"), and what we ask of a webhook."""

    prometheus: str = field(default="", repr=False)
    alertmanager: str = field(default="", repr=False)
    webhook: str = field(default="", repr=False)

    @staticmethod
    def of(environ: Mapping[str, str]) -> MonitorKeys:
        """Read them; ConfigError for one that no header can hold."""
        names = ("UPBOT_PROMETHEUS_AUTH", "UPBOT_ALERTMANAGER_AUTH", "UPBOT_WEBHOOK_SECRET")
        values = [environ.get(name, "").strip() for name in names]
        for name, value in zip(names, values, strict=True):
            if not value.isprintable():
                raise ConfigError("holds a line break, or what can't be printed", file=_WHERE, key=name)
        return MonitorKeys(*values)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, for those who take secrets out of texts."""
        return tuple(one for one in (self.prometheus, self.alertmanager, self.webhook) if one)


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the bot finds its fleet file and keeps its state; a database URL may hold a password."""

    tokens: Tokens
    fleet_file: Path
    state_dir: Path
    database: str | None = field(default=None, repr=False)
    log_level: str = "info"
    slack_api: str = _SLACK_API
    monitors: MonitorKeys = MonitorKeys()

    @staticmethod
    def of(environ: Mapping[str, str]) -> Environment:
        """Read the environment; ConfigError names the variable."""
        for name in environ:
            if name.startswith(_PREFIX) and name not in _OURS:
                _refuse_typing_error(name)
        level = environ.get("UPBOT_LOG_LEVEL", "info").lower()
        if level not in _LEVELS:
            why = f"must be one of {', '.join(_LEVELS)}, not {level[:40]!r}"
            raise ConfigError(why, file=_WHERE, key="UPBOT_LOG_LEVEL")
        return Environment(
            tokens=Tokens.of(environ),
            fleet_file=Path(environ.get("UPBOT_FLEET") or "fleet.yaml").expanduser(),
            state_dir=_state_dir(environ),
            database=environ.get("UPBOT_DATABASE") or None,
            log_level=level,
            slack_api=_slack_api(environ),
            monitors=MonitorKeys.of(environ),
        )


def _state_dir(environ: Mapping[str, str]) -> Path:
    given = environ.get("UPBOT_STATE")
    if given:
        return Path(given).expanduser()
    home = environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "upbot"


def _slack_api(environ: Mapping[str, str]) -> str:
    """Where Slack's Web API is (GovSlack has another address); tokens leave this machine only in TLS."""
    given = environ.get("SLACK_API_URL", "").strip() or _SLACK_API
    try:
        parts = urlsplit(given)
        host = parts.hostname
    except ValueError:
        raise ConfigError("is no address", file=_WHERE, key="SLACK_API_URL") from None
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        raise ConfigError("must begin with https://, and name a host", file=_WHERE, key="SLACK_API_URL")
    return given.rstrip("/") + "/"


def _refuse_typing_error(name: str) -> None:
    """A variable that is nearly ours was meant to be; others (a script's own) are none of our business."""
    hint = nearest(name, _OURS)
    if hint.startswith("; the nearest") and _differs_little(name, hint.rsplit(" ", 1)[-1]):
        raise ConfigError(f"is no setting{hint}", file=_WHERE, key=name)


def _differs_little(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(long) - len(short) <= 2 and sum(a != b for a, b in zip(one, other, strict=False)) <= 3
