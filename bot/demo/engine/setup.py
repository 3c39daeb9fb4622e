"""What a simulated server was asked to be, read once from its command line and environment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.demo.engine.flags import Version, version_of
from bot.demo.engine.lines import ARCHITECTURE
from bot.demo.engine.sizes import KV_TOKEN_KIB, WEIGHTS_MIB, Sizes
from bot.demo.machine import speed_of

DEFAULT_VERSION = "0.5.13"


@dataclass(frozen=True, slots=True)
class Setup:
    """A server's configuration. ``gpus`` are the machine's numbers of its GPUs.

    ``kernels`` is the folder of its compiled kernels; None where compiling is not pretended.
    """

    args: argparse.Namespace
    version_text: str
    sizes: Sizes
    gpus: tuple[int, ...]
    speed: float
    is_instant: bool = False
    kernels: Path | None = None

    @property
    def is_cold(self) -> bool:
        """Whether its kernels must be compiled first."""
        return self.kernels is not None and not any(self.kernels.glob("*/*"))

    def keep_kernels(self) -> None:
        """Leave compiled kernels behind, as a start does."""
        if self.kernels is None:
            return
        for name in ("decode_attention", "gated_delta_rule"):
            folder = self.kernels / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.cubin").touch()

    @property
    def version(self) -> Version:
        """The version as numbers."""
        return version_of(self.version_text)

    @property
    def model_name(self) -> str:
        """The name under which the model is served."""
        return str(self.args.served_model_name or self.args.model_path)

    def shown(self) -> dict[str, Any]:
        """The arguments as the engine shows them; its secrets are among them, as with the real one."""
        values = {key: value for key, value in vars(self.args).items() if key != "mamba_strategy"}
        key = "mamba_scheduler_strategy" if self.version < (0, 5, 14) else "mamba_radix_cache_strategy"
        return {**values, "served_model_name": self.model_name, key: self.sizes.strategy}

    def model_info(self) -> dict[str, Any]:
        """The answer of /model_info."""
        return {
            "model_path": self.args.model_path,
            "served_model_name": self.model_name,
            "tokenizer_path": self.args.tokenizer_path or self.args.model_path,
            "is_generation": True,
            "weight_version": "default",
            "has_image_understanding": False,
            "model_type": "qwen3_5",
            "architectures": [ARCHITECTURE],
        }

    def memory(self) -> dict[str, Any]:
        """What the caches take, in GB."""
        return {
            "weight_gb": round(WEIGHTS_MIB / 1024, 2),
            "kv_cache_gb": round(self.sizes.tokens * KV_TOKEN_KIB / 1024 / 1024, 2),
            "graph_gb": 1.92,
            "token_capacity": self.sizes.tokens,
        }

    def server_info(self, throughput: float) -> dict[str, Any]:
        """The answer of /server_info."""
        memory = self.memory()
        state = {
            "last_gen_throughput": throughput,
            "effective_max_running_requests_per_dp": self.sizes.seats,
            "memory_usage": {
                "weight": memory["weight_gb"],
                "kvcache": memory["kv_cache_gb"],
                "token_capacity": self.sizes.tokens,
                "graph": memory["graph_gb"],
            },
        }
        return {
            **self.shown(),
            "status": "ready",
            "max_total_num_tokens": self.sizes.tokens,
            "max_req_input_len": self.sizes.tokens - 6,
            "internal_states": [{**self.shown(), **state}],
            "version": self.version_text,
        }


def version_text_of(env: Mapping[str, str]) -> str:
    """The version that is pretended."""
    return env.get("UPBOT_SIM_VERSION") or DEFAULT_VERSION


def gpus_of(args: argparse.Namespace, env: Mapping[str, str]) -> tuple[int, ...]:
    """The machine's numbers of the GPUs that are used: the first visible ones, as many as there are ranks."""
    visible = [int(word) for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip().isdigit()]
    base = int(args.base_gpu_id) if str(args.base_gpu_id or "").isdigit() else 0
    return tuple((visible or list(range(base + args.tp_size)))[base:][: args.tp_size])


def model_problem(path: str) -> str | None:
    """The last line of the failure when a model's folder is missing; None when it is there or is a hub's name."""
    if not path.startswith((".", "/", "~")) or Path(path).is_dir():
        return None
    return (
        "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
        f"'{path}'. Use `repo_type` argument if needed."
    )


def setup_of(args: argparse.Namespace, env: Mapping[str, str], sizes: Sizes) -> Setup:
    """Everything together."""
    return Setup(
        args=args,
        version_text=version_text_of(env),
        sizes=sizes,
        gpus=gpus_of(args, env),
        speed=speed_of(env),
        is_instant=env.get("UPBOT_SIM_FIRST_START") == "instant",
        kernels=Path(env["TRITON_CACHE_DIR"]) if env.get("TRITON_CACHE_DIR") else None,
    )
