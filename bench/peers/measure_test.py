"""Plays a comparison with tools that answer from a script."""

import json
import pathlib
import unittest

from lkv_bench import LkvBench
from measure import ATTEMPTS_PER_PAIR, Measurement, Protocol
from rows import Work
from tool import MeasureError, RunOptions

OPTIONS = RunOptions(pathlib.Path("model.gguf"), 2, 64)
WORK = Work(length=64, has_decode=True)


class FakePeer:
    version = "1"

    def __init__(self, name, speeds, refusal=""):
        self.name = name
        self._speeds = speeds
        self._refusal = refusal

    def applies(self, work):
        return True

    def refusal(self, work, options):
        return self._refusal

    def settings(self, work):
        return list(self._speeds)

    def command(self, work, setting, options):
        return [self.name, setting]

    def parse(self, output, work):
        value = self._speeds[output]
        if value is None:
            raise MeasureError("it broke")
        return {"decode": value}


class Machine:
    """Runs commands: lkv at 100 tokens/s, probes as listed, then 10 GB/s."""

    def __init__(self, probes=()):
        self.log = []
        self._probes = list(probes)

    def run(self, command):
        if command[0] != "lkv":
            self.log.append(" ".join(command))
            return command[1]
        is_probe = "--depth=64" not in command
        self.log.append("probe" if is_probe else "lkv")
        read = self._probes.pop(0) if is_probe and self._probes else 10
        row = {
            "kind": "decode",
            "depth": 64,
            "tokens_per_second": 100,
            "stream_gb_s": read,
        }
        return json.dumps({"rows": [row]})


class MeasureTest(unittest.TestCase):
    def measure(self, machine, peers, n_pairs):
        lkv = LkvBench(pathlib.Path("lkv"))
        protocol = Protocol(OPTIONS, n_pairs, max_drift=0.15)
        measured = Measurement(lkv, peers, protocol, machine.run)
        measured.measure(WORK, lambda pair: None)
        return measured

    def test_lkv_and_peers_take_turns_between_probes(self):
        machine = Machine()
        self.measure(
            machine, [FakePeer("a", {"x": 1}), FakePeer("b", {"x": 1})], 2
        )
        once = ["probe", "lkv", "probe", "a x", "probe"]
        once += ["probe", "lkv", "probe", "b x", "probe"]
        self.assertEqual(machine.log, once * 2)

    def test_slow_settings_run_once_only(self):
        machine = Machine()
        peer = FakePeer("a", {"slow": 5, "near": 9, "fast": 10})
        self.measure(machine, [peer], 3)
        runs = [entry for entry in machine.log if entry.startswith("a ")]
        self.assertEqual(runs[:3], ["a slow", "a near", "a fast"])
        self.assertEqual(runs[3:], ["a near", "a fast"] * 2)

    def test_a_pair_whose_probe_moved_is_run_again(self):
        measured = self.measure(
            Machine(probes=[10, 10, 20]), [FakePeer("a", {"x": 1})], 2
        )
        self.assertEqual(len(measured.pairs), 3)

    def test_gives_up_on_a_machine_that_never_rests(self):
        measured = self.measure(
            Machine(probes=[10, 20, 30] * 20), [FakePeer("a", {"x": 1})], 3
        )
        self.assertEqual(len(measured.pairs), 3 * ATTEMPTS_PER_PAIR)

    def test_a_failing_peer_does_not_stop_the_others(self):
        measured = self.measure(
            Machine(),
            [FakePeer("bad", {"x": None}), FakePeer("good", {"x": 1})],
            2,
        )
        self.assertEqual([pair.peer for pair in measured.pairs], ["good"] * 2)
        self.assertEqual(
            [(skip.peer, skip.reason) for skip in measured.skips],
            [("bad", "it broke")],
        )

    def test_a_failing_setting_does_not_stop_the_others(self):
        measured = self.measure(
            Machine(), [FakePeer("a", {"bad": None, "good": 1})], 2
        )
        self.assertEqual(
            [run.setting for pair in measured.pairs for run in pair.peer_runs],
            ["good"] * 2,
        )
        self.assertEqual(
            [skip.reason for skip in measured.skips], ["bad: it broke"]
        )

    def test_a_discarded_pair_drops_no_setting(self):
        machine = Machine(probes=[10, 10, 20, 20])
        self.measure(machine, [FakePeer("a", {"slow": 5, "fast": 10})], 1)
        self.assertEqual(machine.log.count("a slow"), 2)

    def test_a_refusal_is_reported_and_nothing_run(self):
        machine = Machine()
        measured = self.measure(
            machine, [FakePeer("a", {"x": 1}, "too small")], 2
        )
        self.assertEqual(machine.log, [])
        self.assertEqual(measured.skips[0].reason, "too small")


if __name__ == "__main__":
    unittest.main()
