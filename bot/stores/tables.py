"""The tables as they stand now; how older ones become these stands in `bot.stores.migrations`."""

from __future__ import annotations

from sqlalchemy import Column, DateTime, Float, Index, Integer, LargeBinary, MetaData, String, Table, Text

TABLES = MetaData()

operations = Table(
    "operations",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(40), unique=True, nullable=False),
    Column("state", String(20), nullable=False, index=True),
    Column("started_at", DateTime(timezone=True), nullable=False),
    Column("value", Text, nullable=False),
)
questions = Table(
    "questions",
    TABLES,
    Column("nonce", String(64), primary_key=True),
    Column("state", String(20), nullable=False, index=True),
    Column("asked_at", DateTime(timezone=True), nullable=False),
    Column("value", Text, nullable=False),
)
starts = Table(
    "starts",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("server", String(120), nullable=False, index=True),
    Column("profile", String(120), nullable=False, index=True),
    Column("value", Text, nullable=False),
)
seen = Table(
    "seen",
    TABLES,
    Column("key", String(200), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
)
audit = Table(
    "audit",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("value", Text, nullable=False),
    Column("hash", String(64), nullable=False),
)
audit_head = Table(
    "audit_head",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
)
changes = Table(
    "changes",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("server", String(120), nullable=False, index=True),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("readiness", String(20), nullable=False),
    Column("reason", Text, nullable=False),
)
job_marks = Table(
    "job_marks",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("job", String(120), nullable=False, index=True),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("value", Text, nullable=False),
)
holds = Table(
    "holds",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(40), unique=True, nullable=False),
    Column("ended_at", DateTime(timezone=True), nullable=True, index=True),
    Column("value", Text, nullable=False),
)
kept = Table(
    "kept",
    TABLES,
    Column("name", String(80), primary_key=True),
    Column("value", Text, nullable=False),
)
wishes = Table(
    "wishes",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("value", Text, nullable=False),
)
readings = Table(
    "readings",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False, index=True),
    Column("value", LargeBinary, nullable=False),
)
courses = Table(
    "courses",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("step", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Index("ix_courses_step_at", "step", "at"),
)
past_alerts = Table(
    "past_alerts",
    TABLES,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(80), nullable=False, index=True),
    Column("ended_at", DateTime(timezone=True), nullable=False, index=True),
    Column("value", Text, nullable=False),
)
