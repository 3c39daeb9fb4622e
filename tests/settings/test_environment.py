"""Tokens and places from the environment: what is read, what is refused, and that no secret is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.errors import ConfigError
from bot.settings import Environment, Tokens

BOT, APP = "xoxb-1-bot-secret", "xapp-1-app-secret"


def refused(environ):
    with pytest.raises(ConfigError) as caught:
        Environment.of(environ)
    return str(caught.value)


def test_an_empty_environment_has_defaults_and_no_tokens():
    home = Path("~").expanduser()
    assert Environment.of({}) == Environment(Tokens(), Path("fleet.yaml"), home / ".local/state/upbot")


def test_everything_may_be_set():
    environ = {
        "SLACK_BOT_TOKEN": f" {BOT}\n", "SLACK_APP_TOKEN": APP, "SLACK_SIGNING_SECRET": "sign", "UPBOT_FLEET": "/etc/upbot/fleet.yaml",
        "UPBOT_STATE": "/var/lib/upbot", "UPBOT_DATABASE": "postgresql://u:pw@db/upbot", "UPBOT_LOG_LEVEL": "DEBUG",
    }  # fmt: skip
    found = Environment.of(environ)
    assert found == Environment(
        Tokens(BOT, APP, "sign"),
        Path("/etc/upbot/fleet.yaml"),
        Path("/var/lib/upbot"),
        "postgresql://u:pw@db/upbot",
        "debug",
    )
    assert found.tokens.secrets == (BOT, APP, "sign")


def test_the_state_follows_the_desktops_convention():
    assert Environment.of({"XDG_STATE_HOME": "/s"}).state_dir == Path("/s/upbot")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"SLACK_APP_TOKEN": BOT}, "environment: SLACK_APP_TOKEN: must begin with xapp-; it holds a bot token"),
        ({"SLACK_BOT_TOKEN": APP}, "environment: SLACK_BOT_TOKEN: must begin with xoxb-; it holds an app-level token"),
        ({"SLACK_BOT_TOKEN": "xoxp-1"}, "environment: SLACK_BOT_TOKEN: must begin with xoxb-; it holds a user's token"),
        ({"SLACK_BOT_TOKEN": "secret"}, "environment: SLACK_BOT_TOKEN: must begin with xoxb-; it holds something else"),
        ({"SLACK_BOT_TOKEN": "xoxb-1 2"}, "environment: SLACK_BOT_TOKEN: holds a space or a line break"),
        (
            {"UPBOT_LOG_LEVEL": "loud"},
            "environment: UPBOT_LOG_LEVEL: must be one of debug, info, warning, error, not 'loud'",
        ),
        ({"UPBOT_FLEETS": "x"}, "environment: UPBOT_FLEETS: is no setting; the nearest is UPBOT_FLEET"),
        ({"UPBOT_STAET": "x"}, "environment: UPBOT_STAET: is no setting; the nearest is UPBOT_STATE"),
    ],
)
def test_a_mistake_names_its_variable_and_shows_no_value(environ, said):
    assert refused(environ) == said


def test_slack_may_be_elsewhere_but_tokens_leave_the_machine_only_in_tls():
    assert Environment.of({}).slack_api == "https://slack.com/api/"
    assert Environment.of({"SLACK_API_URL": "https://slack-gov.com/api"}).slack_api == "https://slack-gov.com/api/"
    assert Environment.of({"SLACK_API_URL": "http://127.0.0.1:8420/api/"}).slack_api == "http://127.0.0.1:8420/api/"
    for wrong in ("http://slack.com/api/", "slack.com", "https://", "ftp://127.0.0.1/", "https://[", "file:///etc"):
        assert "environment: SLACK_API_URL: " in refused({"SLACK_API_URL": wrong}), wrong


def test_variables_of_others_are_none_of_our_business():
    assert Environment.of({"UPBOT_CONTAINERS": "/run/x", "PATH": "/bin"}).log_level == "info"


def test_no_secret_is_in_a_repr():
    environ = {
        "SLACK_BOT_TOKEN": BOT,
        "SLACK_APP_TOKEN": APP,
        "SLACK_SIGNING_SECRET": "sign-secret",
        "UPBOT_DATABASE": "postgresql://u:pw-secret@db/x",
    }
    assert "secret" not in repr(Environment.of(environ)) + str(Environment.of(environ))


def test_what_slack_needs_is_asked_for_by_name():
    with pytest.raises(ConfigError) as caught:
        Tokens(BOT).required()
    assert str(caught.value) == "environment: SLACK_APP_TOKEN: is not set; docs/slack.md says where to get it"
    with pytest.raises(ConfigError) as caught:
        Tokens(BOT, APP).required(socket_mode=False)
    assert str(caught.value) == "environment: SLACK_SIGNING_SECRET: is not set; docs/slack.md says where to get it"
    assert Tokens(BOT, APP).required() == Tokens(BOT, APP)
