r"""What a POSIX shell on a host is told: pieces of fixed scripts, and the data that travels beside them.

Data never becomes script. It comes as positional arguments or, where it may be secret, as records on stdin: a
letter, a space, and the value with every unusual byte written as the octal escape that ``printf %b`` undoes. The
pieces keep to what dash and busybox understand; they read /proc with built-ins only, because a look at a process
and the signal that follows must be close together.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

from bot.domain.errors import StepFailed

_PLAIN = frozenset((string.ascii_letters + string.digits + "_-./:,+@= ").encode())

EXPAND = r"""
expand() {
  case $1 in
    '~') expanded=${HOME:?} ;;
    '~/'*) expanded=${HOME:?}/${1#??} ;;
    /*) expanded=$1 ;;
    *) expanded=$PWD/$1 ;;
  esac
}
"""
"""``expand PATH`` sets ``expanded``: a leading ``~`` is the login's home, and the result is absolute."""

PROCESS = r"""
process() {
  process_text=
  { while IFS= read -r process_line || [ -n "$process_line" ]; do
    process_text="$process_text $process_line"
  done <"/proc/$1/stat"; } 2>/dev/null
  case $process_text in *') '*) ;; *) return 1 ;; esac
  process_pid=${process_text%%(*}
  process_pid=${process_pid##' '}
  process_pid=${process_pid%%' '*}
  set -- ${process_text##*') '}
  [ $# -ge 20 ] || return 1
  process_state=$1 process_parent=$2 process_group=$3 process_session=$4 process_front=$6
  shift 19
  process_ticks=$1
}
lives() {
  process "$1" && [ "$process_ticks" = "$2" ] || return 1
  case $process_state in Z | X | x) return 1 ;; esac
}
"""
"""``process PID`` reads what the kernel says of a process, its name being whatever it likes (even ``) Z 1``);
``lives PID TICKS`` is whether that very process is there and is no corpse."""

RECORDS = r"""
records_end=
set --
while IFS= read -r records_line; do
  records_value=$(printf '%b.' "${records_line#??}")
  records_value=${records_value%.}
  case $records_line in
    'A '*) set -- "$@" "$records_value" ;;
    'E '*) export "$records_value" ;;
    'N '*) records_note=$records_value ;;
    .) records_end=1; break ;;
  esac
done
"""
"""Reads records from stdin: words into ``"$@"``, ``NAME=value`` into the environment, a note into
``records_note``; ``records_end`` stays empty when the last record never came."""

END_OF_RECORDS = b".\n"


def record(kind: str, value: str) -> bytes:
    """One record; StepFailed for what no process can be given (a NUL, half a character)."""
    if "\0" in value:
        raise StepFailed("a NUL character can't be passed to a process")
    try:
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise StepFailed("a value holds half a character, which can't be passed to a process") from exc
    escaped = b"".join(bytes((byte,)) if byte in _PLAIN else b"\\0%03o" % byte for byte in data)
    return kind.encode() + b" " + escaped + b"\n"


def words(argv: Sequence[str]) -> bytes:
    """The records of an argv."""
    return b"".join(record("A", word) for word in argv)


def variables(env: Mapping[str, str]) -> bytes:
    """The records of an environment; StepFailed for a name that no shell can export."""
    for name in env:
        if not name.isascii() or not name.isidentifier():
            raise StepFailed(f"{name!r} can't be the name of an environment variable")
    return b"".join(record("E", f"{name}={value}") for name, value in env.items())
