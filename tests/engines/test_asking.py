"""The question for version and flags, really asked: of a made-up engine, a made-up script and a made-up program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.domain.fleet import Launch, Server
from bot.engines.sglang import ENGINE as SGLANG
from bot.engines.vllm import ENGINE as VLLM

PARSER = """
import argparse, os, sys
print("noise on stdout")
parser = argparse.ArgumentParser()
parser.add_argument("--model-path", "--model", help="the alias --only-mentioned is not a flag")
parser.add_argument("--mamba-radix-cache-strategy")
parser.add_argument("--mamba-scheduler-strategy", help=argparse.SUPPRESS)
parser.add_argument("--fuse", action=argparse.BooleanOptionalAction)
for number in range(9):
    parser.add_argument(f"--more-{number}")
"""
LAUNCHER = PARSER + "parser.parse_args()\nopen('launched', 'w').close()\n"
FLAGS = ["--fuse", "--help", "--mamba-radix-cache-strategy", "--mamba-scheduler-strategy", "--model", "--model-path"] + [
    f"--more-{number}" for number in range(9)
] + ["--no-fuse"]  # fmt: skip


def write(path: Path, text: str, *, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def install(site: Path, name: str, version: str, files: dict[str, str]) -> None:
    write(site / f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        write(site / name / file, text)
        for folder in (site / name / file).parents:
            if folder == site:
                break
            (folder / "__init__.py").touch()


def ask(argv, tmp_path, path=os.environ["PATH"]):
    done = subprocess.run(
        argv, capture_output=True, cwd=tmp_path, timeout=50, check=False, env={"PATH": path, "HOME": str(tmp_path)}
    )
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()


def server(*command, site=None, **fields):
    env = (("PYTHONPATH", str(site)), ("HF_TOKEN", "hf_secret")) if site else ()
    return Server("gpu0", "h", 30000, "sglang", Launch(command, env=env, **fields))


def test_the_engines_own_parser_tells_even_its_silent_aliases(tmp_path):
    install(tmp_path / "site", "sglang", "0.5.19", {"launch_server.py": LAUNCHER})
    argv = SGLANG.version_argv(
        server(sys.executable, "-m", "sglang.launch_server", "--model-path", "/m", site=tmp_path / "site")
    )
    status, lines, _errors = ask(argv, tmp_path)
    assert (status, lines) == (0, ["0.5.19", *FLAGS])
    assert not (tmp_path / "launched").exists()
    assert "hf_secret" not in " ".join(argv)


def test_the_values_that_the_parser_checks_are_told_too(tmp_path):
    more = """
parser.add_argument("--seats", type=int)
parser.add_argument("--share", "--fraction", type=float)
parser.add_argument("--size", type=int, choices=[1, 16])
parser.add_argument("--policy", choices=["lpm", "fcfs"])
parser.add_argument("--mode", type=str.lower, choices=["a"])
parser.add_argument("--odd", choices=["with space"])
parser.add_argument("--plain")
"""
    install(tmp_path / "site", "sglang", "0.5.23", {"launch_server.py": PARSER + more + "parser.parse_args()\n"})
    argv = SGLANG.version_argv(server(sys.executable, "-m", "sglang.launch_server", site=tmp_path / "site"))
    status, lines, _errors = ask(argv, tmp_path)
    assert status == 0
    assert [line for line in lines if "=" in line] == [
        "--fraction=float", "--policy=lpm|fcfs", "--seats=int", "--share=float", "--size=1|16",
    ]  # fmt: skip
    assert set(lines) > {"--fraction", "--policy", "--seats", "--share", "--size", "--mode", "--odd", "--plain"}


def test_a_wrapper_before_the_python_is_passed_over(tmp_path):
    install(tmp_path / "site", "sglang", "0.5.19", {"launch_server.py": LAUNCHER})
    argv = SGLANG.version_argv(
        server("nice", "-n", "5", sys.executable, "-m", "sglang.launch_server", site=tmp_path / "site")
    )
    assert ask(argv, tmp_path)[:2] == (0, ["0.5.19", *FLAGS])


def venv(tmp_path, script, shebang):
    write(tmp_path / "venv/bin/python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', mode=0o755)
    return write(tmp_path / "venv/bin" / script, f"{shebang}\nraise SystemExit('never run')\n", mode=0o755)


@pytest.mark.parametrize("shebang", ["#!{venv}/bin/python3", "#!/bin/sh"])
def test_a_script_is_asked_through_the_python_of_its_environment(tmp_path, shebang):
    install(tmp_path / "site", "sglang", "0.5.20", {"launch_server.py": LAUNCHER})
    script = venv(tmp_path, "sglang", shebang.format(venv=tmp_path / "venv"))
    argv = SGLANG.version_argv(server(str(script), "serve", site=tmp_path / "site"))
    assert ask(argv, tmp_path)[:2] == (0, ["0.5.20", *sorted([*FLAGS, "--model-type"])])


def test_a_script_without_a_folder_is_found_on_the_path(tmp_path):
    site = tmp_path / "site"
    install(site, "vllm", "0.32.0", {"entrypoints/cli/main.py": LAUNCHER.replace("parse_args()", "add_subparsers().add_parser('serve').add_argument('--max-num-seqs')")
        .replace("open(", "parser.parse_args(); open(").replace("range(9)", "range(0)")})  # fmt: skip
    install(site, "vllm", "0.32.0", {"entrypoints/openai/api_server.py": LAUNCHER})
    script = venv(tmp_path, "vllm", f"#!{tmp_path}/venv/bin/python3")
    argv = VLLM.version_argv(server("vllm", "serve", "/m", site=site))
    status, lines, _errors = ask(argv, tmp_path, f"{script.parent}:{os.environ['PATH']}")
    assert (status, lines) == (0, ["0.32.0", *sorted({*FLAGS, "--max-num-seqs", "--model"})])


def test_another_program_is_asked_by_its_own_words_without_a_gpu(tmp_path):
    write(
        tmp_path / "simulated.py",
        PARSER + "parser.add_argument('--version', action='version', version='pretend sglang 0.5.13')\n"
        "parser.parse_args()\nopen('launched', 'w').close()\n",
    )
    argv = SGLANG.version_argv(server(sys.executable, "-m", "simulated", directory=str(tmp_path)))
    shown = sorted({*FLAGS, "--version"} - {"--mamba-scheduler-strategy"})
    assert ask(argv, tmp_path / "..")[:2] == (0, ["0.5.13", *shown])
    assert not (tmp_path / "launched").exists()


def test_a_program_may_tell_its_flags_below_its_version(tmp_path):
    write(
        tmp_path / "simulated.py",
        "import sys\nassert sys.argv[1] == '--version'\nprint('0.5.13', '--a', '--b-c', sep='\\n')\n",
    )
    argv = SGLANG.version_argv(server(sys.executable, "-m", "simulated", directory=str(tmp_path)))
    assert ask(argv, tmp_path)[:2] == (0, ["0.5.13", "--a", "--b-c"])


def test_a_shell_script_is_never_run(tmp_path):
    script = write(tmp_path / "serve.sh", "#!/bin/sh\ntouch launched\n", mode=0o755)
    status, lines, _errors = ask(SGLANG.version_argv(server(str(script))), tmp_path)
    assert (status, lines) == (3, ["unknown"])
    assert not (tmp_path / "launched").exists()


def test_an_engine_that_is_not_installed_is_said_so(tmp_path):
    argv = SGLANG.version_argv(server(sys.executable, "-m", "sglang.launch_server"))
    status, lines, errors = ask(argv, tmp_path)
    assert (status, lines) == (3, ["unknown"])
    assert "sglang.launch_server: " in errors


def test_an_engine_whose_parser_breaks_still_tells_its_version(tmp_path):
    install(tmp_path / "site", "sglang", "0.5.23", {"launch_server.py": "import no_such_library\n"})
    argv = SGLANG.version_argv(server(sys.executable, "-m", "sglang.launch_server", site=tmp_path / "site"))
    assert ask(argv, tmp_path)[:2] == (0, ["0.5.23"])


def test_a_machine_without_python_is_said_so(tmp_path):
    argv = SGLANG.version_argv(server("sglang", "serve"))
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        ["/bin/sh", *argv[1:]], capture_output=True, check=False, env={"PATH": str(tmp_path / "empty")}
    )
    assert (done.returncode, done.stderr) == (127, b"no python3 found\n")


def test_words_that_would_hurt_in_a_shell_stay_words(tmp_path):
    hostile = "$(touch hurt); `touch hurt` 'x\" \n"
    argv = SGLANG.version_argv(server(hostile, "-m", "sglang.launch_server", hostile))
    ask(argv, tmp_path)
    assert not (tmp_path / "hurt").exists()
