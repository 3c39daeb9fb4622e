"""The composition root: the only package that names adapters. It assembles the bot, runs it and takes it down.

State lies in one folder (``upbot.db``, ``ask.sock``, ``lock``); one bot holds its lock. Chats and the demo are
imported by the ways that use them: they take most of a second, in which `upbot ask` is to have answered.
"""
