"""Pairs of runs, lkv and a peer side by side, and what they say together.

Machines drift and have neighbours, so a speed alone says little. A pair is one
run of each within minutes, each between two probes: plain reads of memory.
Where these differ too much, the runs saw different machines and the pair is
discarded.
"""

import dataclasses
import statistics

# Settings this much slower than the peer's fastest drop out after the first
# pair; nearer ones may only have had bad luck.
CLOSE_ENOUGH = 0.85


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a tool, between two probes."""

    setting: str
    speeds: dict[str, float]  # tokens/s by kind (decode, prefill)
    probes: list[float]  # GB/s: before, after


@dataclasses.dataclass(frozen=True)
class Pair:
    work: str  # Work.name
    peer: str
    lkv: Run
    peer_runs: list[Run]  # one per setting

    @staticmethod
    def from_json(stored: dict) -> "Pair":
        """What dataclasses.asdict made of a pair."""
        return Pair(
            stored["work"],
            stored["peer"],
            Run(**stored["lkv"]),
            [Run(**run) for run in stored["peer_runs"]],
        )

    @property
    def kinds(self) -> list[str]:
        return list(self.lkv.speeds)

    def best(self, kind: str) -> Run:
        """The peer's run in its best setting of this pair."""
        return max(self.peer_runs, key=lambda run: run.speeds[kind])

    def drift(self, kind: str) -> float:
        """How far the probe moved around the two runs: 0.1 is 10 %."""
        probes = self.lkv.probes + self.best(kind).probes
        return max(probes) / min(probes) - 1


@dataclasses.dataclass(frozen=True)
class Summary:
    """Ratios above 1 mean that lkv is faster."""

    lkv_tokens_per_second: float
    peer_tokens_per_second: float
    peer_setting: str  # the one that was fastest most often
    ratio_median: float
    ratio_min: float
    ratio_max: float
    pairs: int
    pairs_discarded: int


def contenders(runs: list[Run], kinds: list[str]) -> list[str]:
    """Settings that may be the best in one of these kinds."""
    near = set()
    for kind in kinds:
        best = max(run.speeds[kind] for run in runs)
        near.update(
            run.setting
            for run in runs
            if run.speeds[kind] >= CLOSE_ENOUGH * best
        )
    return [run.setting for run in runs if run.setting in near]


def summarize(pairs: list[Pair], kind: str, max_drift: float) -> Summary | None:
    """Medians over the pairs that count; None if none does."""
    kept = [pair for pair in pairs if pair.drift(kind) <= max_drift]
    if not kept:
        return None
    ours = [pair.lkv.speeds[kind] for pair in kept]
    best = [pair.best(kind) for pair in kept]
    theirs = [run.speeds[kind] for run in best]
    ratios = [a / b for a, b in zip(ours, theirs)]
    return Summary(
        lkv_tokens_per_second=statistics.median(ours),
        peer_tokens_per_second=statistics.median(theirs),
        peer_setting=statistics.mode(run.setting for run in best),
        ratio_median=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        pairs=len(kept),
        pairs_discarded=len(pairs) - len(kept),
    )
