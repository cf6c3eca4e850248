"""What is measured: rows of the result and the work that yields them.

A row is named KIND-LENGTH[-BUDGET][-int8]: `decode-8192-25%` is the speed of
decoding behind 8,192 cached tokens with a quarter of the cache kept,
`prefill-512` the speed of reading a prompt of 512 tokens, `batch8-2048`
decoding of 8 sequences of 2,048 tokens in one step, `decode-2048-int8` decoding
with lkv's cache in int8. (Peers try their 8-bit caches in every row.)
"""

import dataclasses
import fnmatch
import math
import re

ROW_NAMES = [
    "decode-0",
    "decode-2048",
    "decode-2048-int8",
    "decode-8192",
    "decode-8192-int8",
    "decode-8192-25%",
    "prefill-512",
    "prefill-2048",
    "prefill-8192",
    "prefill-8192-25%",
    "batch8-2048",
]

# What lkv bench speed takes.
MOST_TOKENS = 1 << 20
MOST_SEQUENCES = 256

_NAME = re.compile(
    r"(?P<kind>decode|prefill|batch(?P<batch>[1-9][0-9]{0,2}))"
    r"-(?P<length>0|[1-9][0-9]{0,6})(-(?P<percent>[1-9][0-9]?)%)?"
    r"(-(?P<kv_type>int8))?"
)


@dataclasses.dataclass(frozen=True)
class Work:
    """One prompt and the decoding behind it; one run of a tool measures it."""

    length: int  # tokens of the prompt; 0 means the shortest a tool can do
    batch: int = 1  # sequences per decode step
    percent: int = 100  # of prompt and new tokens, how many the cache keeps
    kv_type: str = "f16"  # of lkv's cache
    has_decode: bool = False
    has_prefill: bool = False

    @property
    def name(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        budget = f" at {self.percent} %" if self.percent < 100 else ""
        kv_type = f" in {self.kv_type}" if self.kv_type != "f16" else ""
        return f"{batch}{self.length} tokens{budget}{kv_type}"

    @property
    def kinds(self) -> list[str]:
        return ["decode"] * self.has_decode + ["prefill"] * self.has_prefill

    def steps(self, gen: int) -> int:
        """Decode steps to run: one where only the prefill counts."""
        return gen if self.has_decode else 1

    def budget_tokens(self, gen: int) -> int:
        """Cached tokens one sequence may keep, of its prompt and new tokens."""
        tokens = max(self.length, 1) + self.steps(gen)
        return math.ceil(tokens * self.percent / 100)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    kind: str  # decode or prefill
    length: int
    batch: int
    percent: int
    kv_type: str


def parse_row(name: str) -> Row:
    match = _NAME.fullmatch(name)
    if (
        not match
        or int(match["length"]) > MOST_TOKENS
        or int(match["batch"] or 1) > MOST_SEQUENCES
    ):
        raise ValueError(
            f"{name}: no such row; expected decode-N, prefill-N or batchB-N,"
            " with -P% behind it for a smaller cache, and -int8 for lkv's cache"
            " in int8"
        )
    return Row(
        name=name,
        kind="prefill" if match["kind"] == "prefill" else "decode",
        length=int(match["length"]),
        batch=int(match["batch"] or 1),
        percent=int(match["percent"] or 100),
        kv_type=match["kv_type"] or "f16",
    )


def choose_rows(text: str) -> list[Row]:
    """Rows for a list such as `decode-*,prefill-512,decode-128`.

    A pattern chooses among the rows of the report; a full name may also be a
    row that is not in it. Raises ValueError.
    """
    names = []
    for part in text.split(","):
        matches = fnmatch.filter(ROW_NAMES, part)
        names += matches or [parse_row(part).name]
    return [parse_row(name) for name in dict.fromkeys(names)]


def works_of(rows: list[Row]) -> list[Work]:
    """The least work for these rows: decode and prefill share a prompt."""
    works = {}
    for row in rows:
        key = (row.length, row.batch, row.percent, row.kv_type)
        work = works.get(key, Work(*key))
        works[key] = dataclasses.replace(work, **{f"has_{row.kind}": True})
    return list(works.values())
