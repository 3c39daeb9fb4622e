"""How evidence is weighed, and how a start is followed."""

from __future__ import annotations

import pytest

from bot.domain.diagnosis import Phase
from bot.engines._reading.phases import Phases
from bot.engines._reading.verdict import GENERIC, MARKER, NAMED, TYPED, Evidence, Stop, Verdict

ROOT = Evidence("scheduler_exception", "KeyError: 'x'", "Look.")
IMPORT = Evidence("import_error", "ImportError: x", "Install.", TYPED)
OOM = Evidence("cuda_oom", "OutOfMemoryError: x", "Free it.", NAMED)
NCCL = Evidence("nccl", "NCCL error", "Check it.", NAMED)
END = Evidence("scheduler_exception", "Received sigquit", "Look.", MARKER)
SIGTERM = Stop("other:sigterm", "SIGTERM received")
DOWN = Stop("other:shutdown_requested", "Shutting down", is_firm=False)


def test_the_first_of_equal_evidence_is_the_root():
    verdict = Verdict()
    for evidence in (ROOT, Evidence("scheduler_exception", "TypeError: y", "Look.", GENERIC)):
        verdict.consider(evidence)
    assert verdict.crash(is_up=False) == ROOT


def test_what_names_the_cause_wins_over_what_does_not():
    verdict = Verdict()
    for evidence in (END, ROOT, OOM):
        verdict.consider(evidence, fatal=True)
    assert verdict.crash(is_up=True) == OOM


def test_a_broken_network_is_the_consequence_of_a_rank_that_died_before():
    verdict = Verdict()
    for evidence in (ROOT, NCCL):
        verdict.consider(evidence, fatal=True)
    assert verdict.crash(is_up=True) == ROOT


def test_what_only_its_type_names_does_not_win_after_the_end():
    verdict = Verdict()
    verdict.consider(ROOT, fatal=True)
    verdict.consider(IMPORT)
    assert verdict.crash(is_up=True) == ROOT


@pytest.mark.parametrize(("is_up", "crash"), [(False, ROOT), (True, None)])
def test_an_error_alone_ends_a_start_but_not_a_service(is_up, crash):
    verdict = Verdict()
    verdict.consider(ROOT)
    assert verdict.crash(is_up=is_up) == crash


def test_a_lethal_error_ends_a_service():
    verdict = Verdict()
    verdict.consider(OOM)
    assert verdict.crash(is_up=True) == OOM


def test_a_sign_of_life_takes_an_error_back():
    verdict = Verdict()
    verdict.consider(ROOT)
    verdict.live()
    assert verdict.crash(is_up=False) is None


def test_a_lethal_error_takes_more_to_be_taken_back():
    verdict = Verdict()
    verdict.consider(OOM)
    verdict.live(19)
    assert verdict.crash(is_up=True) == OOM
    verdict.live()
    assert verdict.crash(is_up=True) is None


def test_nothing_brings_an_ended_process_back():
    verdict = Verdict()
    verdict.consider(OOM, fatal=True)
    verdict.live(1000)
    verdict.survive()
    assert verdict.crash(is_up=True) == OOM


def test_errors_after_a_stop_are_its_noise():
    verdict = Verdict()
    verdict.ask_to_stop(SIGTERM, is_up=True)
    verdict.consider(OOM, fatal=True)
    assert (verdict.stopped(is_up=True), verdict.crash(is_up=True)) == (SIGTERM, None)


def test_a_stop_after_a_crash_is_the_tidying_up():
    verdict = Verdict()
    verdict.consider(OOM, fatal=True)
    verdict.ask_to_stop(SIGTERM, is_up=True)
    assert (verdict.stopped(is_up=True), verdict.crash(is_up=True)) == (None, OOM)


def test_an_end_that_nobody_asked_for_overrules_a_loose_sign_of_a_stop():
    verdict = Verdict()
    verdict.ask_to_stop(DOWN, is_up=True)
    assert verdict.stopped(is_up=True) == DOWN
    verdict.consider(OOM, fatal=True)
    assert (verdict.stopped(is_up=True), verdict.crash(is_up=True)) == (None, OOM)


def test_a_firm_stop_replaces_a_loose_one():
    verdict = Verdict()
    verdict.ask_to_stop(DOWN, is_up=True)
    verdict.ask_to_stop(SIGTERM, is_up=True)
    assert verdict.stopped(is_up=True) == SIGTERM


def test_an_interrupt_explains_the_endings_before_it():
    verdict = Verdict()
    verdict.consider(END, fatal=True)
    verdict.interrupt(SIGTERM, is_up=False)
    assert (verdict.stopped(is_up=False), verdict.crash(is_up=False)) == (SIGTERM, None)


def test_an_interrupt_does_not_explain_an_error_before_it():
    verdict = Verdict()
    verdict.consider(OOM, fatal=True)
    verdict.interrupt(SIGTERM, is_up=False)
    assert verdict.crash(is_up=False) == OOM


def test_a_server_is_where_its_slowest_rank_is():
    phases = Phases()
    phases.reach(Phase.LOADING_WEIGHTS, "TP0")
    phases.reach(Phase.LOADING_WEIGHTS, "TP1")
    phases.reach(Phase.CAPTURING_GRAPHS, "TP1")
    assert phases.phase is Phase.LOADING_WEIGHTS
    phases.reach(Phase.ALLOCATING_CACHE, "TP0")
    assert phases.phase is Phase.ALLOCATING_CACHE


def test_the_main_process_speaks_for_its_ranks():
    phases = Phases()
    phases.reach(Phase.LOADING_WEIGHTS, "TP0")
    phases.reach(Phase.ALLOCATING_CACHE)
    assert (phases.phase, phases.ranks) == (Phase.ALLOCATING_CACHE, {"TP0": Phase.ALLOCATING_CACHE})


def test_a_percent_belongs_to_its_phase():
    phases = Phases()
    phases.bar(Phase.LOADING_WEIGHTS, 45, "9/20")
    assert (phases.phase, phases.percent, phases.step) == (Phase.LOADING_WEIGHTS, 45, "9/20")
    phases.reach(Phase.ALLOCATING_CACHE)
    assert (phases.percent, phases.step) == (None, None)


def test_a_late_redraw_of_the_bar_of_weights_takes_nothing_back():
    phases = Phases()
    phases.reach(Phase.ALLOCATING_CACHE, "TP0")
    phases.bar(Phase.LOADING_WEIGHTS, 100, "4/4")
    assert (phases.phase, phases.percent) == (Phase.ALLOCATING_CACHE, None)


def test_a_bar_of_captures_shows_that_all_ranks_capture():
    phases = Phases()
    phases.reach(Phase.ALLOCATING_CACHE, "TP0")
    phases.reach(Phase.ALLOCATING_CACHE, "TP1")
    phases.bar(Phase.CAPTURING_GRAPHS, 4, "1/23")
    assert (phases.phase, phases.percent) == (Phase.CAPTURING_GRAPHS, 4)


def test_bars_while_serving_are_no_start():
    phases = Phases(Phase.SERVING)
    phases.bar(Phase.JIT_COMPILING, 10, "1/10")
    assert (phases.phase, phases.percent) == (Phase.SERVING, None)
