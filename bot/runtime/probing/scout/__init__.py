"""The scout: a program that is sent to a host and looks there for the bot, as long as its stdin stays open.

Its modules are sent as source to the host's own python3 (3.6 or newer, nothing installed there). It ends when
its stdin closes, or when nobody asked anything for a quarter of an hour. Requests are JSON objects, a line
each; answers are JSON lists of items, a line each, written as soon as an item is ready: ``[id, kind, key, …]``.

Design, and why:

1. HTTP runs on one bare poll loop with kept connections: asyncio costs twice the time a request, and a thread
   a server costs more still.
2. What may block (a process list, a log on a dead file system, the GPU query) runs in threads, one a kind, so
   that it never holds up the HTTP answers.
3. A process list that was right a moment ago is checked first (two system calls a process) and told at once;
   the whole list is read again right after, and told when it differs.
"""
