"""Slack through bolt: Socket Mode that heals itself, posts that are said once, text that is only text."""

from bot.chats.slack.adapter import Seen, Slack, SlackSettings
from bot.chats.slack.events import Identity
from bot.chats.slack.pace import Pace
from bot.chats.slack.render import render, render_plain

__all__ = ["Identity", "Pace", "Seen", "Slack", "SlackSettings", "render", "render_plain"]
