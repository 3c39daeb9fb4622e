"""The page about the fleet file says what the models say."""

from __future__ import annotations

import re
from pathlib import Path

from bot.plugins import load
from bot.settings.models import Section, ServerSection
from bot.settings.reference import main, reference

PAGE = Path(__file__).parents[2] / "docs" / "fleet-file.md"


def test_the_committed_page_is_current():
    """If not: python -m bot.settings.reference bot.transports.{docker,local,pct,ssh,sudo} > docs/fleet-file.md."""
    assert PAGE.read_text() == reference(load("bot.transports", "TRANSPORT"))


def test_every_key_is_on_the_page_with_its_meaning():
    page = reference({})
    models = [ServerSection, *Section.__subclasses__()]
    for model in models:
        for key, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{key} says nothing of itself"
            assert re.search(rf"^\| `{key}` \| {re.escape(field.description)}", page, re.MULTILINE), key


def test_the_page_is_printed_with_the_transports_that_are_named(capsys):
    main(["bot.transports.pct"])
    assert "### `pct`" in capsys.readouterr().out
