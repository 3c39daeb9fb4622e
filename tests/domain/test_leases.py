"""What operations and people claim, and when two are in each other's way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.domain.fleet import Fleet
from bot.domain.guard import busy
from bot.domain.leases import Claim, Hold, Kind, alive, claims_of, shared
from bot.domain.message import plain
from bot.domain.operation import Operation, State, Where, begin, claims, in_the_way
from bot.domain.plan import AwaitFree, EndForeign, Plan, Prove, ResumeJob, StopJob, TakeOver
from tests.jumping import START
from tests.tester import first_night

FLEET = first_night()
BIG = replace(FLEET, servers=(replace(FLEET.servers[0], name="big", port=30100, gpus=tuple(range(8))),))
"""The same host after the fleet file has changed: one server over all GPUs."""
MOVED = replace(FLEET, servers=(replace(FLEET.servers[0], name="moved", port=30003, gpus=()),))


def plan(*servers: str, steps: tuple[object, ...] = ()) -> Plan:
    return Plan("restart", "Restart", servers, steps or (AwaitFree(servers),))  # type: ignore[arg-type]


def op(wanted: Plan, fleet: Fleet = FLEET) -> Operation:
    return begin(wanted, id="op-1", by="ana", at=START, where=Where("C1"), pace=None, claims=claims(wanted, fleet))


def test_a_plan_claims_its_servers_with_their_ports_and_gpus_and_its_jobs() -> None:
    found = claims(plan("gpu3", steps=(StopJob("datagen"), ResumeJob("datagen", None, 1))), FLEET)
    assert [one.words for one in found] == ["gpu3", "port 30003 of ct200", "gpu 3 of ct200", "job datagen"]


@pytest.mark.parametrize(
    ("fleet", "wanted", "what"),
    [
        (FLEET, plan("gpu3"), "gpu3"),
        (FLEET, plan("gpu4"), None),
        (BIG, plan("big"), "gpu 3 of ct200"),
        (MOVED, plan("moved"), "port 30003 of ct200"),
        (replace(BIG, servers=(replace(BIG.servers[0], host="ct201"),)), plan("big"), None),
        (FLEET, plan(steps=(StopJob("datagen"),)), None),
        (FLEET, plan("gpu3", steps=(EndForeign("gpu3", 991, 5, "x"),)), None),
        (FLEET, plan("gpu3", steps=(TakeOver(("op-1",), (), ("gpu3",)),)), None),
    ],
)  # fmt: skip
def test_two_that_share_a_server_a_gpu_or_a_port_are_in_each_others_way(
    fleet: Fleet, wanted: Plan, what: str | None
) -> None:
    found = in_the_way(claims(wanted, fleet), [op(plan("gpu3"))])
    assert (found[1].words if found is not None else None) == what


def test_what_is_shared_is_told_with_its_holder_and_age() -> None:
    found = in_the_way(claims(plan("big"), BIG), [op(plan("gpu3"))])
    assert found is not None
    told = plain(busy(found[0], START + timedelta(seconds=70), found[1]))
    assert told.startswith("Busy: gpu 3 of ct200 is held by restart by ana since 1 m 10 s")
    assert told.endswith("[Show] [Cancel that] [Steal…]")


@pytest.mark.parametrize("state", [State.DONE, State.FAILED, State.CANCELLED])
def test_what_has_ended_holds_nothing(state: State) -> None:
    assert in_the_way(claims_of(FLEET, ["gpu3"]), [replace(op(plan("gpu3")), state=state)]) is None


def test_one_that_an_older_version_wrote_down_holds_what_its_plan_names() -> None:
    old = replace(op(plan("gpu3", steps=(StopJob("datagen"),))), claims=())
    assert in_the_way(claims_of(FLEET, ["gpu3"]), [old]) == (old, Claim(Kind.SERVER, "gpu3"))
    assert in_the_way([Claim(Kind.JOB, "datagen")], [old]) is not None
    assert in_the_way(claims(plan("big"), BIG), [old]) is None


def test_two_ends_of_one_foreign_process_are_in_each_others_way_and_two_of_one_pid_elsewhere_are_not() -> None:
    kill = plan("gpu3", steps=(EndForeign("gpu3", 991, 5, "x"),))
    elsewhere = replace(FLEET, servers=(replace(FLEET.servers[3], host="ct201"),))
    assert in_the_way(claims(kill, FLEET), [op(kill)]) is not None
    assert in_the_way(claims(kill, FLEET), [op(kill, elsewhere)]) is None


def test_two_takeovers_of_one_thing_are_in_each_others_way() -> None:
    one = plan("gpu3", steps=(TakeOver(("op-1",), ("h-1",), ("gpu3",)),))
    other = plan("gpu4", steps=(TakeOver((), ("h-1",), ("gpu4",)),))
    assert in_the_way(claims(other, FLEET), [op(one)]) is not None
    assert in_the_way(claims(plan("gpu3", steps=(Prove(("gpu3",)),)), FLEET), [op(one)]) is None


def hold(*servers: str) -> Hold:
    return Hold("h-1", servers, claims_of(FLEET, servers), "ana", START, START + timedelta(hours=1))


def test_a_hold_is_cut_with_its_claims() -> None:
    rest = hold("gpu3", "gpu4").without(["gpu3"])
    assert rest is not None
    assert rest.servers == ("gpu4",)
    assert [one.words for one in rest.claims] == ["gpu4", "port 30004 of ct200", "gpu 4 of ct200"]
    assert hold("gpu3").without(["gpu3"]) is None
    assert hold("gpu3", "gpu4").shares(frozenset(claims_of(BIG, ["big"]))) == ("gpu3", "gpu4")
    assert shared(claims_of(BIG, ["big"]), hold("gpu3").claims) == Claim(Kind.GPU, "3", "ct200")


def test_a_hold_is_over_at_its_instant() -> None:
    assert alive([hold("gpu3")], START + timedelta(minutes=59, seconds=59)) == (hold("gpu3"),)
    assert alive([hold("gpu3")], START + timedelta(hours=1)) == ()
