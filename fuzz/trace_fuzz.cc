// libFuzzer target: any bytes as an attention trace. The first bytes that it
// tries are a sound trace, whose checksums are then set right again after every
// change: otherwise nothing would get past them.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "io/crc32c.h"
#include "testing/memory_file_system.h"
#include "trace/block_layout.h"
#include "trace/synthetic_trace.h"
#include "trace/trace_reader.h"

namespace {

constexpr char kPath[] = "trace";

std::vector<uint8_t> SoundTrace() {
  lkv::MemoryFileSystem files;
  const lkv::SyntheticTraceOptions options = {.n_steps = 70,
                                              .n_layers = 1,
                                              .n_kv_heads = 2,
                                              .topic_tokens = 30,
                                              .n_needles = 1};
  if (!lkv::WriteSyntheticTrace(files, kPath, options).ok()) std::abort();
  return files.files[kPath];
}

// Sets the checksum of every block that can be found from the first one on, and
// of the end mark.
void RepairChecksums(std::vector<uint8_t>& bytes) {
  size_t at = 0;
  while (bytes.size() - at >= lkv::kBlockHeadBytes) {
    uint64_t payload_bytes = 0;
    std::memcpy(&payload_bytes, &bytes[at + 8], sizeof(payload_bytes));
    const size_t n_left = bytes.size() - at - lkv::kBlockHeadBytes;
    if (payload_bytes > n_left) break;
    const auto checked =
        std::span(bytes).subspan(at + lkv::kBlockCheckedAt, payload_bytes + 8);
    const uint32_t crc = lkv::Crc32c(checked);
    std::memcpy(&bytes[at + 4], &crc, sizeof(crc));
    at += lkv::kBlockHeadBytes + payload_bytes;
  }
  if (bytes.size() < lkv::kEndMarkBytes) return;
  const size_t end = bytes.size() - lkv::kEndMarkBytes;
  const uint32_t crc = lkv::Crc32c(std::span(bytes).subspan(end, 8));
  std::memcpy(&bytes[end + 8], &crc, sizeof(crc));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  // Edits of a sound trace: pairs of a place and what stands there then.
  static const std::vector<uint8_t> sound = SoundTrace();
  lkv::MemoryFileSystem files;
  std::vector<uint8_t>& bytes = files.files[kPath];
  bytes = sound;
  for (size_t i = 0; i + 3 <= n_bytes; i += 3) {
    const size_t place = data[i] + 256u * data[i + 1];
    // From the front, where the info is, and from the back, where the index is.
    const size_t at = place < 0x8000 ? place : sound.size() - (place - 0x7fff);
    if (at < bytes.size()) bytes[at] = data[i + 2];
  }
  RepairChecksums(bytes);
  const auto trace = lkv::TraceReader::Open(files, kPath);
  if (!trace.ok()) return 0;
  for (uint32_t lane = 0; lane < trace->info().n_lanes(); ++lane) {
    if (!trace->ReadLane(lane).ok()) return 0;
  }
  return 0;
}
