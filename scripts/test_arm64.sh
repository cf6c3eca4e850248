#!/usr/bin/env bash
# Sets up what is missing, then builds the folders that need no third-party
# library (base, kernels with the scalar set, policy, store) for 64-bit ARM with
# a cross compiler and runs their tests under QEMU's user mode. Options are
# those of setup.sh. The last line says how many tests passed and failed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# What these test is the system's, and QEMU's user mode does not pass it on:
# RLIMIT_AS, the advice to use huge pages, and filters of system calls.
not_under_qemu=(
  ThreadTeamDeathTest.RefusedThreadIsAStatus
  AlignedBufferTest.LargeBufferAsksForHugePages
  AlignedBufferDeathTest.LargeBufferDoesWithoutHugePages
  PagePoolDeathTest.DoesWithoutHugePages
)
GTEST_FILTER=-$(IFS=: && echo "${not_under_qemu[*]}")
export GTEST_FILTER

exec scripts/test.sh --preset arm64 --arm64 "$@"
