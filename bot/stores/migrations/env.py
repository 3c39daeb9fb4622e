"""Alembic's entry: runs the revisions on the connection that it was given, inside that connection's transaction.

There is no ini file: `bot.stores.schema` hands over everything.
"""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
