"""What the machine needs from the world, as small interfaces named for the need.

Adapters stand in transports, launchers, chats, stores and runtime; tests have fakes of their own. The world
never throws a library's exception through a port: only those of `bot.domain.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Protocol

from pydantic import BaseModel

from bot.domain.audit import AuditEntry
from bot.domain.changes import JobMark, ReadinessChange
from bot.domain.course import Point
from bot.domain.facts import JobFacts, Process, Sight
from bot.domain.fleet import Hop, Host, Job, Router, Server
from bot.domain.leases import Hold
from bot.domain.message import Message
from bot.domain.monitors import AlertmanagerPeer, PrometheusSource
from bot.domain.needs import Needs as Needs  # noqa: PLC0414 - a look is asked for with it
from bot.domain.operation import Asked, Operation, Question, Where
from bot.domain.records import StartRecord as StartRecord  # noqa: PLC0414 - as above
from bot.domain.routing import Worker
from bot.domain.watching.alerts import Alert
from bot.domain.watching.exchange import Outgoing, RemoteSilence, SilenceOrder
from bot.domain.watching.foreign import Notification
from bot.domain.watching.samples import Reading
from bot.domain.wishes import Goal, Wish


class Clock(Protocol):
    """Time. ``now`` is in UTC and is for people and records; ``sleep`` is the only way to wait."""

    def now(self) -> datetime: ...
    async def sleep(self, span: timedelta) -> None: ...


class Dice(Protocol):
    """Randomness, for nonces and jitter."""

    def hex(self, digits: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Completed:
    """How a remote command ended. Output beyond the transport's limit is cut, keeping the start."""

    status: int
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def is_ok(self) -> bool:
        return self.status == 0


class Channel(Protocol):
    """A running remote command with its pipes. Closing ends the command, also when the line is dead."""

    async def send(self, data: bytes) -> None:
        """Write to its stdin; HopError when the channel is gone."""
        ...

    async def receive(self) -> bytes:
        """The next bytes of its stdout; b"" at its end."""
        ...

    async def close(self) -> None: ...

    @property
    def errors(self) -> bytes:
        """What it wrote to stderr (the last 16 KiB)."""
        ...


class Transport(Protocol):
    """Reaches one host. Argv all the way: nothing that is passed is ever parsed by a shell.

    A failure on the way is a HopError that names the hop; a command that was reached and failed is a Completed.
    """

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta) -> Completed:
        """Run to its end. After ``timeout`` the command is ended on that host too, and TimedOut raised."""
        ...

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a command that is talked to; it must end by itself when its stdin closes."""
        ...

    async def close(self) -> None: ...


class TransportKind(Protocol):
    """A transport plug-in: reads its hop's settings and makes the hop.

    ``settings`` is the pydantic model of what stands in the fleet file; ``shorthand`` is the field that a bare
    value fills (``ssh: root@h1``, ``pct: 200``).
    """

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> type[BaseModel]: ...
    @property
    def shorthand(self) -> str: ...

    def label(self, hop: Hop) -> str:
        """How a person names this hop: "ssh root@h1", "container 200"."""
        ...

    def connect(self, hop: Hop, outer: Transport | None) -> Transport:
        """The transport through this hop, inside ``outer`` (None: from this machine); connects when first used."""
        ...


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launcher has on record of a server: the pid it started, and how that ended."""

    pid: int | None = None
    exit_status: int | None = None


class Launcher(Protocol):
    """A launcher plug-in: starts server processes on a host and remembers, on that host, how they ended."""

    @property
    def name(self) -> str: ...

    async def launched(self, host: Transport, server: Server, state_dir: str) -> Launched:
        """What is on record of the last start."""
        ...

    async def start(
        self, host: Transport, server: Server, argv: Sequence[str], env: Mapping[str, str], state_dir: str
    ) -> None:
        """Start detached, in a process group of its own; it outlives the bot. StepFailed when it can't."""
        ...

    async def adopt(self, host: Transport, server: Server, process: Process, state_dir: str) -> None:
        """Put a process on record that somebody else started; StepFailed when it is gone."""
        ...

    async def end(self, host: Transport, server: Server, process: Process, *, force: bool) -> None:
        """SIGTERM to exactly that process, or SIGKILL to its tree; one that is gone already is no error."""
        ...


class Eyes(Protocol):
    """Looks at servers and jobs."""

    def look(
        self, servers: Sequence[Server], *, jobs: Sequence[Job] = (), needs: Needs | None = None
    ) -> AsyncIterator[Sight]:
        """Look at all at once; yield whenever there is more to tell, the last one complete.

        The first one comes at once, with everything pending. Stopping early ends nothing that others wait for.
        """
        ...


class Hands(Protocol):
    """Acts on servers. Every act may be done twice; each raises FleetError when it can't be done."""

    async def start(self, server: Server, argv: Sequence[str], env: Mapping[str, str]) -> None: ...
    async def end(self, server: Server, process: Process, *, force: bool) -> None: ...
    async def adopt(self, server: Server, process: Process) -> None:
        """Put a process that somebody else started on record as ours."""
        ...

    async def warm_up(self, server: Server) -> float:
        """One small generation; the seconds that it took."""
        ...

    async def flags_known(self, server: Server) -> tuple[str, frozenset[str]]:
        """The installed version, and every flag that its own parser knows."""
        ...


class Routers(Protocol):
    """Looks at a router's workers and changes them; FleetError says which router, and why it could not be done."""

    async def workers(self, router: Router) -> tuple[Worker, ...]: ...
    async def remove(self, router: Router, worker: str) -> None:
        """Have a worker of that id get no new requests; one that is gone already is no error."""
        ...

    async def add(self, router: Router, url: str, settings: str, key: str | None) -> bool:
        """Have a worker added, which takes the router a moment; one that is there already is no error.

        ``settings`` is what it was registered with, ``key`` what it asks for. False when the router refused the
        settings and it was added without them.
        """
        ...


class JobHands(Protocol):
    """Looks at a job and acts on it."""

    async def look(self, job: Job) -> JobFacts: ...
    async def stop(self, job: Job) -> None:
        """Ask it to end (keys to its session, or SIGINT); returns at once."""
        ...

    async def start(self, job: Job, concurrency: int | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a message stands: a channel, its own id there, and the thread it belongs to."""

    channel: str
    id: str
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where to say something: a channel and, inside it, a thread."""

    channel: str
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A person said something. ``id`` names the message; the same id is never handled twice.

    ``mentions_bot`` when the bot was addressed by name; the mention itself is taken out of ``text``, and the
    chat's own escapes are undone.
    """

    place: Place
    id: str
    user: str
    text: str
    at: datetime
    mentions_bot: bool = False


@dataclass(frozen=True, slots=True)
class Pressed:
    """A person pressed a button of a message. ``does`` is what the button carried, as the chat kept it."""

    place: Place
    message: Ref
    user: str
    does: str
    at: datetime
    label: str = ""


class Listener(Protocol):
    """Who gets what people do; both return at once and work on by themselves."""

    def heard(self, event: Heard) -> None: ...
    def pressed(self, event: Pressed) -> None: ...


class Chat(Protocol):
    """A place where people talk. All text is shown as text: escaping is the adapter's work."""

    async def post(self, place: Place, message: Message) -> Ref: ...
    async def edit(self, ref: Ref, message: Message) -> None: ...
    async def whisper(self, place: Place, user: str, message: Message) -> None:
        """Say it so that only that person sees it."""
        ...

    async def react(self, ref: Ref, sign: str, *, on: bool = True) -> None:
        """Put a sign ("eyes", "white_check_mark", "x") on a message or take it away; never fails."""
        ...


class Hosts(Protocol):
    """The transports of the configured hosts, opened when first needed and kept warm."""

    def transport(self, host: Host) -> Transport: ...


class Alarms(Protocol):
    """Whoever watches: alerts may be acknowledged and silenced. UserError says what there is none of."""

    async def ack(self, id_: str | None, by: str) -> Alert: ...
    async def silence(
        self,
        servers: frozenset[str],
        length: timedelta,
        by: str,
        because: str,
        ids: frozenset[str] = frozenset(),
    ) -> object:
        """Say nothing of these servers, or of the alerts of these ids."""
        ...

    async def unsilence(self, servers: frozenset[str], ids: frozenset[str] = frozenset()) -> None: ...


@dataclass(frozen=True, slots=True)
class Scraped:
    """What a Prometheus has of one server: whether its last scrape went well, when that was, and its page of metrics.

    ``page`` is in Prometheus' text form, as the server itself would give it under ``/metrics``. ``every`` is how long
    before it the scrape before it was.
    """

    is_up: bool
    at: datetime
    page: bytes = b""
    every: timedelta | None = None


class Metrics(Protocol):
    """Reads a Prometheus. FleetError says in one line why it can't be read."""

    async def scraped(
        self, source: PrometheusSource, values: Sequence[str], names: frozenset[str]
    ) -> Mapping[str, Scraped]:
        """The last scrape of each server with one of these label values, of these metrics; unknown ones are missing."""
        ...


class Silencer(Protocol):
    """Sets and ends silences of an Alertmanager. FleetError says in one line why it can't."""

    async def silences(self, peer: AlertmanagerPeer) -> Sequence[RemoteSilence]:
        """Those that have not ended."""
        ...

    async def silence(self, peer: AlertmanagerPeer, order: SilenceOrder) -> str:
        """Set one; its id there."""
        ...

    async def unsilence(self, peer: AlertmanagerPeer, id_: str) -> None:
        """End one; that it is gone already is no error."""
        ...


class AlertExchange(Protocol):
    """Sends alerts to an Alertmanager and looks which it has. FleetError as above."""

    async def send(self, peer: AlertmanagerPeer, alerts: Sequence[Outgoing]) -> None: ...
    async def fingerprints(self, peer: AlertmanagerPeer) -> frozenset[str]:
        """Of all alerts that it takes to be firing, silenced or not."""
        ...


class Notified(Protocol):
    """Whoever hears what an Alertmanager tells; StoreError when it can't be kept, so that it is told again."""

    async def notified(self, notification: Notification) -> None: ...


class Promises(Protocol):
    """Whoever tells people later what they want to be told."""

    def promise(self, goal: Goal, user: str, place: Place) -> Wish: ...
    def forget(self, user: str) -> int: ...


class Groups(Protocol):
    """Knows who is in a chat's user groups."""

    async def members(self, group: str) -> frozenset[str]:
        """The ids of all in it. NoSuchGroup when the chat has none of that id, ChatError when it can't be asked."""
        ...


class Schedule(Protocol):
    """Does something again and again; a round that takes longer than its span is not begun twice."""

    def every(self, span: timedelta, work: Callable[[], Awaitable[None]], *, name: str) -> None: ...
    def at(self, time_of_day: time | None, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Once a day at that time in UTC, in place of what had this name before; None: not any more."""
        ...

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Operations(Protocol):
    """Remembers operations; StoreError when it can't, and then nothing that destroys is done."""

    def next_id(self) -> str: ...
    def save(self, operation: Operation) -> None: ...
    def live(self) -> tuple[Operation, ...]: ...
    def recent(self, limit: int) -> tuple[Operation, ...]: ...


class Questions(Protocol):
    """Remembers questions. ``end`` is atomic: of two presses one gets True."""

    def add(self, question: Question) -> None: ...
    def get(self, nonce: str) -> Question | None: ...
    def open(self) -> tuple[Question, ...]: ...
    def end(self, nonce: str, state: Asked, *, by: str | None, at: datetime) -> bool: ...
    def last_for(self, channel: str) -> Question | None:
        """The newest question that this place reads along, or that stands there."""
        ...

    def placed(self, nonce: str, where: Where) -> None:
        """Note where it was posted."""
        ...


class Holds(Protocol):
    """Remembers what people hold; StoreError when it can't."""

    def next_id(self) -> str: ...
    def current(self) -> tuple[tuple[Hold, ...], tuple[str, ...]]:
        """Those that were not ended, the oldest first, the time of one may be over; and the ids of those unreadable."""
        ...

    def change(self, ended: Collection[str], kept: Sequence[Hold], at: datetime) -> None:
        """End those of these ids and keep these, new ones and known ones, all of it or nothing."""
        ...


class Starts(Protocol):
    """Remembers how starts went."""

    def add(self, record: StartRecord) -> None: ...
    def recent(self, limit: int) -> tuple[StartRecord, ...]:
        """The newest so many, the newest last."""
        ...

    def measured(self, server: str, profile: str, tokens_per_second: float, per_request: float | None) -> None:
        """Note on the newest good start of that server with that profile how fast it decoded; nothing without one."""
        ...


class Audit(Protocol):
    """Writes down who did what; never changes what was written. StoreError when it can't: then nothing is destroyed."""

    def write(self, entry: AuditEntry) -> None: ...
    def recent(self, limit: int) -> tuple[AuditEntry, ...]:
        """The newest so many, the newest last."""
        ...


class Wishes(Protocol):
    """Remembers what people want to be told."""

    def add(self, wish: Wish) -> Wish:
        """Keep it; the wish with the number that it has got."""
        ...

    def all(self) -> tuple[tuple[Wish, ...], tuple[int, ...]]:
        """The wishes, the oldest first, and the numbers of those that can't be read."""
        ...

    def remove(self, number: int) -> None: ...


class Changes(Protocol):
    """Remembers what looks have shown: changes of readiness, and how far jobs were."""

    def add(self, changes: Sequence[ReadinessChange], marks: Sequence[JobMark]) -> None: ...
    def last(self) -> tuple[tuple[ReadinessChange, ...], tuple[JobMark, ...]]:
        """The newest of each server and of each job."""
        ...

    def since(self, at: datetime) -> tuple[tuple[ReadinessChange, ...], tuple[JobMark, ...]]:
        """Those from an instant on, and of each server and job the last before it; the oldest first."""
        ...


class Samples(Protocol):
    """Remembers what the watcher has read, and the alerts that are over."""

    def add(self, reading: Reading, expected: Mapping[str, float]) -> None:
        """Keep a reading, with the tokens a second that are usual for each server as it runs now."""
        ...

    def flush(self) -> None:
        """Write down what was only collected so far."""
        ...

    def since(self, at: datetime, servers: Collection[str] | None = None) -> Mapping[str, tuple[Point, ...]]:
        """The course of these servers (None: all) from an instant on, in the finest steps that are kept."""
        ...

    def readings(self, at: datetime) -> Iterator[Reading]:
        """Whole readings from an instant on, the oldest first."""
        ...

    def ended(self, alert: Alert) -> None:
        """Keep an alert that is over."""
        ...

    def alerts(self, at: datetime) -> tuple[Alert, ...]:
        """The alerts that ended since then, the oldest first."""
        ...


class Painter(Protocol):
    """Makes a picture of a drawing."""

    async def png(self, svg: str) -> bytes:
        """The drawing as PNG; FleetError when it can't be made."""
        ...


class Charts(Protocol):
    """Whoever draws charts for people who ask."""

    async def show(self, servers: Sequence[str], span: timedelta, place: Place) -> None:
        """Say it in words at once, and put the picture into that message's thread when it is drawn."""
        ...
