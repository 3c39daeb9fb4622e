"""Reads small files, and logs as they grow."""
# ruff: noqa: PTH111, PTH123 - pathlib costs more than the system calls that it would wrap here

import os
import time
from typing import Any


def follow(key: int, item: "list[Any]") -> "list[Any]":
    """The next bytes of a log: ``[path, offset, inode, seam, first, most]``.

    ``seam`` is what stood right before ``offset``: a file that was truncated and has grown past it again is
    found out by that. A reset starts at most ``first`` bytes before the end; so does one that is more than
    ``most`` bytes behind.
    """
    path, first, most = item[0], item[4], item[5]
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return ["chunk", key, read_on(file.fileno(), item, first, most)]
    except (OSError, ValueError, OverflowError) as error:
        return ["chunk", key, {"why": reason(error)}]


def read_on(number: int, item: "list[Any]", first: int, most: int) -> "dict[str, Any]":
    """Read on in an open log."""
    offset, inode, seam = item[1], item[2], item[3].encode("latin-1")
    stat = os.fstat(number)
    is_reset = offset is None or stat.st_ino != inode or stat.st_size < offset or stat.st_size - offset > most
    if not is_reset and offset is not None and seam:
        is_reset = os.pread(number, len(seam), offset - len(seam)) != seam
    start = max(0, stat.st_size - first) if is_reset or offset is None else offset
    data = read_part(number, start, min(first, stat.st_size - start))
    if is_reset and start:
        cut = data.find(b"\n") + 1
        start, data = start + cut, data[cut:]
    end = start + len(data)
    return {
        "inode": stat.st_ino,
        "start": start,
        "end": end,
        "reset": is_reset,
        "more": end < stat.st_size,
        "quiet": max(0.0, time.time() - stat.st_mtime),
        "seam": os.pread(number, min(end, 32), end - min(end, 32)).decode("latin-1"),
        "data": data.decode("latin-1"),
    }


def read_part(number: int, start: int, size: int) -> bytes:
    """That many bytes from there, or what there is."""
    pieces: list[bytes] = []
    while size > 0:
        piece = os.pread(number, min(size, 1 << 20), start)
        if not piece:
            break
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return b"".join(pieces)


def tail(key: int, item: "list[Any]") -> "list[Any]":
    """The last bytes of a log: ``[path, size]``; the first line may be cut."""
    path, size = item
    try:
        with open(os.path.expanduser(path), "rb") as file:
            whole = os.fstat(file.fileno()).st_size
            data = read_part(file.fileno(), max(0, whole - size), size)
            return ["tail", key, data.decode("latin-1"), whole > size, ""]
    except (OSError, ValueError) as error:
        return ["tail", key, "", False, reason(error)]


def reason(error: Exception) -> str:
    """Why a file can't be read, without its name."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def read_file(path: str, limit: int = 65536) -> bytes:
    """A small file's bytes; b"" where it can't be read."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(number, limit)
    except OSError:
        return b""
    finally:
        os.close(number)
