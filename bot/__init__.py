"""Upbot: a Slack bot that looks at inference servers, restarts them with a guard, and proves what it did."""

__version__ = "0.1.0"
