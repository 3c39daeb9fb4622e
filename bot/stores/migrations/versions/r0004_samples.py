"""What the watcher has read: whole readings, the course of servers in coarser steps, and alerts that are over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "readings",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "courses",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "past_alerts",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_index("ix_readings_at", "readings", ["at"])
    op.create_index("ix_courses_step_at", "courses", ["step", "at"])
    op.create_index("ix_past_alerts_id", "past_alerts", ["id"])
    op.create_index("ix_past_alerts_ended_at", "past_alerts", ["ended_at"])
