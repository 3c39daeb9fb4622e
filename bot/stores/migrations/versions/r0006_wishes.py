"""What people want to be told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "wishes",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("value", sa.Text, nullable=False),
    )
