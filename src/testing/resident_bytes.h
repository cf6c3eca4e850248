// How much memory the system has given to this process. For tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace lkv {

// Bytes of this process that are in memory now.
inline size_t ResidentBytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  EXPECT_NE(f, nullptr);
  if (f == nullptr) return 0;
  unsigned long total = 0;
  unsigned long resident = 0;
  EXPECT_EQ(std::fscanf(f, "%lu %lu", &total, &resident), 2);
  std::fclose(f);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace lkv
