"""Builds the command that asks an installed engine for its version and for every flag that its parser knows.

It asks the parser itself: the engine's own entry is run with ``--help`` while argparse's help is replaced by a
listing of the options. So flags that the help keeps quiet about (deprecated aliases) are found, and names that
it only mentions are not. Nothing is launched. A program that is not the engine's own entry is asked by its
``--version`` and ``--help``, with no GPU visible to it.

A shell does one thing here: it finds a Python. Everything that comes from a fleet file travels as an argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from bot.domain.fleet import Server
from bot.engines._commandline import Entry, entries, entry
from bot.engines._secrets import is_secret_variable

_FIND_PYTHON = (
    'script=$1 request=$2; shift 2; for python in "$@" python3 python; do '
    'command -v "$python" >/dev/null 2>&1 && exec "$python" -c "import sys; exec(sys.argv[1])" "$script" "$request"; '
    "done; echo 'no python3 found' >&2; exit 127"
)

_SCRIPT = r"""
import argparse, json, os, re, runpy, shutil, signal, subprocess, sys

request = json.loads(sys.argv[2])
command, own = request["command"], request["own"]
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
found, version = set(), ""

def finish(*_):
    print(version or "unknown", *sorted(found), sep="\n", file=answer, flush=True)
    os._exit(0 if version or found else 3)

def python_of(program):
    path = shutil.which(program)
    if path is None:
        return None
    with open(path, "rb") as file:
        first = file.readline(512)
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if words and "python" in words[-1]:
        return shutil.which(words[-1])
    for folder in (os.path.dirname(path), os.path.dirname(os.path.realpath(path))):
        for name in ("python3", "python"):
            if os.access(os.path.join(folder, name), os.X_OK):
                return os.path.join(folder, name)
    return None

def takes(action):
    if action.nargs == 0 or action.type not in (None, str, int, float):
        return ""
    if action.choices is not None:
        words = [str(one) for one in action.choices]
        is_plain = 0 < len(words) <= 100 and all(re.fullmatch(r"[\w.:/+-]{1,60}", word) for word in words)
        return "=" + "|".join(words) if is_plain else ""
    return "=" + action.type.__name__ if action.type in (int, float) else ""

def note(parser):
    for name, action in parser._option_string_actions.items():
        if name.startswith("--"):
            found.add(name)
            found.add(name + takes(action))

def helped(action, parser, *_):
    note(parser)
    raise SystemExit(0)

def ask_parser(module, words):
    argparse._HelpAction.__call__ = helped
    argparse.ArgumentParser.print_help = lambda parser, file=None: note(parser)
    sys.argv = [module, *words, "--help"]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except BaseException as error:
        if not isinstance(error, SystemExit):
            print(f"{module}: {type(error).__name__}: {error}", file=sys.stderr)

def installed_version(names):
    from importlib import metadata
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return ""

def ask_program(flag):
    blind = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    try:
        asked = subprocess.Popen([*command, flag], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, env=blind)
    except OSError as error:
        print(error, file=sys.stderr)
        return ""
    try:
        return asked.communicate(timeout=20)[0][:1000000].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        asked.kill()
        asked.wait()
        return ""

if not request.get("again"):
    request["again"] = True
    os.environ.update(request["env"])
    try:
        os.chdir(os.path.expanduser(request["directory"] or "."))
    except OSError as error:
        print(error, file=sys.stderr)
    python = python_of(request["program"]) if request["program"] else None
    os.dup2(answer.fileno(), 1)
    words = [python or sys.executable, "-c", "import sys; exec(sys.argv[1])", sys.argv[1], json.dumps(request)]
    os.execv(words[0], words)
signal.signal(signal.SIGALRM, finish)
signal.alarm(request["seconds"])
if own:
    version = installed_version(request["distributions"])
    for module, words in own:
        ask_parser(module, words)
        if len(found) > 10:
            break
    if not version:
        version = str(getattr(sys.modules.get(request["distributions"][0]), "__version__", ""))
elif command:
    told = ask_program("--version")
    match = re.search(r"\d+\.\d+[\w.+-]*", told)
    version = match.group() if match else ""
    found.update(re.findall(r"^--[A-Za-z0-9][\w.-]*(?:=[\w.:/+|-]+)?$", told, re.MULTILINE))
    for line in [] if found else ask_program("--help").splitlines():
        column = re.match(r" {1,4}(-\S.*?)(?: {2,}|$)", line)
        if column:
            found.update(re.findall(r"(?<!\S)--[A-Za-z0-9][\w.-]*", column.group(1)))
found.update(request["extra"] if found else ())
finish()
"""

_SECONDS = 55


def question(
    server: Server,
    *,
    distributions: Sequence[str],
    own: Mapping[str, Sequence[tuple[str, tuple[str, ...]]]],
    extra: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """The command for this server's environment; its first line is the version, then one ``--flag`` a line.

    A flag whose values the parser itself checks has a second line: ``--flag=int``, ``--flag=float``, ``--flag=a|b``.

    ``own`` maps how the engine may be entered (a module, or a script's name) to the modules whose parser is asked,
    with the words before ``--help``; ``extra`` holds flags that an entry takes without its parser. It ends within
    55 s; exit status 3 when nothing was found out, 127 without a Python. Variables that may hold secrets stay out.
    """
    launch = server.launch
    found = _entry(launch.command, own)
    name = (found.module or found.program) if found is not None else ""
    request = {
        "command": list(launch.command) if found is not None else [],
        "own": [[module, list(words)] for module, words in own.get(name, ())],
        "distributions": list(distributions),
        "extra": list(extra.get(name, ())),
        "directory": launch.directory,
        "env": {key: value for key, value in launch.env if not is_secret_variable(key)},
        "program": found.script if found is not None and not found.python else "",
        "seconds": _SECONDS,
    }
    return ("sh", "-c", _FIND_PYTHON, "sh", _SCRIPT, json.dumps(request), *_pythons(found))


def _entry(command: Sequence[str], own: Iterable[str]) -> Entry | None:
    """The engine's own entry in a launch command, or else the Python program that the whole command is.

    Anything else (a shell script, a container) is not asked: run with ``--help``, it might launch a server.
    """
    names = frozenset(own)
    for one in entries(command):
        if one.module in names or one.program in names:
            return one
    whole = entry(command)
    return whole if whole is not None and whole.python else None


def _pythons(found: Entry | None) -> tuple[str, ...]:
    if found is None:
        return ()
    if found.python:
        return (found.python,)
    folder, slash, _name = found.script.rpartition("/")
    return (f"{folder}/python3", f"{folder}/python") if slash else ()
