// libFuzzer target: any bytes as a session file. The first byte says what the
// others are: the file itself, or edits of a sound one, plain or sealed, whose
// checksums are then set right again: otherwise nothing would get past them.

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "session/testing_sessions.h"
#include "testing/memory_folder.h"

namespace {

std::vector<uint8_t> SoundSession(const lkv::SecretKey* key) {
  lkv::MemoryFolder folder;
  const lkv::PayloadBound bound = lkv::TestBound(lkv::kTestBlockBytes);
  auto writer = lkv::SessionWriter::Begin(folder, lkv::TestSpec("a"), bound,
                                          {.master_key = key});
  if (!writer.ok() ||
      !lkv::AppendTestBlocks(**writer, 1, lkv::kTestBlockBytes).ok() ||
      !(*writer)->Finish().ok() || !(*writer)->Publish("s").ok()) {
    std::abort();
  }
  return folder.Contents("s");
}

// Edits: two bytes for a place, one for what stands there then.
std::vector<uint8_t> Edited(std::vector<uint8_t> bytes, const uint8_t* edits,
                            size_t n_bytes) {
  for (size_t i = 0; i + 3 <= n_bytes; i += 3) {
    const size_t at = edits[i] + 256u * edits[i + 1];
    if (at < bytes.size()) bytes[at] = edits[i + 2];
  }
  lkv::RepairChecksums(bytes);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  static const lkv::SecretKey key = lkv::TestKey();
  static const std::vector<uint8_t> plain = SoundSession(nullptr);
  static const std::vector<uint8_t> sealed = SoundSession(&key);
  if (n_bytes == 0) return 0;
  std::vector<uint8_t> bytes(data + 1, data + n_bytes);
  if (data[0] % 3 != 0) {
    bytes = Edited(data[0] % 3 == 1 ? plain : sealed, data + 1, n_bytes - 1);
  }
  const auto reader = lkv::OpenBytes(std::move(bytes), {.master_key = &key});
  if (!reader.ok()) return 0;
  static_cast<void>((*reader)->Verify());
  for (uint32_t i = 0; i < (*reader)->blocks().size(); ++i) {
    std::vector<uint8_t> out((*reader)->blocks()[i].stored_bytes);
    static_cast<void>((*reader)->LoadBlock(i, out));
  }
  return 0;
}
