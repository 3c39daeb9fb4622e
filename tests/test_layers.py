"""The layers hold: every module stands in one, and the linter's contracts say so."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_module_of_bot_stands_in_a_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {name for row in contracts[0]["layers"] for name in row.split(" | ")}
    found = {
        f"bot.{path.stem}"
        for path in (ROOT / "bot").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert found - {"bot.__init__"} == {name for name in layers if name.startswith("bot.")}


def test_imports_go_only_downward() -> None:
    command = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
