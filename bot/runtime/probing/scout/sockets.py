"""Who listens where: asked of the kernel by netlink, which takes no time, or read from its table of all sockets."""
# ruff: noqa: PTH123 - pathlib costs more than the system calls that it would wrap here

import socket
import struct
from typing import Any

# linux/sock_diag.h and linux/inet_diag.h: one request, and the answer's fixed part.
SOCK_DIAG, BY_FAMILY, DUMP = 4, 20, 0x301
ENDED, FAILED = 3, 2
LISTENS = 1 << 10
HEADER = struct.Struct("=IHHII")
ASKED = struct.Struct("=BBBxI48x")
TOLD = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
PATIENCE = 1.0


def listening(ports: "set[int]") -> "list[list[Any]]":
    """``[address, port, inode, uid, []]`` of every socket that listens on one of the ports."""
    try:
        return sorted(row for row in from_kernel() if row[1] in ports)
    except (OSError, AttributeError, ValueError, struct.error):
        return from_table(ports)


def from_kernel() -> "list[list[Any]]":
    """Every socket that listens, by netlink; OSError where that can't be asked."""
    found: list[list[Any]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as sock:
        sock.settimeout(PATIENCE)
        for family in (socket.AF_INET, socket.AF_INET6):
            asked = ASKED.pack(family, socket.IPPROTO_TCP, 0, LISTENS)
            sock.send(HEADER.pack(HEADER.size + len(asked), BY_FAMILY, DUMP, 0, 0) + asked)
            while read_dump(sock.recv(65536), found):
                pass
    return found


def read_dump(data: bytes, found: "list[list[Any]]") -> bool:
    """Take a piece of the kernel's answer; whether more will come."""
    while data:
        size, kind = HEADER.unpack_from(data)[:2]
        if kind == ENDED:
            return False
        if kind == FAILED or size < HEADER.size:
            raise OSError("netlink does not tell")
        row = TOLD.unpack_from(data, HEADER.size)
        found.append([address_of(row[0], row[6]), int.from_bytes(row[4], "big"), row[14], row[13], []])
        data = data[(size + 3) & ~3 :]
    return True


def address_of(family: int, raw: bytes) -> str:
    """An address as people write it."""
    text = socket.inet_ntop(family, raw[:4] if family == socket.AF_INET else raw)
    return text[7:] if text.startswith("::ffff:") and "." in text else text


def from_table(ports: "set[int]") -> "list[list[Any]]":
    """``[address, port, inode, uid, []]`` of every socket that listens on one of the ports."""
    found = []
    for path, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        try:
            with open(path, "rb") as file:
                lines = [line for line in file if b" 0A " in line]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            place, _colon, port = fields[1].partition(b":")
            if fields[3] == b"0A" and int(port, 16) in ports:
                found.append([readable(place, family), int(port, 16), int(fields[9]), int(fields[7]), []])
    return sorted(found)


def readable(place: bytes, family: int) -> str:
    """An address as people write it; the kernel prints words in the machine's own byte order."""
    raw = bytes.fromhex(place.decode("ascii"))
    words = struct.unpack("=%dI" % (len(raw) // 4), raw[: len(raw) // 4 * 4])  # noqa: UP031 - cheapest here
    return address_of(family, struct.pack(">%dI" % len(words), *words))  # noqa: UP031 - cheapest here
