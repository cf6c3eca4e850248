"""Measures works in pairs, A-B-A-B, until each peer has enough of them."""

import dataclasses
import typing

from lkv_bench import LkvBench, parse_probe
from pairs import Pair, Run, contenders
from rows import Work
from tool import MeasureError, RunOptions, Tool, output_of

# A pair whose probe moved is run again, but not for ever.
ATTEMPTS_PER_PAIR = 2


@dataclasses.dataclass(frozen=True)
class Protocol:
    options: RunOptions
    n_pairs: int
    max_drift: float


@dataclasses.dataclass(frozen=True)
class Skip:
    """Why a peer has no figure, or not all of them."""

    peer: str
    work: str  # empty: all
    reason: str


class Measurement:
    """Runs pairs of one subject and its peers; keeps what was found."""

    def __init__(
        self,
        lkv: LkvBench,
        peers: list[Tool],
        protocol: Protocol,
        run_command: typing.Callable[[list[str]], str] = output_of,
        pairs: typing.Iterable[Pair] = (),  # of an earlier run; they count
    ):
        self.pairs: list[Pair] = list(pairs)
        self.skips: list[Skip] = []
        self._lkv = lkv
        self._peers = peers
        self._protocol = protocol
        self._run_command = run_command

    def measure(
        self, work: Work, on_pair: typing.Callable[[Pair], None]
    ) -> None:
        """Peers take turns, so that a drift of the machine meets them all."""
        settings = {}
        missing = {}
        for peer in self._peers:
            if not peer.applies(work):
                continue
            reason = peer.refusal(work, self._protocol.options)
            if reason:
                self.skips.append(Skip(peer.name, work.name, reason))
            else:
                counted = self._counted(work, peer)
                settings[peer.name] = (
                    contenders(counted[-1].peer_runs, work.kinds)
                    if counted
                    else peer.settings(work)
                )
                missing[peer.name] = max(
                    0, self._protocol.n_pairs - len(counted)
                )

        for _ in range(ATTEMPTS_PER_PAIR * self._protocol.n_pairs):
            for peer in self._peers:
                if not missing.get(peer.name):
                    continue
                try:
                    pair = self._run_pair(peer, work, settings[peer.name])
                except MeasureError as error:
                    self.skips.append(Skip(peer.name, work.name, str(error)))
                    missing[peer.name] = 0
                    continue
                # A setting that failed once is not tried again.
                settings[peer.name] = [run.setting for run in pair.peer_runs]
                if self._counts(pair, work):
                    missing[peer.name] -= 1
                    settings[peer.name] = contenders(pair.peer_runs, work.kinds)
                self.pairs.append(pair)
                on_pair(pair)

    def _counts(self, pair: Pair, work: Work) -> bool:
        return all(
            kind in pair.kinds and pair.drift(kind) <= self._protocol.max_drift
            for kind in work.kinds
        )

    def _counted(self, work: Work, peer: Tool) -> list[Pair]:
        return [
            pair
            for pair in self.pairs
            if (pair.work, pair.peer) == (work.name, peer.name)
            and self._counts(pair, work)
        ]

    def _run_pair(self, peer: Tool, work: Work, settings: list[str]) -> Pair:
        """Runs lkv, then the peer in all its settings; some may fail."""
        ours = self._run(
            self._lkv, work, self._lkv.settings(work)[0], self._probe()
        )
        theirs = []
        errors = {}
        probe = ours.probes[-1]
        for setting in settings:
            try:
                run = self._run(peer, work, setting, probe)
            except MeasureError as error:
                errors[setting] = error
                continue
            theirs.append(run)
            probe = run.probes[-1]
        if not theirs:
            raise next(iter(errors.values()))
        for setting, error in errors.items():
            reason = f"{setting}: {error}"
            self.skips.append(Skip(peer.name, work.name, reason))
        return Pair(work.name, peer.name, ours, theirs)

    def _run(self, tool: Tool, work: Work, setting: str, before: float) -> Run:
        command = tool.command(work, setting, self._protocol.options)
        speeds = tool.parse(self._run_command(command), work)
        return Run(setting, speeds, [before, self._probe()])

    def _probe(self) -> float:
        command = self._lkv.probe_command(self._protocol.options)
        return parse_probe(self._run_command(command))
