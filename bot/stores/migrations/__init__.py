"""How the tables of older versions become those of this one, as Alembic's revisions; `bot.stores.schema` runs them."""
