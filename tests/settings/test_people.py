"""Roles with a reach, of people and of teams, and what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.fleet import Grant, Person, Role, Team
from bot.settings import parse_fleet
from tests.settings.test_mistakes import KNOWN, mistake

HEAD = """\
hosts: {box: }
servers: {"gpu{0..3}": {host: box, port: 30000+n, launch: x, groups: eval}}
jobs: {gen: {host: box, command: y}}
channels: {fleet: {slack: C1}, night: {slack: C2}}
"""


def read(text):
    return parse_fleet((HEAD + text).encode(), "f.yaml", **KNOWN)


def test_roles_reach_as_far_as_it_says():
    found = read("""\
people:
  ana: {role: admin, slack: U1}
  bo: {role: operator, slack: [U2, U3], login: bo, channels: fleet}
  cleo:
    slack: U4
    also:
      - {role: operator, channels: [fleet, night], targets: [gpu2-3, gen]}
      - {role: admin, targets: eval}
teams:
  night: {slack: S0123AB, role: operator, targets: "gpu0,gpu1"}
""")
    assert found.people == (
        Person("ana", Role.ADMIN, ("U1",)),
        Person("bo", Role.VIEWER, ("U2", "U3"), "bo", (Grant(Role.OPERATOR, ("fleet",)),)),
        Person(
            "cleo", Role.VIEWER, ("U4",), None,
            (Grant(Role.OPERATOR, ("fleet", "night"), ("gpu2-3", "gen")), Grant(Role.ADMIN, (), ("eval",))),
        ),
    )  # fmt: skip
    assert found.teams == (Team("night", ("S0123AB",), (Grant(Role.OPERATOR, (), ("gpu0,gpu1",)),)),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("people:\n  ana: {role: operator, channels: fleat}",
         "f.yaml:6: people.ana.channels: there is no channel 'fleat'; the nearest is fleet"),
        ("people:\n  ana: {role: operator, targets: [gpu0, gpu9]}",
         "f.yaml:6: people.ana.targets[1]: no server, host, port, group or job is called 'gpu9'; the nearest is gpu3"),
        ("people:\n  ana:\n    also:\n      - {role: operator, targets: gem}",
         "f.yaml:8: people.ana.also[0].targets: no server, host, port, group or job is called 'gem'; the nearest is gen"),
        ("people:\n  ana:\n    also:\n      - {rule: operator}",
         "f.yaml:8: people.ana.also[0].rule: is no key here; the nearest is role"),
        ("people:\n  ana:\n    also: operator",
         "f.yaml:7: people.ana.also: must be a list, not 'operator'"),
        ("people:\n  ana: {channels: fleet}",
         "f.yaml:6: people.ana.channels: limits nothing: everybody may look everywhere; name a `role`"),
        ("people:\n  ana: {slack: U1, targets: gpu0}",
         "f.yaml:6: people.ana.targets: limits nothing: everybody may look everywhere; name a `role`"),
        ("people:\n  ana: {slack: S0123AB}",
         "f.yaml:6: people.ana.slack: S0123AB is the id of a user group; it belongs under `teams`"),
        ("teams:\n  night: {role: operator}",
         "f.yaml:6: teams.night.slack: is missing"),
        ("teams:\n  night: {role: operator, slack: U0123}",
         "f.yaml:6: teams.night.slack: must be the id of a user group such as S0123ABCD, not 'U0123'"),
        ("teams:\n  night: {role: operator, slack: '@night'}",
         "f.yaml:6: teams.night.slack: must be the id of a user group such as S0123ABCD, not '@night'"),
        ("teams:\n  night: {role: operator, slack: []}",
         "f.yaml:6: teams.night.slack: must not be empty"),
        ("teams:\n  night: {slack: S0123AB}",
         "f.yaml:6: teams.night.role: gives nothing: everybody may look; make it operator or admin"),
        ("teams:\n  night: {role: operator, slack: S0123AB, login: x}",
         "f.yaml:6: teams.night.login: is no key here; there are also, channels, role, slack, targets"),
        ("teams:\n  a: {role: operator, slack: S0123AB}\n  b: {role: operator, slack: S0123AB}",
         "f.yaml:7: teams.b.slack: S0123AB is the id of a"),
        ("teams:\n  a: {role: operator, slack: S0123AB}\n  A: {role: operator, slack: S0123AC}",
         "f.yaml:7: teams.A: is the same name as a"),
        ("teams:\n  'the night': {role: operator, slack: S0123AB}",
         "f.yaml:6: teams.the night: is no name: it begins with a letter; letters, digits and . _ - follow (at most 64)"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_its_line_and_key(text, said):
    assert mistake(HEAD + text) == said


def test_the_example_of_the_docs_is_right():
    folder = Path(__file__).parents[2]
    shown = (folder / "docs" / "slack.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    example = (folder / "config" / "fleet.example.yaml").read_text().partition("people:")[0]
    found = parse_fleet((example + shown).encode(), "slack.md", **KNOWN)
    assert [one.name for one in found.people] == ["ana", "bo", "cleo"]
    assert found.people[2].grants[0] == Grant(Role.OPERATOR, ("eval",), ("gpu4-7", "datagen"))
    assert found.teams == (Team("night", ("S0123NIGHT",), (Grant(Role.OPERATOR, ("fleet",)),)),)
