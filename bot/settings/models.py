"""What may stand in a fleet file, as pydantic models; docs/fleet-file.md is made from them."""

from __future__ import annotations

import re
from datetime import time, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from bot.settings import words
from bot.settings.document import nearest

Span = Annotated[timedelta, PlainValidator(words.span)]
TimeOfDay = Annotated[time | None, PlainValidator(words.time_of_day)]
Command = Annotated[tuple[str, ...], PlainValidator(words.command)]
Words = Annotated[tuple[str, ...], PlainValidator(words.words)]
FlagSet = Annotated[words.FlagChoice, PlainValidator(words.flags)]
LauncherChoice = Annotated[words.LauncherChoice, PlainValidator(words.launcher)]
Memberships = Annotated[tuple[words.Member, ...], PlainValidator(words.members)]
Variable = Annotated[str, PlainValidator(words.variable)]
Url = Annotated[str, PlainValidator(words.url)]
LabelName = Annotated[str, PlainValidator(words.label_name)]
Labels = Annotated[dict[str, str], PlainValidator(words.labels)]
Listen = Annotated[tuple[str, int] | None, PlainValidator(words.listen)]
Environment = Annotated[dict[str, str], PlainValidator(words.environment)]


def _flag_names(value: Any) -> tuple[str, ...]:
    return tuple(words.flag_name(one) for one in words.words(value))


def _one_hop_or_many(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _ids(value: Any) -> tuple[str, ...]:
    found = words.words(value)
    for one in found:
        if not one or one[0] in "@#" or any(character.isspace() for character in one):
            raise words.Wrong(f"must be an id such as U0123ABCD, not {words.shown(one)}; Slack shows it in the profile")
    return found


def _member_ids(value: Any) -> tuple[str, ...]:
    for one in (found := _ids(value)):
        if _GROUP.fullmatch(one):
            raise words.Wrong(f"{one} is the id of a user group; it belongs under `teams`")
    return found


def _group_ids(value: Any) -> tuple[str, ...]:
    found = words.words(value)
    for one in found:
        if not _GROUP.fullmatch(one):
            raise words.Wrong(f"must be the id of a user group such as S0123ABCD, not {words.shown(one)}")
    if not found:
        raise words.Wrong("must not be empty")
    return found


_GROUP = re.compile(r"S[A-Z0-9]{2,30}")
Ids = Annotated[tuple[str, ...], PlainValidator(_ids)]
MemberIds = Annotated[tuple[str, ...], PlainValidator(_member_ids)]
GroupIds = Annotated[tuple[str, ...], PlainValidator(_group_ids)]
FlagNames = Annotated[tuple[str, ...], PlainValidator(_flag_names)]
Hops = Annotated[list[Any], BeforeValidator(_one_hop_or_many)]


class Section(BaseModel):
    """A mapping of the file; a key that it does not know is answered with the nearest one that it does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        if given is None:
            return {}
        if not isinstance(given, dict):
            raise PydanticCustomError(
                "shape", "{why}", {"why": f"must be a mapping (key: value), not {words.shown(given)}"}
            )
        for key in given:
            if key not in cls.model_fields:
                why = f"is no key here{nearest(key, cls.model_fields)}"
                raise PydanticCustomError("unknown_key", "{why}", {"why": why, "key": key})
        return given


class HostSection(Section):
    """A machine or container."""

    reach: Hops = Field(
        [], description="The hops to it, in order, each a transport: `[ssh: root@h1, pct: 200]`. None: this machine."
    )
    gpu_query: Command = Field(("nvidia-smi",), description="The command that stands for nvidia-smi there.")
    kernel_log: Command | None = Field(
        None,
        description="A command that prints the kernel's log there, for GPU errors; without it /dev/kmsg, the journal"
        " or dmesg is read, whichever may be.",
    )
    state_dir: str = Field(
        "~/.local/state/upbot",
        min_length=1,
        description="Where pids and exit statuses are kept there; ~ is the login's home.",
    )


class RouterSection(Section):
    """A router that spreads requests over servers: sglang-router 0.3 or SMG, by their API of workers."""

    host: str = Field(description="The name of the host that it runs on; it is asked from there.")
    port: int = Field(gt=0, lt=65_536, description="Its HTTP port.")
    address: str = Field("127.0.0.1", min_length=1, description="Where its host itself reaches that port.")
    key_variable: Variable = Field(
        "", description="The variable in the bot's environment that holds its key; the key itself never stands here."
    )
    drain: Span = Field(
        timedelta(minutes=2), description="How long requests may go on to their end once a server was taken out."
    )


class SystemdSection(Section):
    """A server as a systemd unit."""

    unit: str = Field(
        "",
        description="A unit that is there already, `sglang@{port}`, started with the server's flags in place of its"
        " own; without it one is made, `upbot-<name>`.",
    )
    manager: Literal["system", "user"] = Field("system", description="The machine's systemd, or the login's own.")


class DockerSection(Section):
    """A server as a container."""

    image: str = Field(min_length=1, description="The image; `launch` is run in place of its entry point.")
    args: Command = Field(
        (), description="What `docker run` gets besides: `--gpus all --network host -v /models:/models`."
    )
    command: str = Field("docker", min_length=1, description="The program that stands for docker: `podman`.")


LAUNCHERS: dict[str, tuple[type[Section], str]] = {
    "systemd": (SystemdSection, "unit"),
    "docker": (DockerSection, "image"),
}
"""What may stand beside a launcher's name, and the key that a bare value fills."""


class ServerDefaults(Section):
    """What servers have in common; a server's own key counts more, flags and variables are put together."""

    host: str | None = Field(None, description="The host's name; it must stand here or in `defaults`.")
    engine: str = Field("sglang", description="The program: sglang or vllm.")
    launch: Command | None = Field(
        None,
        description="The command that launches it; it must stand here or in `defaults`.",
    )
    flags: FlagSet = Field(
        words.FlagChoice(),
        description="Its flags, below every profile's.",
    )
    env: Environment = Field({}, description="Its environment. CUDA_VISIBLE_DEVICES is set from `gpus`.")
    directory: str = Field("", description="The folder that it is started in.")
    launcher: LauncherChoice = Field(
        words.LauncherChoice("process"),
        description="What starts and stops it: `process`, `systemd` or `docker`; with settings"
        ' `{systemd: "sglang@{port}"}`, `{docker: "lmsysorg/sglang:latest"}`.',
    )
    gpus: Words = Field((), description="The GPUs that it uses: `n`, `0-7`, `[0, 1]`, `[2*n, 2*n+1]`.")
    log: str = Field(
        "~/.local/state/upbot/{name}.log",
        min_length=1,
        description="Its log on the host; ~ is the login's home. `journal` is the journal of its systemd unit.",
    )
    log_rotates: bool = Field(
        default=True, description="Whether each start keeps the old log aside instead of writing on."
    )
    groups: Words = Field((), description="Words that name it together with others: `eval`.")
    profile: str | None = Field(None, description="The profile that it runs when nobody named another.")
    address: str = Field("127.0.0.1", min_length=1, description="Where the host itself reaches its HTTP port.")
    grace: Span = Field(timedelta(seconds=30), description="How long it may take to end after SIGTERM.")
    start_limit: Span = Field(timedelta(minutes=30), description="How long a start may take.")
    target: float | None = Field(None, gt=0, description="The tokens a second that it is expected to decode.")
    router: Memberships = Field(
        (),
        description="The router that sends it requests, or several; with the URL by which a router on another host"
        ' knows it: `{front: "http://10.0.0.5:{port}"}`.',
    )


class ServerSection(ServerDefaults):
    """One server, or a template of many."""

    port: str = Field(description="Its HTTP port: `30000`, in a template `30000+n`.")


class ProfileSection(Section):
    """A named set of launch flags."""

    flags: FlagSet = Field(words.FlagChoice(), description="Flags on top of the server's own.")
    without: FlagNames = Field((), description="Flags of the server that it takes away.")
    env: Environment = Field({}, description="Environment on top of the server's own.")
    job_concurrency: int | None = Field(None, gt=0, description="The concurrency that the job is resumed with.")
    fallback: Literal["offer", "auto"] = Field(
        "offer", description="After a start that failed, the way back to the last good profile is offered, or taken."
    )
    price: str = Field("", description="What it is known to cost, in a few words.")
    gain: str = Field("", description="What it is known to give, in a few words.")
    seats: int | None = Field(None, gt=0, description="How many requests a server then runs at once.")


class ProgressSection(Section):
    """Where a job's progress stands."""

    file: str = Field(min_length=1, description="The file on the job's host; ~ is the login's home.")
    done: str = Field("done", min_length=1, description="Where done stands: a path into JSON, or a regex with a group.")
    total: str = Field("total", min_length=1, description="Where the total stands, alike.")
    rate: str = Field("", description="Where tokens a second stand, alike.")


class JobSection(Section):
    """The client that feeds the servers."""

    host: str = Field(description="The host's name.")
    command: Command = Field(description="The command that starts it.")
    session: str | None = Field(None, min_length=1, description="The tmux session that it runs in.")
    pid_file: str | None = Field(None, min_length=1, description="Where its pid stands, when it is a plain process.")
    log: str = Field("", description="Its log on the host.")
    env: Environment = Field({}, description="Its environment.")
    directory: str = Field("", description="The folder that it is started in.")
    stop_keys: Words = Field(("C-c",), description="The keys that ask it to end, as tmux names them.")
    stop_limit: Span = Field(timedelta(minutes=2), description="How long it may take to end.")
    concurrency_flag: str | None = Field(
        None, description="The flag that carries a profile's concurrency: `--concurrency`."
    )
    minimum_servers: int = Field(1, ge=1, description="It resumes only when so many servers are ready.")
    progress: ProgressSection | None = Field(None, description="Where its progress stands.")


class GrantSection(Section):
    """A role, and how far it reaches."""

    role: Literal["viewer", "operator", "admin"] = Field(
        "viewer", description="viewer looks, operator restarts, admin may all."
    )
    channels: Words = Field((), description="The channels, by their names here, in which the role holds; none: all.")
    targets: Words = Field(
        (), description="What it is over: servers (`gpu4-7`), groups, hosts, jobs; none: all. Elsewhere one may look."
    )


class PersonSection(GrantSection):
    """Somebody who may say things."""

    also: list[GrantSection] = Field([], description="More roles of theirs, each with its own reach.")
    slack: MemberIds = Field((), description="The member id in Slack (`U0123ABCD`), or several.")
    login: str | None = Field(None, min_length=1, description="The login on the bot's machine, for `upbot ask`.")


class TeamSection(GrantSection):
    """The people of a user group in Slack, whoever is in it at the time."""

    also: list[GrantSection] = Field([], description="More roles of theirs, each with its own reach.")
    slack: GroupIds = Field(description="The user group's id in Slack (`S0123ABCD`), or several.")


class ChannelSection(Section):
    """A place where the bot listens."""

    slack: Ids = Field((), description="The channel id in Slack (`C0123ABCD`), or several.")
    targets: Words = Field((), description="What a command without a target means there; none: the whole fleet.")
    alerts: bool = Field(default=True, description="Whether alerts are told there.")


class LimitsSection(Section):
    """Spans and rules of the whole fleet."""

    confirm_within: Span = Field(timedelta(minutes=5), description="How long a question can be answered.")
    answer_within: Span = Field(
        timedelta(milliseconds=900), description="When the first answer is given, whatever is in."
    )
    host_timeout: Span = Field(timedelta(seconds=3), description="When a host that says nothing is called unreachable.")
    progress_every: Span = Field(timedelta(seconds=30), description="How often an operation tells how it goes.")
    compare_after: Span = Field(timedelta(minutes=5), description="When throughput is compared after a restart.")
    ask_may_confirm: bool = Field(
        default=False, description="Whether `upbot ask --yes` may answer a question by itself."
    )
    two_persons: Words = Field((), description="Commands that the asker may not confirm: `[restart, stop]`.")
    report_at: TimeOfDay = Field(
        None, description="When the report of the last day is told where alerts are: `8:00`, in UTC."
    )


class PrometheusSection(Section):
    """A Prometheus that the watch reads instead of the servers; its auth is in the environment."""

    url: Url = Field(description="Where it is: `http://prometheus:9090`, with its path prefix if it has one.")
    label: LabelName = Field("instance", description="The label that tells servers apart.")
    value: str = Field(
        "{host}:{port}",
        min_length=1,
        description="What that label is for a server: `{name}`, `{host}`, `{port}` and `{address}` are filled in.",
    )
    only: Labels = Field({}, description="Labels that every series must have: `{cluster: a}`.")
    scrape_interval: Span = Field(timedelta(seconds=15), description="How often it scrapes the servers.")
    timeout: Span = Field(timedelta(seconds=3), description="How long a query may take.")
    when_away: Literal["look", "wait"] = Field(
        "look", description="While it can't be read, the bot looks at all servers itself, or says that it is blind."
    )


class AlertmanagerSection(Section):
    """An Alertmanager whose alerts are shown and whose silences are set; its auth is in the environment."""

    url: Url = Field(description="Where it is: `http://alertmanager:9093`, with its path prefix if it has one.")
    label: LabelName | None = Field(
        None, description="The label that tells servers apart; without it that of `prometheus`, or `instance`."
    )
    value: str | None = Field(
        None, min_length=1, description="What that label is for a server; without it as in `prometheus`."
    )
    send: bool = Field(default=False, description="Whether the bot's own alerts are sent there.")
    listen: Listen = Field(
        ("127.0.0.1", 9099),
        description="Where its webhook is listened for (path `/alertmanager`); `false`: nowhere.",
    )
    timeout: Span = Field(timedelta(seconds=3), description="How long a request may take.")
    watchdog: str | None = Field(
        None, min_length=1, description="The name of the alert that always fires: that it is missing is told."
    )
    watchdog_within: Span = Field(timedelta(minutes=10), description="How often that must be heard at least.")


class FleetFile(Section):
    """The whole file."""

    hosts: dict[str, HostSection] = Field(min_length=1, description="The machines and containers, by name.")
    servers: dict[str, ServerSection] = Field(
        min_length=1, description="The servers, by name; `gpu{0..7}` makes eight, and n is each one's number."
    )
    defaults: ServerDefaults = Field(ServerDefaults(), description="What all servers have in common.")
    routers: dict[str, RouterSection] = Field({}, description="What spreads requests over the servers.")
    profiles: dict[str, ProfileSection] = Field({}, description="Named sets of launch flags.")
    jobs: dict[str, JobSection] = Field({}, description="The clients that feed the servers.")
    people: dict[str, PersonSection] = Field({}, description="Who may do what; with nobody here, everybody only looks.")
    teams: dict[str, TeamSection] = Field({}, description="What the people of a user group in Slack may do.")
    channels: dict[str, ChannelSection] = Field({}, description="Where the bot listens, and what is meant there.")
    target: float | None = Field(
        None, gt=0, description="The tokens a second that the whole fleet is expected to decode."
    )
    limits: LimitsSection = Field(LimitsSection(), description="Spans and rules of the whole fleet.")
    prometheus: PrometheusSection | None = Field(
        None, description="A Prometheus that the watch reads instead of the servers."
    )
    alertmanager: AlertmanagerSection | None = Field(
        None, description="An Alertmanager whose alerts are shown and whose silences are set."
    )
