#!/usr/bin/env python3
"""make_dialogues.py [FOLDER]: writes conversations to measure and to train on.

Conversations of many turns between somebody with a plan and an assistant, from
a seeded grammar of our own: names, dates, sums and decisions are brought up,
left for a while and asked for again, as people do. Writes
FOLDER/train/dialogue-N.txt and FOLDER/heldout/dialogue-N.txt (default
.deps/texts); the seeds of the held-out ones are fixed and never trained on.
"""

import argparse
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Some 4,500 tokens.
N_TURNS = 110
SEEDS = {"train": range(1, 4), "heldout": range(101, 103)}

NAMES = "Mara Tobias Ines Henrik Yusuf Paula Dmitri Aoife Lorenzo Sanna".split()
TOWNS = "Ghent Tartu Cork Bergen Turin Graz Porto Aarhus Lublin Brno".split()
MONTHS = "March April May June September October".split()
EVENTS = [
    "the reading group's summer meeting",
    "a repair day for bicycles",
    "the choir's trip to the coast",
    "a small conference on seed banks",
    "my sister's wedding",
    "the school's robotics week",
]
PLACES = [
    "the old tram depot",
    "the library's attic",
    "a barn behind the mill",
    "the rowing club",
    "the hall above the bakery",
]
FOODS = [
    "lentil soup",
    "flat bread with herbs",
    "plum cake",
    "rice with roasted peppers",
    "cheese from the valley",
]
THINGS = "projector kettle marquee ladder microphone stove whiteboard".split()
WORRIES = [
    "the heating may not work",
    "half of the guests come by the late train",
    "nobody has the key to the back door",
    "the neighbours complained last year",
    "the forecast speaks of rain",
]
REMEDIES = [
    "ask for a written promise two weeks before",
    "put one person in charge of it and nobody else",
    "plan for it as if it were certain and be glad if not",
    "call them in the morning, when they are in a good mood",
    "keep a tenth of the money back for it",
]


class Plan:
    """What was said so far and may be asked for again."""

    def __init__(self, chance: random.Random):
        self.chance = chance
        self.event = chance.choice(EVENTS)
        self.facts: list[tuple[str, str]] = []  # question, answer

    def new_fact(self) -> tuple[str, str]:
        """A sentence of the user that brings something up, and a reply."""
        pick = self.chance.choice
        number = self.chance.randint
        kind = number(0, 5)
        if kind == 0:
            name, thing = pick(NAMES), pick(THINGS)
            self.facts.append((f"who brings the {thing}", name))
            return (
                f"{name} from {pick(TOWNS)} offered to bring a {thing}.",
                f"Good, then the {thing} is settled: {name} brings it. Shall I"
                " write it on the list of borrowed things?",
            )
        if kind == 1:
            place, sum_ = pick(PLACES), number(12, 95) * 10
            self.facts.append((f"what {place} costs", f"{sum_} euros"))
            return (
                f"I asked about {place}. They want {sum_} euros for two days.",
                f"{sum_} euros for two days is fair for {place}, if heating is"
                " part of it. Ask whether they need a deposit.",
            )
        if kind == 2:
            name, date = pick(NAMES), f"{number(2, 28)} {pick(MONTHS)}"
            self.facts.append((f"when {name} arrives", f"on {date}"))
            return (
                f"{name} can only come on {date}, and leaves the day after.",
                f"Then let us put what needs {name} on {date} itself, and"
                " nothing that matters on the day after.",
            )
        if kind == 3:
            food, guests = pick(FOODS), number(14, 120)
            self.facts.append(
                (f"how many portions of {food} we need", f"{guests}")
            )
            return (
                f"For the evening I thought of {food}, {guests} portions.",
                f"{guests} portions of {food} can be made in two pots. I would"
                " begin at noon, and have one tray more than you think.",
            )
        if kind == 4:
            worry, remedy = pick(WORRIES), pick(REMEDIES)
            self.facts.append((f"what to do, should {worry}", remedy))
            return (
                f"What keeps me awake is that {worry}.",
                f"If {worry}, then {remedy}. It costs little and you sleep"
                " better.",
            )
        name, digits = pick(NAMES), f"{number(100, 999)} {number(1000, 9999)}"
        self.facts.append((f"what {name}'s number was", digits))
        return (
            f"Please note {name}'s number, {digits}, in case the bus is late.",
            f"Noted: {name}, {digits}. I will bring it up when we come to the"
            " timetable.",
        )

    def recall(self) -> tuple[str, str]:
        """A question about something older, and its answer."""
        question, answer = self.chance.choice(self.facts[:-2])
        opening = self.chance.choice(
            ["Remind me,", "I forgot:", "Before I go on,", "One more time:"]
        )
        return (
            f"{opening} {question}?",
            self.chance.choice(
                [
                    f"You said it earlier: {answer}.",
                    f"That was {answer}, if I read my notes right.",
                    f"{answer}; nothing has changed since.",
                ]
            ),
        )


def dialogue(seed: int) -> str:
    """One conversation; the same seed gives the same text."""
    plan = Plan(random.Random(seed))
    lines = [
        f"User: I have to organise {plan.event}, and I would like to think it"
        " through with you, step by step.",
        "Assistant: Gladly. Tell me what is fixed already, and I keep track of"
        " it while we go on.",
    ]
    for _ in range(N_TURNS):
        asks = len(plan.facts) > 4 and plan.chance.random() < 0.35
        said, reply = plan.recall() if asks else plan.new_fact()
        lines += [f"User: {said}", f"Assistant: {reply}"]
    return "\n\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "folder", nargs="?", type=pathlib.Path, default=ROOT / ".deps/texts"
    )
    folder = parser.parse_args().folder
    for split, seeds in SEEDS.items():
        (folder / split).mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            path = folder / split / f"dialogue-{number}.txt"
            path.write_text(dialogue(seed), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
