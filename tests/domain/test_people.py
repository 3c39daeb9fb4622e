"""Roles by person and team, in a channel, over servers and jobs: the strongest that covers everything counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.fleet import Channel, Fleet, Grant, Person, Role, Team
from bot.domain.people import everything, refusal, rights, role_of
from tests.tester import first_night

PEOPLE = (
    Person("ana", Role.ADMIN, ("U1",)),
    Person("bo", Role.OPERATOR, ("U2",)),
    Person("cleo", ids=("U4",), grants=(Grant(Role.OPERATOR, ("eval",), ("gpu4-7",)),)),
    Person(
        "dan", ids=("U5",), grants=(Grant(Role.OPERATOR, (), ("gpu0-3",)), Grant(Role.OPERATOR, (), ("gpu4,gpu5",)))
    ),
    Person("eve", ids=("U6",), grants=(Grant(Role.OPERATOR, ("eval",)), Grant(Role.ADMIN, (), ("gpu7",)))),
    Person("vic", Role.VIEWER, ("U3",)),
)
TEAM = Team("night", ("S1",), (Grant(Role.OPERATOR, ("fleet",), ("gpu0", "datagen")),), frozenset({"U3", "U9"}))
FLEET = first_night(
    people=PEOPLE, teams=(TEAM,), channels=(Channel("fleet", ("C1",), ("ct200",)), Channel("eval", ("C2",)))
)


@pytest.mark.parametrize(
    ("user", "channel", "touched", "role"),
    [
        ("U1", "C1", ("gpu0",), Role.ADMIN),
        ("U2", None, None, Role.OPERATOR),
        ("U4", "C2", ("gpu4", "gpu7"), Role.OPERATOR),
        ("U4", "C2", ("gpu3", "gpu4"), Role.VIEWER),  # one server too many
        ("U4", "C1", ("gpu4",), Role.VIEWER),  # another channel
        ("U4", "ask:1:1", ("gpu4",), Role.VIEWER),  # the door is no channel
        ("U4", None, ("gpu4",), Role.VIEWER),
        ("U4", "C2", ("gpu4", "datagen"), Role.VIEWER),  # the job goes with it
        ("U5", "C1", ("gpu2", "gpu5"), Role.OPERATOR),  # two grants together
        ("U5", "C1", ("gpu2", "gpu6"), Role.VIEWER),
        ("U6", "C2", ("gpu7",), Role.ADMIN),  # the strongest
        ("U6", "C2", ("gpu7", "gpu6"), Role.OPERATOR),
        ("U6", "C1", ("gpu7",), Role.ADMIN),
        ("U3", "C1", ("gpu0",), Role.OPERATOR),  # by the team, though a viewer by name
        ("U3", "C1", ("datagen",), Role.OPERATOR),
        ("U3", "C2", ("gpu0",), Role.VIEWER),
        ("vic", "C1", ("gpu0",), Role.OPERATOR),  # at the door a person has their name, and is in the team all the same
        ("U9", "C1", ("gpu0",), Role.OPERATOR),  # in the team, and not in the file by name
        ("U9", "C1", ("gpu1",), Role.VIEWER),
        ("U0", "C1", (), Role.VIEWER),
        ("U4", "C2", (), Role.OPERATOR),  # anything there at all
        ("U4", "C1", (), Role.VIEWER),
        ("U2", "C1", ("gone-from-the-file",), Role.OPERATOR),
        ("U4", "C2", ("gone-from-the-file",), Role.VIEWER),
    ],
)
def test_the_strongest_role_that_covers_everything_counts(
    user: str, channel: str | None, touched: tuple[str, ...] | None, role: Role
) -> None:
    assert role_of(FLEET, user, channel, touched) is role


def test_grants_over_all_servers_are_over_the_jobs_too() -> None:
    halves = (Grant(Role.OPERATOR, (), ("gpu0-3",)), Grant(Role.OPERATOR, (), ("gpu4-7",)))
    fleet = replace(FLEET, people=(Person("dan", ids=("U5",), grants=halves),))
    assert role_of(fleet, "U5", "C1", ("datagen", "gpu0")) is Role.OPERATOR


def test_a_team_whose_members_nobody_knows_has_none() -> None:
    fleet = replace(FLEET, teams=(replace(TEAM, members=None),))
    assert role_of(fleet, "U3", "C1", ("gpu0",)) is Role.VIEWER


@pytest.mark.parametrize(
    ("user", "channel", "touched", "said"),
    [
        ("U4", "C2", ("gpu3", "gpu4"), "you may restart gpu4-gpu7 here, but not gpu3; ask ana, bo, dan or eve"),
        ("U4", "C2", ("gpu4", "datagen"), "you may restart gpu4-gpu7 here, but not job datagen; ask ana, bo or eve"),
        ("U4", "C1", ("gpu4",), "you may restart in eval, but not here; ask ana, bo or dan"),
        ("U4", "C1", (), "you may restart in eval, but not here; ask ana, bo, dan, eve or team night"),
        ("U0", "C1", ("gpu0",), "you may look but not restart; ask ana, bo, dan or team night"),
        ("U3", "C2", ("gpu1",), "you may restart in fleet, but not here; ask ana, bo, dan or eve"),
    ],
)
def test_a_refusal_says_what_is_lacking_and_who_may(
    user: str, channel: str, touched: tuple[str, ...], said: str
) -> None:
    assert refusal(FLEET, user, Role.OPERATOR, "restart", channel, touched) == said


def test_a_refusal_names_a_team_that_could_not_be_asked_for() -> None:
    fleet = replace(FLEET, people=(), teams=(replace(TEAM, members=None),))
    assert refusal(fleet, "U9", Role.OPERATOR, "restart", "C1", ("gpu0",)) == (
        "you may look but not restart (who is in team night is not known: the chat can't be asked); ask team night"
    )


def test_with_nobody_set_up_a_refusal_says_how_to_change_it() -> None:
    fleet = replace(FLEET, people=(), teams=())
    assert refusal(fleet, "U1", Role.OPERATOR, "restart", "C1", ("gpu0",)) == (
        "you may look but not restart: nobody is set up as operator (people: in the fleet file)"
    )


def test_of_many_who_may_only_the_first_are_named() -> None:
    many = tuple(Person(f"p{n}", Role.OPERATOR, (f"UP{n}",)) for n in range(9))
    fleet = replace(FLEET, people=many, teams=())
    assert refusal(fleet, "U0", Role.OPERATOR, "stop", "C1", ("gpu0",)) == (
        "you may look but not stop; ask p0, p1, p2, p3, p4 or 4 more"
    )


_WORDS = st.sampled_from([*(f"gpu{n}" for n in range(8)), "ct200", "gpu2-5", "datagen", "nothing-like-it"])
_GRANTS = st.builds(
    Grant,
    st.sampled_from([Role.VIEWER, Role.OPERATOR, Role.ADMIN]),
    st.lists(st.sampled_from(["fleet", "eval"]), max_size=2).map(tuple),
    st.lists(_WORDS, max_size=3).map(tuple),
)


@given(
    st.lists(_GRANTS, max_size=3).map(tuple),
    st.sampled_from(["C1", "C2", "C9", None]),
    st.sets(st.sampled_from(sorted(everything(FLEET))), min_size=1),
    st.sets(st.sampled_from(sorted(everything(FLEET)))),
)
def test_touching_more_never_gives_a_stronger_role(
    grants: tuple[Grant, ...], channel: str | None, touched: set[str], more: set[str]
) -> None:
    fleet: Fleet = replace(FLEET, people=(Person("x", ids=("UX",), grants=grants),), teams=())
    less, whole = role_of(fleet, "UX", channel, touched), role_of(fleet, "UX", channel, touched | more)
    assert whole <= less
    assert role_of(fleet, "UX", channel) <= whole
    assert less is Role.VIEWER or any(right.grant.role >= less for right in rights(fleet, "UX"))
    assert (refusal(fleet, "UX", Role.OPERATOR, "stop", channel, touched) is None) == (less >= Role.OPERATOR)
