"""What a person typed, read back from what Slack made of it.

Slack hands over text escaped, with links and mentions in angle brackets, and phones add smart quotes, long dashes
and blanks that are none. Commands are matched on what was meant, so all that is undone here, once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_TYPED = 10_000
_MOST_RAW = 40_000  # Slack's own limit; more is not from a person

_TOKEN = re.compile(r"<([^<>\n]{1,4000})>")
_QUOTES = str.maketrans(
    {"‘": "'", "’": "'", "‚": "'", "‛": "'", "′": "'", "“": '"', "”": '"', "„": '"', "‟": '"', "«": '"', "»": '"'}
)
_NOTHING = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BLANKS = re.compile(r"[^\S\n]+")
_LONG_DASH = re.compile(r"(?<!\S)[—–](?=[^\W_])")
_DASH = re.compile("[\u2010-\u2015\u2212]")
_FENCE = re.compile(r"(`{1,3})\s*([^`]+?)\s*\1")


@dataclass(frozen=True, slots=True)
class Typed:
    """The words, without the bot's name, and whether that name was among them."""

    text: str
    mentions_bot: bool = False


def typed(raw: str, bot_user: str) -> Typed:
    """Undo what Slack and the keyboard did; at most 10,000 characters, newlines kept, runs of blanks made one."""
    names_bot = False

    def plain(match: re.Match[str]) -> str:
        nonlocal names_bot
        target, _, label = match[1].partition("|")
        if bot_user and target == f"@{bot_user}":
            names_bot = True
            return " "
        return _meant(target, label)

    text = _TOKEN.sub(plain, raw[:_MOST_RAW])
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    text = _keyboard(text)[:MOST_TYPED]
    if names_bot:
        text = text.lstrip(" \n,:")
    whole = _FENCE.fullmatch(text)
    return Typed((whole[2] if whole else text).strip(), names_bot)


def _meant(target: str, label: str) -> str:
    """A link, a mention or a command of Slack's as a person sees it."""
    if target[:1] in {"@", "#"}:
        return target[0] + (label.lstrip("@#") or target[1:])
    if target.startswith("!"):
        name = target[1:].partition("^")[0]
        return label or f"@{name}"
    if label:
        return label
    return re.sub(r"^(mailto|tel):", "", target)


def _keyboard(text: str) -> str:
    """Quotes, dashes and blanks as on a plain keyboard: "—rolling" was typed as "--rolling"."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_QUOTES)
    text = _CONTROLS.sub("", _NOTHING.sub("", text))
    text = _DASH.sub("-", _LONG_DASH.sub("--", text))
    return "\n".join(one.strip() for one in _BLANKS.sub(" ", text).strip().split("\n"))
