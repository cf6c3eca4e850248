// Shared by the tests of what is made of traces: made ones, in memory.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "testing/memory_file_system.h"
#include "trace/synthetic_trace.h"
#include "trace/trace_reader.h"

namespace lkv {

inline TraceReader Synthetic(const SyntheticTraceOptions& options) {
  MemoryFileSystem files;
  EXPECT_TRUE(WriteSyntheticTrace(files, "t", options).ok());
  auto reader = TraceReader::Open(files, "t");
  EXPECT_TRUE(reader.ok());
  return std::move(*reader);
}

}  // namespace lkv
