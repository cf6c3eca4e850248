// CHECK stops the process when our own promise is broken; it is never the
// answer to bad input (that is a Status). Cost: one predictable branch.
#pragma once

namespace lkv {

// Prints "<file>:<line>: CHECK failed: <condition>" and aborts.
[[noreturn]] void CheckFailed(const char* file, int line,
                              const char* condition);

}  // namespace lkv

#define CHECK(condition)              \
  ((condition) ? static_cast<void>(0) \
               : ::lkv::CheckFailed(__FILE__, __LINE__, #condition))
