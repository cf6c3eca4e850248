"""What a tool under measurement offers, and how its program is run."""

import dataclasses
import pathlib
import re
import subprocess
import tempfile
import typing

from rows import Work

# A prompt of 8,192 tokens takes a slow peer minutes; this is a hang.
RUN_SECONDS_MAX = 1800


class MeasureError(Exception):
    """A run gave no figure; the message says which and why."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    model: pathlib.Path
    threads: int
    gen: int  # decode steps per run


class Tool(typing.Protocol):
    name: str
    version: str  # for the report; empty for lkv, which states its own

    def set_up(self) -> None:
        """Installs or builds what is missing. Raises SetupError."""

    def applies(self, work: Work) -> bool:
        """Whether a comparison with this tool says anything there."""

    def refusal(self, work: Work, options: RunOptions) -> str:
        """Why this tool cannot do the work; empty if it can."""

    def settings(self, work: Work) -> list[str]:
        """Names of the settings that may be its best."""

    def command(
        self, work: Work, setting: str, options: RunOptions
    ) -> list[str]:
        """The program and its arguments."""

    def parse(self, output: str, work: Work) -> dict[str, float]:
        """Tokens per second of each of work.kinds. Raises MeasureError."""


def output_of(command: list[str]) -> str:
    """What a program prints, run in a folder of its own: paths in `command`
    must be absolute. Raises MeasureError when it fails."""
    program = pathlib.Path(command[0]).name
    try:
        # ik_llama.cpp leaves a log where it runs.
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command,
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=RUN_SECONDS_MAX,
                cwd=folder,
            )
    except subprocess.TimeoutExpired:
        raise MeasureError(
            f"{program}: no result within {RUN_SECONDS_MAX} s"
        ) from None
    except OSError as error:
        raise MeasureError(f"{program}: {error.strerror}") from None
    if done.returncode:
        reason = last_words(done.stderr.strip() or done.stdout.strip())
        raise MeasureError(f"{program} ended with {done.returncode}: {reason}")
    # ik_llama.cpp leaves stdout empty and prints its table on stderr.
    return done.stdout if done.stdout.strip() else done.stderr


def last_words(output: str) -> str:
    """The line that says why a program ended: its last complaint, not the
    trace of calls that a debugger prints behind it."""
    lines = output.splitlines() or [""]
    complaints = [
        line
        for line in lines
        if re.search("assert|error|fail|exception", line, re.IGNORECASE)
    ]
    return " ".join((complaints or lines)[-1].split())


def speed(value: object, what: str) -> float:
    """A positive number of tokens per second, or MeasureError."""
    if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise MeasureError(f"{what}: {value} is no speed")
    return float(value)
