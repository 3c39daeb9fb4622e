"""Operations, questions, starts, and what was heard.

A database of before the revisions has these tables already, and no note of a revision: what is there stays.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make what is missing."""
    op.create_table(
        "operations",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(40), unique=True, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "questions",
        sa.Column("nonce", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "starts",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("server", sa.String(120), nullable=False),
        sa.Column("profile", sa.String(120), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "seen",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        if_not_exists=True,
    )
    for table, column in (
        ("operations", "state"),
        ("questions", "state"),
        ("starts", "server"),
        ("starts", "profile"),
        ("seen", "at"),
    ):
        op.create_index(f"ix_{table}_{column}", table, [column], if_not_exists=True)
