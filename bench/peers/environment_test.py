"""Checks what is read from the files of pinned versions."""

import pathlib
import tempfile
import unittest

import environment
from batched_bench import IkLlamaCpp, LlamaCpp
from openvino_peer import OpenVino


class EnvironmentTest(unittest.TestCase):
    def test_finds_the_pin_of_a_package(self):
        with tempfile.TemporaryDirectory() as directory:
            pins = pathlib.Path(directory, "pins.txt")
            pins.write_text(
                "# some-tool==9\n--no-binary some-tool\n"
                "some-tool-extra==2\nsome-tool==1.2.3 \\\n  --hash=x\n"
            )
            self.assertEqual(
                environment.pinned_version(pins, "some-tool"), "1.2.3"
            )
            with self.assertRaises(environment.SetupError):
                environment.pinned_version(pins, "other")

    def test_every_peer_states_its_version(self):
        for peer in (LlamaCpp(), IkLlamaCpp(), OpenVino()):
            self.assertRegex(peer.version, r"\d+\.\d+")


if __name__ == "__main__":
    unittest.main()
