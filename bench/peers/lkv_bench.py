"""Runs `lkv bench speed`: the subject of the comparison and the probe."""

import json
import pathlib
import statistics

from environment import SetupError
from rows import Work
from tool import MeasureError, RunOptions, speed

# One read of 256 MiB takes 10 ms and meets every hiccup of the machine; the
# median of nine does not.
PROBE_READS = 9


class LkvBench:
    """lkv with the work's budget, or beside it with its own full cache."""

    def __init__(self, binary: pathlib.Path, full_cache=False):
        self.name = "lkv-full" if full_cache else "lkv"
        self.version = ""
        self._binary = binary
        self._full_cache = full_cache

    def set_up(self) -> None:
        if not self._binary.exists():
            raise SetupError(
                f"{self._binary} is missing; run scripts/quickstart.sh"
            )

    def applies(self, work: Work) -> bool:
        return not self._full_cache or work.percent < 100

    def refusal(self, work: Work, options: RunOptions) -> str:
        return ""

    def settings(self, work: Work) -> list[str]:
        return [f"KV {work.kv_type}"]

    def command(
        self, work: Work, setting: str, options: RunOptions
    ) -> list[str]:
        budget = f"{work.percent}%"
        if self._full_cache or work.percent == 100:
            budget = "full"
        return self._speed_command(options) + [
            f"--kv-type={work.kv_type}",
            f"--budget={budget}",
            f"--batch={work.batch}",
            f"--depth={work.length}",
            f"--gen={options.gen if work.has_decode else 0}",
            f"--prefill={work.length if work.has_prefill else 0}",
        ]

    def parse(self, output: str, work: Work) -> dict[str, float]:
        by_kind = {
            row["kind"]: row["tokens_per_second"]
            for row in _rows(output)
            if row["depth"] == work.length
        }
        return {
            kind: speed(by_kind.get(kind), f"lkv {kind}") for kind in work.kinds
        }

    def probe_command(self, options: RunOptions) -> list[str]:
        """Next to nothing but the plain reads beside its rows."""
        depths = ",".join("0" * PROBE_READS)
        return self._speed_command(options) + [
            "--budget=full",
            f"--depth={depths}",
            "--gen=1",
            "--prefill=0",
        ]

    def _speed_command(self, options: RunOptions) -> list[str]:
        return [
            str(self._binary),
            "bench",
            "speed",
            "--json",
            f"--model={options.model}",
            f"--threads={options.threads}",
        ]


def parse_probe(output: str) -> float:
    """How fast memory was read, in GB/s."""
    reads = [row["stream_gb_s"] for row in _rows(output)]
    if not reads:
        raise MeasureError("lkv bench speed measured no read of memory")
    return statistics.median(reads)


def _rows(output: str) -> list[dict]:
    try:
        return json.loads(output)["rows"]
    except (ValueError, KeyError, TypeError):
        raise MeasureError("lkv bench speed printed no rows") from None
