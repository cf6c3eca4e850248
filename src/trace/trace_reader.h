// TraceReader: an attention trace from a file (trace_format.h), lane by lane.
//
// What is damaged is refused with the place; nothing is read that its checksum
// does not confirm. Thread-safe after Open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/file_system.h"
#include "lookaheadkv/status.h"
#include "trace/lane_trace.h"
#include "trace/trace_format.h"

namespace lkv {

class TraceReader {
 public:
  // Reads info and index. kNotFound as FileSystem::Open; kCorrupt: no trace,
  // one of another version, one that was cut off or altered.
  static Result<TraceReader> Open(const FileSystem& file_system,
                                  const std::string& path);

  // All of `paths`; fails as the first that fails.
  static Result<std::vector<TraceReader>> OpenAll(
      const FileSystem& file_system, const std::vector<std::string>& paths);

  const std::string& path() const { return path_; }
  const TraceInfo& info() const { return info_; }
  uint32_t n_steps() const { return n_steps_; }
  uint64_t n_bytes() const { return file_->n_bytes(); }
  // Whether a second reading was recorded.
  bool has_reread() const { return has_reread_; }

  // Lane `lane` of the info's lanes, counted layer-major among those recorded.
  // 5 MB of file for 4,096 steps.
  Result<LaneTrace> ReadLane(uint32_t lane) const;

 private:
  TraceReader(std::string path, std::unique_ptr<ReadableFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  Status ReadEnds();
  // The block at `offset`, head and payload, both checked.
  Result<std::vector<uint8_t>> ReadBlock(uint64_t offset) const;
  Status Damaged(const std::string& what) const;

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  TraceInfo info_;
  uint32_t n_steps_ = 0;
  bool has_reread_ = false;
  // [n_segments, n_lanes], then [n_lanes] of the second reading, if any.
  std::vector<uint64_t> block_offsets_;
};

}  // namespace lkv
