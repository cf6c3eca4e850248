// A program whose instructions tools/check_instructions.py counts. It runs
// under callgrind, which writes one total per counted call.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

namespace lkv {

// Says what compiled this program: counts of two compilers do not compare.
inline void PrintCompiler() { std::printf("compiler %s\n", LKV_COMPILER); }

// What callgrind starts and stops counting at, and therefore a real call under
// a plain name.
extern "C" [[gnu::noinline]] inline void LkvCountedCall(
    const std::function<void()>& call) {
  call();
  asm volatile("");  // a tail call would leave this function too early
}

// Counts the instructions of one call. Call it with something that has run
// before: the first run of a function also looks up the addresses of others.
inline void CountInstructions(const std::string& name,
                              const std::function<void()>& call) {
  LkvCountedCall(call);
  std::printf("counted %s\n", name.c_str());
}

}  // namespace lkv
