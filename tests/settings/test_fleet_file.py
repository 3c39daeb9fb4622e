"""The fleet file, read: what the examples mean, and the small languages in it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from bot.domain.errors import ConfigError
from bot.domain.flags import Flags
from bot.domain.fleet import (
    Channel,
    Fallback,
    Fleet,
    Hop,
    Host,
    Job,
    Launch,
    Limits,
    Person,
    Profile,
    Progress,
    Role,
    Server,
)
from bot.plugins import load
from bot.settings import load_fleet, parse_fleet

CONFIG = Path(__file__).parents[2] / "config"
ENGINES, LAUNCHERS = ("sglang", "vllm"), ("process", "systemd")


class SshLike(BaseModel):
    """A pretend ssh."""

    model_config = ConfigDict(extra="forbid")
    host: str = Field(min_length=1)
    port: int = 22
    fast: bool = False


class PctLike(BaseModel):
    """A pretend pct."""

    model_config = ConfigDict(extra="forbid")
    id: int = Field(gt=0)


class Kind:
    def __init__(self, name, settings, shorthand):
        self.name, self.settings, self.shorthand = name, settings, shorthand

    def label(self, hop):
        return self.name

    def connect(self, hop, outer):
        raise NotImplementedError


class Bare(BaseModel):
    """A hop with nothing to set."""

    user: str = "root"


KINDS = {"ssh": Kind("ssh", SshLike, "host"), "pct": Kind("pct", PctLike, "id"), "sudo": Kind("sudo", Bare, "user")}


def fleet(text):
    return parse_fleet(text.encode(), "f.yaml", transports=KINDS, engines=ENGINES, launchers=LAUNCHERS)


SMALL = """
hosts:
  box: {}
servers:
  a: {host: box, port: 30000, launch: sglang serve --model-path /m%s}
"""


def launched(extra):
    return fleet(SMALL % extra).servers[0]


def test_the_first_nights_fleet_is_eight_servers_in_at_most_forty_lines():
    path = CONFIG / "fleet.example.yaml"
    assert len(path.read_text().splitlines()) <= 40
    night = load_fleet(
        path,
        transports=KINDS | {"ssh": load("bot.transports", "TRANSPORT")["ssh"]},
        engines=ENGINES,
        launchers=LAUNCHERS,
    )
    launch = Launch(
        ("python", "-m", "sglang.launch_server"),
        Flags((("model-path", ("/models/Qwen3.6-27B",)), ("enable-metrics", ()))),
    )
    strategies = [
        (("mamba-scheduler-strategy", (name,)), ("mem-fraction-static", (share,)), ("max-running-requests", (cap,)))
        for name, share, cap in (("extra_buffer", "0.85", "64"), ("no_buffer", "0.90", "128"))
    ]
    assert night == Fleet(
        hosts=(Host("ct200", (Hop("ssh", (("host", "host"), ("user", "root"))), Hop("pct", (("id", "200"),)))),),
        servers=tuple(
            Server(f"gpu{n}", "ct200", 30000 + n, "sglang", launch, gpus=(n,), log=f"/var/log/sglang/gpu{n}.log", usual="extra_buffer")
            for n in range(8)
        ),
        profiles=(
            Profile("extra_buffer", Flags(strategies[0]), job_concurrency=320, seats=37, gain="overlap scheduling"),
            Profile("no_buffer", Flags(strategies[1]), job_concurrency=640, seats=72, price="no overlap scheduling", gain="72 seats a server instead of 37"),
        ),
        jobs=(
            Job(
                "datagen", "ct200", ("python", "generate.py", "--resume"), session="datagen", directory="/root/datagen",
                concurrency_flag="--concurrency", minimum_servers=6,
                progress=Progress("/root/datagen/progress.json", rate="tokens_per_second"),
            ),
        ),
        people=(
            Person("ana", Role.ADMIN, ("U0123ANA",), "ana"), Person("bo", Role.OPERATOR, ("U0123BO",)), Person("vic", Role.VIEWER, ("U0123VIC",)),
        ),
        channels=(Channel("fleet", ("C0123FLEET",), ("ct200",)),),
        target=6250.0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["fleet.example.yaml", "single-tp8.yaml", "plain-hosts.yaml"])
def test_every_example_is_read_with_the_transports_that_there_are(name):
    found = load_fleet(
        CONFIG / name, transports=load("bot.transports", "TRANSPORT"), engines=ENGINES, launchers=LAUNCHERS
    )
    assert found.servers


def test_a_single_server_may_span_all_gpus():
    big = load_fleet(
        CONFIG / "single-tp8.yaml", transports=load("bot.transports", "TRANSPORT"), engines=ENGINES, launchers=LAUNCHERS
    )
    server = big.servers[0]
    assert (server.gpus, server.grace, server.start_limit) == (
        tuple(range(8)),
        timedelta(minutes=2),
        timedelta(hours=1),
    )
    assert big.profiles[1].fallback is Fallback.AUTO
    assert big.profiles[1].env == (("SGLANG_ENABLE_SPEC_V2", "1"),)
    assert big.limits == Limits(confirm_within=timedelta(minutes=10))


def test_what_servers_have_in_common_is_put_under_each():
    found = fleet(
        """
        hosts: {box: {reach: [ssh: {host: h1, port: 2222, fast: true}, sudo]}, here: }
        defaults:
          host: box
          launch: numactl --membind=0 /opt/python -m sglang.launch_server --model-path /m --tp 2 --port {port}
          flags: {mem_fraction_static: 0.90, enable-metrics: true, tp: 4, log-level: "true"}
          env: {A: 1, B: "{name}"}
          log: /l/{host}/{n}.log
          groups: [eval, night]
          target: 700
        servers:
          a{08..09}x: {port: 100+2*n, gpus: ["2*n", 2*n+1], flags: {tp: false, json: '{"n": {n}}'}, env: {B: b}}
          z: {host: here, port: "7", log: z.log, launch: [vllm, serve, /m], flags: --max-num-seqs 8, engine: vllm, groups: []}
        """
    )
    flags = (
        ("model-path", ("/m",)),
        ("mem-fraction-static", ("0.90",)),
        ("enable-metrics", ()),
        ("log-level", ("true",)),
    )
    command = ("numactl", "--membind=0", "/opt/python", "-m", "sglang.launch_server")
    common = {"groups": ("eval", "night"), "target": 700.0}
    assert found.hosts == (
        Host("box", (Hop("ssh", (("host", "h1"), ("port", "2222"), ("fast", "true"))), Hop("sudo"))),
        Host("here"),
    )
    assert found.servers == (
        *(
            Server(
                f"a{n:02}x", "box", 100 + 2 * n, "sglang",
                Launch(command, Flags((*flags, ("json", (f'{{"n": {n}}}',)))), (("A", "1"), ("B", "b"))),
                gpus=(2 * n, 2 * n + 1), log=f"/l/box/{n}.log", **common,
            )
            for n in (8, 9)
        ),
        Server(
            "z", "here", 7, "vllm",
            Launch(
                ("vllm", "serve", "/m"),
                Flags((*flags[1:3], ("tp", ("4",)), ("log-level", ("true",)), ("max-num-seqs", ("8",)))), (("A", "1"), ("B", "z")),
            ),
            log="z.log", target=700.0,
        ),
    )  # fmt: skip


def test_a_flag_keeps_the_digits_that_were_typed_and_quotes_make_a_word_of_true():
    server = launched(", flags: {a: 0.90, b: 1_000, c: true, d: 'true', e: , f: [1, 2], g: false, h: 0x1F, i: yes}")
    assert server.launch.flags == Flags(
        (
            ("model-path", ("/m",)), ("a", ("0.90",)), ("b", ("1_000",)), ("c", ()), ("d", ("true",)), ("e", ()),
            ("f", ("1", "2")), ("h", ("0x1F",)), ("i", ("yes",)),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("5 min", timedelta(minutes=5)), ("90 s", timedelta(seconds=90)), ("90s", timedelta(seconds=90)),
        ("1 h 30 m", timedelta(minutes=90)), ("900 ms", timedelta(milliseconds=900)), ("1.5 hours", timedelta(minutes=90)), ("2 D", timedelta(days=2)),
    ],
)  # fmt: skip
def test_a_span_has_a_unit(text, span):
    assert launched(f", grace: {text}").grace == span


@pytest.mark.parametrize(
    ("reach", "hops"),
    [
        ("ssh: root@h1", (Hop("ssh", (("host", "root@h1"),)),)),
        ("[ssh: h1, pct: 200]", (Hop("ssh", (("host", "h1"),)), Hop("pct", (("id", "200"),)))),
        ("sudo", (Hop("sudo"),)),
        ("[sudo: ]", (Hop("sudo"),)),
        ("[]", ()),
    ],
)  # fmt: skip
def test_a_way_may_be_one_hop_or_many(reach, hops):
    block = (
        f"\n  reach: {reach}"
        if reach.startswith(("[", "s")) and ": " not in reach.split("[")[0]
        else f"\n  reach: {{{reach}}}"
    )
    assert (
        fleet(f"hosts:\n box:{block}\nservers: {{a: {{host: box, port: 1, launch: x serve}}}}\n").hosts[0].hops == hops
    )


def test_aliases_are_read():
    found = fleet(
        "hosts: {b: {}}\nservers:\n  x: {host: b, port: 1, launch: &l [a, b]}\n  y: {host: b, port: 2, launch: *l}\n"
    )
    assert [server.launch.command for server in found.servers] == [("a", "b"), ("a", "b")]


def test_a_byte_order_mark_is_no_mistake():
    assert parse_fleet(
        b"\xef\xbb\xbf" + (SMALL % "").encode(), "f", transports={}, engines=ENGINES, launchers=LAUNCHERS
    ).servers


WORDS = st.sampled_from(
    ["hosts", "servers", "defaults", "profiles", "jobs", "people", "channels", "limits", "target", "a", "gpu{0..3}", "port", "host",
     "launch", "reach", "ssh", "pct", "flags", "gpus", "n", "30000+n", "1", "-1", "", "true", "5 min", "{n}", "a b", "role", "admin",
     "slack", "targets", "log", "progress", "file", "command", "without", "env", "\x00", "é", "box"]
)  # fmt: skip
VALUES = st.recursive(
    WORDS | st.none() | st.integers() | st.booleans() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=15,
)


def tried(data):
    try:
        parse_fleet(data, "f.yaml", transports=KINDS, engines=ENGINES, launchers=LAUNCHERS)
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017 - what is asserted is that nothing else was raised


@given(st.binary(max_size=200))
def test_any_bytes_are_a_fleet_or_a_config_error(data):
    tried(data)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,? \n\t\\u0x~<", max_size=80))
def test_any_yaml_like_text_is_a_fleet_or_a_config_error(text):
    tried(text.encode())


@given(VALUES, st.sampled_from(["{}", "hosts: {{box: {}}}", "servers: {{a: {}}}", "hosts: {{box: {{reach: {}}}}}\nservers: {{a: {{host: box, port: 1, launch: x}}}}", "people: {{a: {}}}\nhosts: {{box: }}\nservers: {{a: {{host: box, port: 1, launch: x}}}}", "hosts: {{box: }}\nservers: {{gpu{{0..3}}: {{host: box, port: 1+n, launch: x, flags: {}}}}}"]))  # fmt: skip
def test_any_values_anywhere_are_a_fleet_or_a_config_error(value, frame):
    import json  # noqa: PLC0415 - only this test writes values down

    tried(frame.format(json.dumps(value)).encode())
