"""The app manifest asks for what the adapter uses, and for nothing else."""

import re
from pathlib import Path

import pytest
import yaml

MANIFEST = Path(__file__).parents[3] / "config" / "slack-manifest.yaml"

# Which scope an event or a method needs (docs.slack.dev/reference); apps.connections.open takes the app's own token.
EVENTS = {
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
}
METHODS = {
    "chat_postMessage": "chat:write",
    "chat_postEphemeral": "chat:write",
    "chat_update": "chat:write",
    "reactions_add": "reactions:write",
    "reactions_remove": "reactions:write",
    "conversations_history": "channels:history",
    "conversations_replies": "channels:history",
    "files_upload_v2": "files:write",
    "usergroups_users_list": "usergroups:read",
    "auth_test": None,
    "apps_connections_open": None,
}


@pytest.fixture
def manifest():
    return yaml.safe_load(MANIFEST.read_text())


def test_each_scope_is_needed_and_each_need_has_its_scope(manifest):
    source = (Path(__file__).parents[3] / "bot" / "chats" / "slack" / "web.py").read_text()
    assert set(re.findall(r"self\.client\.(\w+)", source)) - {"session", "proxy"} == set(METHODS)
    scopes = manifest["oauth_config"]["scopes"]
    events = manifest["settings"]["event_subscriptions"]["bot_events"]
    needed = {EVENTS[name] for name in events} | {scope for scope in METHODS.values() if scope}
    assert set(scopes) == {"bot"}
    assert set(scopes["bot"]) == needed
    assert len(scopes["bot"]) == len(needed)


def test_it_is_a_socket_mode_app_with_buttons(manifest):
    settings = manifest["settings"]
    assert settings["socket_mode_enabled"] is True
    assert settings["interactivity"] == {"is_enabled": True}
    assert settings["token_rotation_enabled"] is False
    assert manifest["features"]["bot_user"]["display_name"] == "upbot"


def test_its_words_fit_slacks_limits(manifest):
    shown = manifest["display_information"]
    assert len(shown["name"]) <= 35
    assert len(shown["description"]) <= 140
