#!/usr/bin/env bash
# build.sh PRESET [TARGET ...]: configures and builds one preset of
# CMakePresets.json into build/PRESET. Shows how far it has come, and what the
# compiler says only if it fails, so that a script's own output stays readable.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
preset=$1
shift

log=build/$preset.log
mkdir -p build

# Reads ninja's lines, "[37/231] Building ...". On a terminal the count is
# redrawn in place; elsewhere there is a line for every quarter.
show_progress() {
  local line told=0
  local count='^\[([0-9]+)/([0-9]+)\]'
  while IFS= read -r line; do
    [[ $line =~ $count ]] || continue
    local n_done=${BASH_REMATCH[1]} n_all=${BASH_REMATCH[2]}
    if [[ -t 1 ]]; then
      printf '\rbuild: %d of %d steps \e[K' "$n_done" "$n_all"
    elif ((n_done * 4 / n_all > told)); then
      told=$((n_done * 4 / n_all))
      echo "build: $n_done of $n_all steps, $(date +%H:%M:%S)"
    fi
  done
  [[ ! -t 1 ]] || printf '\r\e[K'
}

if ! {
  cmake --preset "$preset" &&
    cmake --build --preset "$preset" ${1:+--target "$@"}
} 2>&1 | tee "$log" | show_progress; then
  grep -m 20 -A 5 -E 'error|CMake Error' "$log" >&2 || tail -n 20 "$log" >&2
  echo "build: preset $preset failed; all of it is in $log" >&2
  exit 1
fi
