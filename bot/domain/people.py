"""Who may do what: roles by configured person, and deny where nobody is configured."""

from __future__ import annotations

from bot.domain.fleet import Fleet, Role
from bot.domain.phrases import listing


def role_of(fleet: Fleet, user: str) -> Role:
    """A person's role; somebody who is not configured may look."""
    person = fleet.person(user)
    return person.role if person is not None else Role.VIEWER


def refusal(fleet: Fleet, user: str, needed: Role, what: str) -> str | None:
    """Why this person may not do that, or None when they may. ``what`` completes "you may not …"."""
    if role_of(fleet, user) >= needed:
        return None
    able = [person.name for person in fleet.people if person.role >= needed]
    if not able:
        return f"you may look but not {what}: nobody is set up as {needed.name.lower()} (people: in the fleet file)"
    return f"you may look but not {what}; ask {listing(able, 'or')}"
