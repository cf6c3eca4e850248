"""What peers need on this machine: a virtual environment and their builds.

What compare.py needs lies in .deps/peers/ and is made once; delete the folder
to make it anew. Builds use two jobs at low priority, so that the machine stays
usable.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / ".deps" / "peers"
VENV_PYTHON = HERE / "venv" / "bin" / "python"
REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")
BUILD_JOBS = 2


class SetupError(Exception):
    """Something is missing; the message says what and what to do."""


def say(text: str) -> None:
    program = pathlib.Path(sys.argv[0]).stem
    print(f"{program}: {text}", file=sys.stderr, flush=True)


def run_logged(
    command: list, log_name: str, advice: str, folder: pathlib.Path = HERE
) -> None:
    """Runs a command into a log file; SetupError shows how the log ends."""
    log = folder / f"{log_name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as stream:
        code = subprocess.run(
            [str(part) for part in command],
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        end = "\n  ".join(lines[-5:])
        shown = log.relative_to(ROOT)
        raise SetupError(f"{advice} (all of it is in {shown})\n  {end}")


def pinned_version(pins: pathlib.Path, package: str) -> str:
    """The version that a file in pip's requirements format asks for."""
    match = re.search(
        rf"^{re.escape(package)}==([\w.]+)", pins.read_text(), re.MULTILINE
    )
    if not match:
        raise SetupError(f"{pins} pins no version of {package}")
    return match[1]


def ensure_venv(folder: pathlib.Path, requirements: pathlib.Path) -> None:
    """folder/venv, a virtual environment with what a file of pins asks for."""
    venv = folder / "venv"
    done = venv / "requirements.txt"
    pins = requirements.read_text()
    if done.exists() and done.read_text() == pins:
        return
    say(f"installing {requirements.name} into {venv.relative_to(ROOT)}")
    # --clear: a venv that failed half-way looks whole.
    run_logged(
        [sys.executable, "-m", "venv", "--clear", venv],
        "venv",
        "no virtual environment; on Debian and Ubuntu install python3-venv",
        folder,
    )
    run_logged(
        [venv / "bin" / "python", "-m", "pip", "install"]
        + ["-r", requirements],
        "pip",
        f"pip cannot install {requirements.name}; without network, put the"
        " wheels in a folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>",
        folder,
    )
    done.write_text(pins)


def build_with_cmake(
    source: pathlib.Path, build: pathlib.Path, options: list, target: str
) -> pathlib.Path:
    """Brings a program for this machine's processor up to date."""
    for tool in ("cmake", "ninja"):
        if not shutil.which(tool):
            raise SetupError(f"{tool} is missing; run scripts/setup.sh")
    if not (build / "build.ninja").exists():
        launcher = []
        if shutil.which("ccache"):
            launcher = [
                "-DCMAKE_C_COMPILER_LAUNCHER=ccache",
                "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache",
            ]
        run_logged(
            ["cmake", "-G", "Ninja", "-S", source, "-B", build]
            + ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON"]
            + ["-DBUILD_SHARED_LIBS=OFF", *launcher, *options],
            build.name + "-configure",
            f"{target} cannot be configured",
        )
    run_logged(
        ["nice", "cmake", "--build", build, "-j", BUILD_JOBS]
        + ["--target", target],
        build.name + "-build",
        f"{target} cannot be built",
    )
    return build / "bin" / target


def fetch_source(pins: pathlib.Path, package: str) -> pathlib.Path:
    """Unpacks the source distribution that `pins` names; returns its folder.

    pip checks the SHA-256 before it opens the file.
    """
    stem = f"{package.replace('-', '_')}-{pinned_version(pins, package)}"
    source = HERE / stem
    if source.exists():
        return source
    with tempfile.TemporaryDirectory() as directory:
        run_logged(
            [sys.executable, "-m", "pip", "download", "--no-deps"]
            + ["--require-hashes", "-r", pins, "-d", directory],
            stem,
            f"pip cannot fetch {stem}; without network, put the file in a"
            " folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>",
        )
        unpacked = HERE / f"{stem}.unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        archive = pathlib.Path(directory) / f"{stem}.tar.gz"
        shutil.unpack_archive(archive, unpacked)
    (unpacked / stem).rename(source)
    unpacked.rmdir()
    return source
