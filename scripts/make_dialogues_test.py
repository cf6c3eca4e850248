"""Tests of make_dialogues.py."""

import re
import unittest

import make_dialogues


class MakeDialoguesTest(unittest.TestCase):
    def test_the_same_seed_gives_the_same_text(self) -> None:
        self.assertEqual(make_dialogues.dialogue(5), make_dialogues.dialogue(5))
        self.assertNotEqual(
            make_dialogues.dialogue(5), make_dialogues.dialogue(6)
        )

    def test_turns_alternate(self) -> None:
        speakers = re.findall(
            r"^(User|Assistant): ", make_dialogues.dialogue(1), re.MULTILINE
        )
        self.assertEqual(speakers[::2], ["User"] * (len(speakers) // 2))
        self.assertEqual(speakers[1::2], ["Assistant"] * (len(speakers) // 2))

    def test_what_is_asked_was_said_before(self) -> None:
        text = make_dialogues.dialogue(2)
        asked = re.findall(
            r"when (\w+) arrives\?\n\nAssistant: .*?(\d+ [A-Z][a-z]+)", text
        )
        self.assertTrue(asked)
        for name, date in asked:
            said = text.index(f"{name} can only come on {date}")
            self.assertLess(said, text.index(f"when {name} arrives"))

    def test_held_out_seeds_are_not_trained_on(self) -> None:
        seeds = make_dialogues.SEEDS
        self.assertFalse(set(seeds["train"]) & set(seeds["heldout"]))


if __name__ == "__main__":
    unittest.main()
