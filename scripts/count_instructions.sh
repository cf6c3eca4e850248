#!/usr/bin/env bash
# count_instructions.sh [--update]: builds the programs whose instructions are
# counted and compares the counts with those in bench/instructions; --update
# stores them there. Ends non-zero if a kernel needs more than 2 % more than
# stored. Needs setup.sh --valgrind.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

echo "instructions: building the programs"
scripts/build.sh release kernels_instructions cache_instructions
exec python3 tools/check_instructions.py "$@" bench/instructions \
  build/release/src/kernels/kernels_instructions \
  build/release/src/cache/cache_instructions
