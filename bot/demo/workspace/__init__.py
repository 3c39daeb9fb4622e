"""A small Slack-compatible workspace on loopback: Web API, Socket Mode, a page, a control API, and bad days on demand.

`Workspace` is the door; `Person`, `Group`, `Pace` and `ServerSign` are what it is made with. The demo and the Slack
adapter's tests use the same one.
"""

from bot.demo.workspace.control import Breakage, BreakThing, ServerSign
from bot.demo.workspace.delivery import Delivery, Pace
from bot.demo.workspace.faults import Misbehaviour
from bot.demo.workspace.room import BOT_USER, PEOPLE, Group, Person, Refused
from bot.demo.workspace.workspace import Workspace

__all__ = [
    "BOT_USER",
    "PEOPLE",
    "BreakThing",
    "Breakage",
    "Delivery",
    "Group",
    "Misbehaviour",
    "Pace",
    "Person",
    "Refused",
    "ServerSign",
    "Workspace",
]
