#!/usr/bin/env bash
# build.sh PRESET [TARGET ...]: configures and builds one preset of
# CMakePresets.json into build/PRESET. Shows what the compiler says only if it
# fails, so that a script's own output stays readable.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
preset=$1
shift

log=build/$preset.log
mkdir -p build
if ! {
  cmake --preset "$preset" &&
    cmake --build --preset "$preset" ${1:+--target "$@"}
} >"$log" 2>&1; then
  grep -m 20 -A 5 -E 'error|CMake Error' "$log" >&2 || tail -n 20 "$log" >&2
  echo "build: preset $preset failed; all of it is in $log" >&2
  exit 1
fi
