#!/usr/bin/env bash
# Sets up what is missing, then builds and runs every test of one preset.
# The last line says how many tests passed and failed; ends non-zero unless all
# passed. Options are those of setup.sh, and
#
#   --preset NAME   release (default), debug, asan or tsan
#   --no-model      leave out the tests that run the real model
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

preset=release
setup_options=()
ctest_options=()
while (($# > 0)); do
  case $1 in
    --preset)
      preset=${2:?--preset needs a name}
      shift
      ;;
    --no-model) ctest_options+=(--label-exclude model) ;;
    -h | --help)
      sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) setup_options+=("$1") ;;
  esac
  shift
done

scripts/setup.sh "${setup_options[@]}"
echo "test: building preset $preset (the first time takes some minutes)"
scripts/build.sh "$preset"
# Reports of an earlier run would be counted again.
reports=$root/build/$preset/test_reports
rm -rf "$reports"
mkdir "$reports"
# The summary below decides, so that its line comes last.
ctest --preset "$preset" --parallel "$(nproc)" \
  --output-junit "$reports/ctest.xml" "${ctest_options[@]}" || true
python3 tools/summarise_tests.py "$reports"
