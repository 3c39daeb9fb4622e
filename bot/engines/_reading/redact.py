"""Takes keys, tokens and passwords out of text before it leaves a reader.

What is kept is the name of the secret, so that a person sees that one was given. Too much is better than too
little here: a value beside a name that sounds secret goes, whatever it is.
"""

from __future__ import annotations

import re

MASK = "***"

_NAME = (
    r"[\w.-]{0,40}?(?:api[_-]?keys?|access[_-]?key(?:[_-]?id)?|secret(?:[_-]?key)?|passw(?:or)?d|passphrase|"
    r"(?:auth|access|refresh|bearer|session|bot|app|hub|hf)[_-]?token|hf_token|_token|-token|credentials?)"
)
_ARGUMENT = re.compile(
    rf"(?P<keep>(?<![\w-])--?{_NAME}(?:=|\s+))(?P<value>\"[^\"]*\"|'[^']*'|(?!-)[^\s,;\"']+)", re.IGNORECASE
)
_PAIR = re.compile(
    rf"(?P<keep>(?<![\w-])[\"']?{_NAME}[\"']?\s*[=:]\s*)(?P<value>\[[^\]]*\]|\"[^\"]*\"?|'[^']*'?|[^\s,;)}}\]\"'&]+)",
    re.IGNORECASE,
)
_BARE_TOKEN = re.compile(r"(?P<keep>(?<![\w-])[\"']?token[\"']?\s*=\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;)&\"'<]+)")
_URL_LOGIN = re.compile(
    r"(?P<keep>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,20}://)(?P<value>[^\s/@'\"]{1,400})(?=@)", re.IGNORECASE
)
_URL_QUERY = re.compile(
    r"(?P<keep>[?&][\w-]{0,40}(?:token|key|secret|signature|sig|password|credential|auth)[\w-]{0,40}=)(?P<value>[^\s&#'\"]+)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(?P<keep>\b(?:Bearer|Authorization:\s*Basic)\s+)(?P<value>[\w.~+/=-]{6,})", re.IGNORECASE)
_HARMLESS = frozenset({"none", "null", "true", "false", "", MASK})
_COUNTED = re.compile(r"token['\"]?\s*[=:]\s*$", re.IGNORECASE)
"""A number after it is a count of tokens, as in every batch line."""
_WORD = re.compile(
    r"(?:pad|eos|bos|unk|mask|sep|cls|end|start|stop|new|cached|special|image|video|audio|next|draft|first|last)"
    r"[_-]token['\"]?\s*[=:]\s*$",
    re.IGNORECASE,
)
"""Tokens of a language, not of a door."""
_SHAPES = re.compile(
    r"\bhf_(?![a-z]+(?![A-Za-z0-9]))[A-Za-z0-9]{8,}|\bsk-[\w-]{8,}"
    r"|\bxox[a-z]-[\w-]{6,}|\bxapp-[\w-]{6,}|\bgh[pousr]_[A-Za-z0-9]{16,}"
    r"|\bgithub_pat_\w{16,}|\bglpat-[\w-]{12,}|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\bnvapi-[\w-]{12,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}|\bms-[0-9a-f]{8}-[0-9a-f-]{20,}"
)
"""Shapes that only keys have; ``hf_`` before a plain word is a module's name (``hf_transformers``)."""

_SUSPICIOUS = re.compile(
    r"key|token|secret|passw|passphrase|credential|bearer|basic|://|sig|auth|hf_|sk-|xox|xapp|gh[pousr]_|github_pat"
    r"|glpat|akia|aiza|nvapi|eyj|ms-",
    re.IGNORECASE,
)
_BY_NAME = (_ARGUMENT, _PAIR, _BARE_TOKEN, _URL_QUERY)


def redact(text: str) -> str:
    """The text with every secret's value replaced by ``***``; redacting again changes nothing."""
    if not _SUSPICIOUS.search(text):
        return text
    text = _URL_LOGIN.sub(_mask, text)
    text = _HEADER.sub(_mask, text)
    for pattern in _BY_NAME:
        text = pattern.sub(_mask, text)
    return _SHAPES.sub(MASK, text)


def _mask(match: re.Match[str]) -> str:
    value = match["value"]
    quote = value[0] if value[:1] in {"'", '"'} else ""
    if _is_harmless(match["keep"], value):
        return match[0]
    if value.startswith("["):
        return f"{match['keep']}[{MASK}]"
    return f"{match['keep']}{quote}{MASK}{quote}"


def _is_harmless(name: str, value: str) -> bool:
    bare = value.strip("'\"[]")
    is_word = _WORD.search(name) is not None or (bare.startswith("<") and bare.endswith(">"))
    return bare.lower() in _HARMLESS or is_word or (_COUNTED.search(name) is not None and bare.isdigit())
