"""Runs OpenVINO GenAI through openvino_worker.py in the virtual environment.

It appears twice: with its full cache, and with its own eviction at the same
budget as lkv.
"""

import json
import pathlib

import environment
from rows import Work
from tool import MeasureError, RunOptions, speed

WORKER = pathlib.Path(__file__).with_name("openvino_worker.py")
# Pages of its cache on a CPU; sizes of its eviction are multiples of this.
BLOCK_TOKENS = 32
START_TOKENS = BLOCK_TOKENS
RECENT_TOKENS = 128  # as many as lkv protects


class OpenVino:
    def __init__(self, evicts=False):
        self.name = "openvino-evicting" if evicts else "openvino"
        self.version = "OpenVINO GenAI " + environment.pinned_version(
            environment.REQUIREMENTS, "openvino-genai"
        )
        self._evicts = evicts
        # Only the paged backend can evict.
        backends = ["PA"] if evicts else ["PA", "SDPA"]
        self._settings = {
            f"{backend}, KV {kv_type}": (backend, kv_type)
            for backend in backends
            for kv_type in ("f16", "u8")
        }

    def set_up(self) -> None:
        environment.ensure_venv(environment.HERE, environment.REQUIREMENTS)

    def applies(self, work: Work) -> bool:
        return not self._evicts or work.percent < 100

    def refusal(self, work: Work, options: RunOptions) -> str:
        if work.batch > 1:
            return "measured with one sequence only"
        least = START_TOKENS + RECENT_TOKENS + BLOCK_TOKENS
        if self._evicts and self._cache_tokens(work, options) < least:
            return f"its eviction keeps no fewer than {least} tokens"
        return ""

    def settings(self, work: Work) -> list[str]:
        return list(self._settings)

    def command(
        self, work: Work, setting: str, options: RunOptions
    ) -> list[str]:
        backend, kv_type = self._settings[setting]
        command = [
            str(environment.VENV_PYTHON),
            str(WORKER),
            str(options.model),
            f"--threads={options.threads}",
            f"--prompt={max(work.length, 1)}",
            f"--gen={work.steps(options.gen)}",
            f"--backend={backend}",
            f"--kv-type={kv_type}",
        ]
        if self._evicts:
            command += [
                f"--start-tokens={START_TOKENS}",
                f"--recent-tokens={RECENT_TOKENS}",
                f"--cache-tokens={self._cache_tokens(work, options)}",
            ]
        return command

    def parse(self, output: str, work: Work) -> dict[str, float]:
        # The library itself may print lines before.
        lines = output.strip().splitlines() or [""]
        try:
            result = dict(json.loads(lines[-1]))
        except (ValueError, TypeError):
            raise MeasureError("openvino_worker printed no result") from None
        return {
            kind: speed(result.get(kind), f"openvino {kind}")
            for kind in work.kinds
        }

    def _cache_tokens(self, work: Work, options: RunOptions) -> int:
        # Down to whole blocks: the little that is missing is in its favour.
        budget = work.budget_tokens(options.gen)
        return budget // BLOCK_TOKENS * BLOCK_TOKENS
