"""Mistakes in a fleet file: each is answered with its file, line and key, and with what would be right."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from pydantic import BaseModel, ConfigDict, Field

from bot.domain.errors import ConfigError
from bot.domain.fleet import Membership, Router
from bot.settings import load_fleet, parse_fleet

RIGHT = """\
hosts:
  box: {reach: [ssh: h1, pct: 200]}
servers:
  gpu{0..3}:
    host: box
    port: 30000+n
    gpus: n
    launch: sglang serve --model-path /m
profiles:
  fast: {flags: {a: 1}}
jobs:
  gen: {host: box, command: python gen.py, session: gen}
people:
  ana: {role: admin, slack: U1, login: ana}
channels:
  fleet: {slack: C1, targets: [gpu0, box]}
"""


class SshLike(BaseModel):
    """A pretend ssh."""

    model_config = ConfigDict(extra="forbid")
    host: str = Field(min_length=1)
    port: int = 22


class PctLike(BaseModel):
    """A pretend pct."""

    model_config = ConfigDict(extra="forbid")
    id: int = Field(gt=0)


class Kind:
    def __init__(self, name, settings, shorthand):
        self.name, self.settings, self.shorthand = name, settings, shorthand


KNOWN = {
    "transports": {"ssh": Kind("ssh", SshLike, "host"), "pct": Kind("pct", PctLike, "id")},
    "engines": ("sglang", "vllm"),
    "launchers": ("process", "systemd"),
}


def mistake(text):
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ConfigError) as caught:
        parse_fleet(data, "f.yaml", **KNOWN)
    return str(caught.value)


ROUTED = """\
hosts:
  box: {}
  far: {}
routers:
  front: {host: box, port: 3100, key_variable: FRONT_KEY, drain: 90 s}
  back: {host: far, port: 3100}
defaults: {launch: sglang serve --model-path /m, router: front}
servers:
  gpu{0..1}: {host: box, port: 30000+n}
  big: {host: far, port: 31000, router: [{front: "http://10.0.0.5:{port}"}, back]}
  alone: {host: far, port: 32000, router: []}
"""


def test_servers_know_their_routers_by_the_url_that_these_know():
    fleet = parse_fleet(ROUTED.encode(), "f.yaml", **KNOWN)
    assert fleet.router("front") == Router("front", "box", 3100, key_variable="FRONT_KEY", drain=timedelta(seconds=90))
    assert {server.name: server.routers for server in fleet.servers} == {
        "gpu0": (Membership("front", "http://127.0.0.1:30000"),),
        "gpu1": (Membership("front", "http://127.0.0.1:30001"),),
        "big": (Membership("front", "http://10.0.0.5:31000"), Membership("back", "http://127.0.0.1:31000")),
        "alone": (),
    }


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("router: front}", "router: frnt}",
         "f.yaml:7: defaults.router: there is no router 'frnt'; the nearest is front"),
        ("FRONT_KEY", "sk-hunter2",
         ("f.yaml:5: routers.front.key_variable: must be the name of a variable in the bot's environment, such as "
          "FRONT_KEY, never the key itself")),
        ("port: 3100, key", "port: 0, key",
         "f.yaml:5: routers.front.port: must be greater than 0, not '0'"),
        ("host: far, port: 3100", "host: fra, port: 3100",
         "f.yaml:6: routers.back.host: there is no host 'fra'; the nearest is far"),
        ('{front: "http://10.0.0.5:{port}"}', "front",
         ("f.yaml:10: servers.big.router: front runs on box and big on far: say how it is reached, "
          '{front: "http://10.0.0.5:{port}"}')),
        ("back]", "back, back]",
         "f.yaml:10: servers.big.router: back stands twice"),
        ("http://10", "htp://10",
         ("f.yaml:10: servers.big.router.front: must be a URL such as http://10.0.0.5:{port}, not "
          "'htp://10.0.0.5:{port}'")),
        ('{port}"', '{prt}"',
         "f.yaml:10: servers.big.router: there is no {prt}; the nearest is port"),
        ("router: []", "router: [5]",
         "f.yaml:11: servers.alone.router: there is no router '5'; there are back, front"),
        ("http://10.0.0.5:{port}", "http://127.0.0.1:30000",
         "f.yaml:10: servers.big.router: http://127.0.0.1:30000 at router front (for big) is the worker of gpu0"),
    ],
)  # fmt: skip
def test_a_mistake_about_a_router_is_named_and_no_key_is_shown(right, wrong, said):
    assert right in ROUTED
    assert mistake(ROUTED.replace(right, wrong, 1)) == said


def test_the_right_file_is_right():
    assert len(parse_fleet(RIGHT.encode(), "f.yaml", **KNOWN).servers) == 4


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("port: 30000+n", "prot: 30000+n",
         "f.yaml:6: servers.gpu{0..3}.prot: is no key here; the nearest is port"),
        ("profiles:", "profile:",
         "f.yaml:9: profile: is no key here; the nearest is profiles"),
        ("    port: 30000+n\n", "",
         "f.yaml:4: servers.gpu{0..3}.port: is missing"),
        ("    host: box\n", "",
         "f.yaml:4: servers.gpu{0..3}.host: is missing, here and in `defaults`"),
        ("    launch: sglang serve --model-path /m\n", "",
         "f.yaml:4: servers.gpu{0..3}.launch: is missing, here and in `defaults`"),
        ("hosts:\n  box: {reach: [ssh: h1, pct: 200]}\n", "",
         "f.yaml:1: hosts: is missing"),
        ("hosts:\n  box: {reach: [ssh: h1, pct: 200]}\n", "hosts: {}\n",
         "f.yaml:1: hosts: must not be empty"),
        ("host: box\n    port", "host: bax\n    port",
         "f.yaml:5: servers.gpu{0..3}.host: there is no host 'bax'; the nearest is box"),
        ("ssh: h1", "shs: h1",
         "f.yaml:2: hosts.box.reach[0].shs: there is no transport 'shs'; the nearest is ssh"),
        ("pct: 200", "pct: two",
         "f.yaml:2: hosts.box.reach[1].pct: must be a whole number, not 'two'"),
        ("pct: 200", "pct: {di: 200}",
         "f.yaml:2: hosts.box.reach[1].pct.di: is no key here; there is id"),
        ("pct: 200", "pct: {}",
         "f.yaml:2: hosts.box.reach[1].pct.id: is missing"),
        ("pct: 200", "pct: {id: -1}",
         "f.yaml:2: hosts.box.reach[1].pct.id: must be greater than 0, not '-1'"),
        ("pct: 200", "pct: [200]",
         "f.yaml:2: hosts.box.reach[1].pct: must be a value or a mapping, not a list"),
        ("ssh: h1, pct: 200", "{ssh: h1, pct: 200}",
         "f.yaml:2: hosts.box.reach[0]: must be one hop, such as ssh: root@h1, not a mapping"),
        ("ssh: h1", "ssh: {host: h1, port: x}",
         "f.yaml:2: hosts.box.reach[0].ssh.port: must be a whole number, not 'x'"),
        ("port: 30000+n", "port: 3OOOO+n",
         "f.yaml:6: servers.gpu{0..3}.port: must be a number or a sum such as 30000+n, not '3OOOO+n'"),
        ("port: 30000+n", "port: 70000+n",
         "f.yaml:6: servers.gpu{0..3}.port: 70000 is no port; ports go from 1 to 65535"),
        ("port: 30000+n", "port: [1]",
         "f.yaml:6: servers.gpu{0..3}.port: must be a text, not a list"),
        ("port: 30000+n", "port: 30000",
         "f.yaml:6: servers.gpu{0..3}.port: port 30000 of box (for gpu1) belongs to gpu0"),
        ("gpus: n", "gpus: 0",
         "f.yaml:7: servers.gpu{0..3}.gpus: GPU 0 of box (for gpu1) belongs to gpu0"),
        ("gpus: n", "gpus: 7-0",
         "f.yaml:7: servers.gpu{0..3}.gpus: '7-0' counts down"),
        ("gpus: n", "gpus: x",
         "f.yaml:7: servers.gpu{0..3}.gpus: must be a number or a sum such as 30000+n, not 'x'"),
        ("gpus: n", "gpus: {a: 1}",
         "f.yaml:7: servers.gpu{0..3}.gpus: must be a word or a list of words, not a mapping"),
        ("gpu{0..3}:", "gpu{3..0}:",
         "f.yaml:4: servers.gpu{3..0}: counts from 3 to 0; a template counts up, to at most 4096 names"),
        ("gpu{0..3}:", "gpu{0..}:",
         "f.yaml:4: servers.gpu{0..}: is no name; a template looks like gpu{0..7}"),
        ("gpu{0..3}:", "gpu{0..99999}:",
         "f.yaml:4: servers.gpu{0..99999}: counts from 0 to 99999; a template counts up, to at most 4096 names"),
        ("gpu{0..3}:", "gpu:",
         "f.yaml:6: servers.gpu.port: n stands only where the server's name is a template such as gpu{0..7}"),
        ("gpu{0..3}:", "'gpu {0..3}':",
         "f.yaml:4: servers.gpu {0..3}: is no name: it begins with a letter; letters, digits and . _ - follow (at most 64)"),
        ("gpu{0..3}:", "all:",
         "f.yaml:4: servers.all: all has a meaning of its own; take another name"),
        ("launch: sglang serve --model-path /m", "launch: sglang 'serve",
         "f.yaml:8: servers.gpu{0..3}.launch: has a quote that is not closed"),
        ("launch: sglang serve --model-path /m", "launch: []",
         "f.yaml:8: servers.gpu{0..3}.launch: must name a program"),
        ("launch: sglang serve --model-path /m", "launch: ['sglang serve']",
         "f.yaml:8: servers.gpu{0..3}.launch: is one word with spaces; quote less"),
        ("launch: sglang serve --model-path /m", "launch: sglang serve --port 1",
         "f.yaml:8: servers.gpu{0..3}.launch: its --port 1 is not the server's `port`, 30000"),
        ("launch: sglang serve --model-path /m", "launch: x\n    flags: {port: 3}",
         "f.yaml:9: servers.gpu{0..3}.flags: --port is set from the server's own key `port`"),
        ("launch: sglang serve --model-path /m", "launch: x\n    flags: {a: {b: 1}}",
         "f.yaml:9: servers.gpu{0..3}.flags.a: must be a value or a list of values; write JSON in quotes"),
        ("launch: sglang serve --model-path /m", "launch: x\n    flags: tp 8",
         "f.yaml:9: servers.gpu{0..3}.flags: must begin with a flag (--name), not 'tp'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    flags: {'a b': 8}",
         "f.yaml:9: servers.gpu{0..3}.flags.a b: 'a b' is no name of a flag"),
        ("launch: sglang serve --model-path /m", "launch: x\n    flags: {tp-size: 8, tp_size: 8}",
         "f.yaml:9: servers.gpu{0..3}.flags.tp_size: --tp-size stands twice"),
        ("launch: sglang serve --model-path /m", "launch: x\n    env: {A B: 1}",
         "f.yaml:9: servers.gpu{0..3}.env.A B: is no name of a variable"),
        ("launch: sglang serve --model-path /m", "launch: x\n    env: [A=1]",
         "f.yaml:9: servers.gpu{0..3}.env: must be a mapping of variables, not a list"),
        ("launch: sglang serve --model-path /m", "launch: x\n    env: {A: [1]}",
         "f.yaml:9: servers.gpu{0..3}.env.A: must be a text, not a list"),
        ("launch: sglang serve --model-path /m", "launch: x\n    engine: sglan",
         "f.yaml:9: servers.gpu{0..3}.engine: there is no engine 'sglan'; the nearest is sglang"),
        ("launch: sglang serve --model-path /m", "launch: x\n    launcher: systemdd",
         "f.yaml:9: servers.gpu{0..3}.launcher: there is no launcher 'systemdd'; the nearest is systemd"),
        ("launch: sglang serve --model-path /m", "launch: x\n    profile: fats",
         "f.yaml:9: servers.gpu{0..3}.profile: there is no profile 'fats'; the nearest is fast"),
        ("launch: sglang serve --model-path /m", "launch: x\n    log: /l/{nam}.log",
         "f.yaml:9: servers.gpu{0..3}.log: there is no {nam}; the nearest is name"),
        ("launch: sglang serve --model-path /m", "launch: x\n    groups: a b",
         "f.yaml:9: servers.gpu{0..3}.groups: 'a b' is no name of a group"),
        ("launch: sglang serve --model-path /m", "launch: x\n    grace: 30",
         "f.yaml:9: servers.gpu{0..3}.grace: must be a span with its unit, such as 5 min or 90 s, not '30'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    grace: 30 parsecs",
         "f.yaml:9: servers.gpu{0..3}.grace: must be a span with its unit, such as 5 min or 90 s, not '30 parsecs'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    grace: 9 years",
         "f.yaml:9: servers.gpu{0..3}.grace: must be a span with its unit, such as 5 min or 90 s, not '9 years'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    grace: 900 d",
         "f.yaml:9: servers.gpu{0..3}.grace: must be a span of up to a year, such as 5 min or 90 s, not '900 d'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    target: fast",
         "f.yaml:9: servers.gpu{0..3}.target: must be a number, not 'fast'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    target: 0",
         "f.yaml:9: servers.gpu{0..3}.target: must be greater than 0, not '0'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    target: .nan",
         "f.yaml:9: servers.gpu{0..3}.target: must be a number, not '.nan'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    log_rotates: maybe",
         "f.yaml:9: servers.gpu{0..3}.log_rotates: must be true or false, not 'maybe'"),
        ("launch: sglang serve --model-path /m", "launch: x\n    log: ''",
         "f.yaml:9: servers.gpu{0..3}.log: must not be empty"),
        ("launch: sglang serve --model-path /m", "launch: x\n    directory: [x]",
         "f.yaml:9: servers.gpu{0..3}.directory: must be a text, not a list"),
        ("fast: {flags: {a: 1}}", "fast: {fallback: atuo}",
         "f.yaml:10: profiles.fast.fallback: must be offer or auto, not 'atuo'"),
        ("fast: {flags: {a: 1}}", "fast: {seats: many}",
         "f.yaml:10: profiles.fast.seats: must be a whole number, not 'many'"),
        ("fast: {flags: {a: 1}}", "fast: {flags: {port: 1}}",
         "f.yaml:10: profiles.fast.flags: --port is set from the server's own key `port`"),
        ("fast: {flags: {a: 1}}", "fast: 3",
         "f.yaml:10: profiles.fast: must be a mapping (key: value), not '3'"),
        ("fast: {flags: {a: 1}}", "gpu0: {}",
         "f.yaml:10: profiles.gpu0: gpu0 is the name of server gpu0"),
        ("fast: {flags: {a: 1}}", "fast: {}\n  Fast: {}",
         "f.yaml:11: profiles.Fast: is the same name as fast"),
        ("fast: {flags: {a: 1}}", "fast: {}\n  fast: {}",
         "f.yaml:11: profiles.fast: stands twice, first in line 10"),
        ("fast: {flags: {a: 1}}", "custom: {}",
         "f.yaml:10: profiles.custom: custom has a meaning of its own; take another name"),
        ("gen: {host: box,", "gen: {host: bux,",
         "f.yaml:12: jobs.gen.host: there is no host 'bux'; the nearest is box"),
        ("session: gen", "session: gen, pid_file: x",
         "f.yaml:12: jobs.gen.pid_file: a job has a tmux session or a pid_file, not both"),
        ("session: gen", "minimum_servers: 0",
         "f.yaml:12: jobs.gen.minimum_servers: must be at least 1, not '0'"),
        ("session: gen", "progress: {fiel: x}",
         "f.yaml:12: jobs.gen.progress.fiel: is no key here; the nearest is file"),
        ("role: admin", "role: boss",
         "f.yaml:14: people.ana.role: must be viewer, operator or admin, not 'boss'"),
        ("slack: U1", "slack: '@ana'",
         "f.yaml:14: people.ana.slack: must be an id such as U0123ABCD, not '@ana'; Slack shows it in the profile"),
        ("login: ana}", "login: ana}\n  bo: {slack: U1}",
         "f.yaml:15: people.bo.slack: U1 is the id of ana"),
        ("login: ana}", "login: ana}\n  bo: {login: ana}",
         "f.yaml:15: people.bo.login: ana is the login of ana"),
        ("targets: [gpu0, box]", "targets: [gpu0, gpu9]",
         "f.yaml:16: channels.fleet.targets[1]: no server, host, port or group is called 'gpu9'; the nearest is gpu3"),
        ("targets: [gpu0, box]", "targets: bocks",
         "f.yaml:16: channels.fleet.targets: no server, host, port or group is called 'bocks'; there are all, box, gpu0, gpu1, gpu2, gpu3"),
        ("slack: C1", "slack: C1}\n  night: {slack: C1",
         "f.yaml:17: channels.night.slack: C1 is the id of fleet"),
        ("  fleet: {slack: C1", "  '#fleet': {slack: C1",
         "f.yaml:16: channels.#fleet: is a channel's name with its #; leave it away"),
        ("  ana: {", "  ana: &x {<<: *x, ",
         "f.yaml:14: people.ana: merge keys (<<) are not read here; use `defaults`, a template or a profile"),
        ("  ana: {", "  ana: !secret {",
         "f.yaml:14: people.ana: YAML tags (!secret) are not read here"),
        ("  ana: {", "  ana: *nobody\n  b: {",
         "f.yaml:14: found undefined alias 'nobody'"),
        ("  ana: {", "  ana: &x [*x]\n  b: {",
         "f.yaml:14: nests deeper than 20 levels"),
        ("  ana: {", "  ana: {{a: b}: c, ",
         "f.yaml:14: people.ana: a key must be a word"),
        ("  ana: {", "  ana: {: 3, ",
         "f.yaml:14: while parsing a flow node expected the node content, but found ':'"),
        ("slack: U1", "slack: xoxb-1-2",
         "f.yaml:14: people.ana.slack: holds a Slack token; tokens belong in the environment (SLACK_BOT_TOKEN)"),
        ("    port", "\tport",
         "f.yaml:6: a tab cannot indent YAML; use spaces"),
        ("    port", "  port",
         "f.yaml:7: mapping values are not allowed here"),
        ("channels:", "---\nchannels:",
         "f.yaml:15: holds more than one document (---)"),
        ("role: admin", 'role: "\x07"',
         "f.yaml:14: holds a character that YAML does not allow"),
        ("role: admin", 'role: "adm',
         "f.yaml:17: while scanning a quoted scalar found unexpected end of stream"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_its_line_its_key_and_the_nearest_right_one(right, wrong, said):
    assert RIGHT.count(right) > 0
    assert mistake(RIGHT.replace(right, wrong, 1)) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml: is empty"),
        ("# nothing", "f.yaml: is empty"),
        ("[]", "f.yaml:1: must be a mapping (key: value), not a list"),
        ("just words", "f.yaml:1: must be a mapping (key: value), not 'just words'"),
        ("a: b: c", "f.yaml:1: mapping values are not allowed here"),
        (b"hosts:\n  caf\xe9: {}\n", "f.yaml:2: byte 0xe9 is not UTF-8"),
        (b"\xff\xfeh\x00", "f.yaml:1: byte 0xff is not UTF-8"),
        ('a: "\\ud800"', "f.yaml:1: a: holds a NUL or half a character, which no program takes"),
        ("[" * 1500, "f.yaml: nests deeper than 20 levels"),
        ("a: " + "{a: " * 30 + "1" + "}" * 30, "f.yaml:1: nests deeper than 20 levels"),
        ("x" * 300_000, "f.yaml: is larger than 128 KiB; that is no fleet file"),
    ],
)  # fmt: skip
def test_what_is_no_fleet_file_at_all_is_said_so(text, said):
    assert mistake(text) == said


def test_aliases_that_unfold_without_end_cost_nothing():
    layers = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(9))
    # Unfolded they are ten thousand million values: a reader that did so would run into the test's time limit.
    said = mistake("a: &a [x, x, x, x, x, x, x, x, x, x]\n" + layers)
    assert said == "f.yaml:1: its aliases unfold to more values than a fleet file has"


def test_two_templates_that_make_too_many_servers_are_refused():
    servers = "".join(f"  {stem}{{0..4000}}: {{host: b, port: 1+n, launch: x}}\n" for stem in "ab")
    assert (
        mistake(f"hosts: {{b: }}\nservers:\n{servers}")
        == "f.yaml:4: servers.b{0..4000}: that makes more than 4096 servers"
    )


def test_the_first_mistake_of_the_file_is_told_first():
    wrong = (
        RIGHT.replace("role: admin", "role: boss").replace("gpus: n", "gpsu: n").replace("session: gen", "sesion: gen")
    )
    assert mistake(wrong) == "f.yaml:7: servers.gpu{0..3}.gpsu: is no key here; the nearest is gpus"


def test_a_mistake_in_what_servers_have_in_common_is_told_where_it_stands():
    text = "hosts: {b: }\ndefaults:\n  engine: sgalng\nservers: {a: {host: b, port: 1, launch: x}}\n"
    assert mistake(text) == "f.yaml:3: defaults.engine: there is no engine 'sgalng'; the nearest is sglang"


def test_no_secret_of_the_file_is_in_an_error():
    for wrong in (
        "launch: x --api-key sk-secret 'y",
        "launch: ['x --api-key sk-secret']",
        "launch: x\n    env: {KEY: [sk-secret]}",
    ):
        assert "sk-secret" not in mistake(RIGHT.replace("launch: sglang serve --model-path /m", wrong))
    assert "secret" not in mistake(RIGHT.replace("slack: U1", "slack: xoxb-secret"))


def test_a_file_that_is_not_there_or_no_file_is_said_so(tmp_path):
    for path, why in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError) as caught:
            load_fleet(path, **KNOWN)
        assert str(caught.value) == f"{path}: can't be read: {why}"


@pytest.mark.parametrize("piece", ["a: b\n", "? ", "- ", "[", "&a "])
def test_no_file_takes_long(piece):
    started = time.perf_counter()
    mistake((piece * (100_000 // len(piece))).encode())
    assert time.perf_counter() - started < 20
