"""Write the pages of docs/ that are made from the code: `python docs/make.py` (or `make docs`).

The commands' page is made from what stands beside each command, the fleet file's from its pydantic models.
"""

from __future__ import annotations

from pathlib import Path

from bot.domain.command import Command
from bot.domain.fleet import Role
from bot.plugins import load
from bot.settings.reference import reference

HERE = Path(__file__).parent

HEAD = """# What one may say

Made from the commands themselves by `make docs`; `help` in the channel says the same.

A target is a server's name, its port, a host, a group, a range (`gpu2-5`, `30002-30005`), several with commas, or
`all`. Without a target a command that only looks means the channel's servers, and `logs` and `status` mean the one
that was last named in the thread, or within ten minutes in the channel. A command that changes something never
guesses, and with a question mark at its end it only shows its plan. Times of day are in UTC.

`no`, `stop`, `wait`, `don't`, `cancel` and `abort` end what is open, as far as that is still possible. `yes 7F3A` does
what the button of the question with that code does, in the channel where it stands. "It's up", "ready" or "works"
has the bot look again.

| say | it does | also | who may |
|---|---|---|---|
"""


def commands() -> str:
    """The page of the commands."""
    found: list[Command] = sorted(load("handlers", "COMMAND").values(), key=lambda one: one.name)
    rows = [
        f"| `{_cell(one.usage)}` | {one.summary} | {', '.join(f'`{name}`' for name in one.aliases)} | {_who(one)} |"
        for one in found
    ]
    examples = [f"- `{example}`" for one in found for example in one.examples]
    return HEAD + "\n".join(rows) + "\n\nFor example:\n\n" + "\n".join(examples) + "\n"


def _cell(text: str) -> str:
    """A text that stands in a table's cell."""
    return text.replace("|", "\\|")


def _who(command: Command) -> str:
    return "everybody" if command.role <= Role.VIEWER else f"{command.role.name.lower()}s"


def fleet_file() -> str:
    """The page of the fleet file."""
    return reference(load("bot.transports", "TRANSPORT"))


PAGES = {"commands.md": commands, "fleet-file.md": fleet_file}


def main() -> None:
    """Write every page."""
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
