#!/usr/bin/env bash
# fuzz.sh [SECONDS]: builds the libFuzzer targets of fuzz/ and runs them for
# SECONDS (60) together. Ends non-zero on the first finding and leaves the
# input that caused it in build/fuzz/findings. Needs setup.sh --fuzz.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
seconds=${1:-60}

echo "fuzz: building the targets"
scripts/build.sh fuzz
targets=(build/fuzz/fuzzers/*)
mkdir -p build/fuzz/findings
for target in "${targets[@]}"; do
  name=$(basename "$target")
  corpus=build/fuzz/corpus/$name
  log=build/fuzz/$name.log
  mkdir -p "$corpus"
  # A hostile file may ask for much memory or time; both count as findings.
  if ! "$target" -max_total_time=$((seconds / ${#targets[@]})) -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix=build/fuzz/findings/ \
    -print_final_stats=1 "$corpus" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "fuzz: $name found something; input in build/fuzz/findings" >&2
    exit 1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "fuzz: $name: nothing found in $runs runs"
done
