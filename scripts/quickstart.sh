#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 machine to the demo: set-up, build of
# `lkv`, then `lkv demo`. Run it again at any time; what is done stays done.
# Options are those of setup.sh (--no-packages).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

if [[ " $* " == *" -h "* || " $* " == *" --help "* ]]; then
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi
scripts/setup.sh "$@"
echo "quickstart: building lkv (the first time takes some minutes)"
scripts/build.sh release lkv
echo "quickstart: running build/release/bin/lkv demo (two minutes on two cores)"
exec build/release/bin/lkv demo
