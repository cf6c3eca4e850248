#include "session/room_plan.h"

#include "base/byte_text.h"

namespace lkv {
namespace {

// Whether the request fits when `freed_bytes` are given back.
bool Fits(const RoomRequest& request, uint64_t freed_bytes,
          double share_of_quota) {
  const double limit =
      share_of_quota * static_cast<double>(request.quota_bytes);
  const uint64_t used_bytes =
      request.used_bytes - freed_bytes + request.needed_bytes;
  return static_cast<double>(used_bytes) <= limit &&
         request.needed_bytes + request.min_free_bytes <=
             request.free_bytes + freed_bytes;
}

}  // namespace

bool HasRoom(const RoomRequest& request) {
  return Fits(request, 0, kHighWatermark);
}

Result<size_t> CountVictims(const RoomRequest& request,
                            std::span<const uint64_t> victim_bytes) {
  if (HasRoom(request)) return size_t{0};
  uint64_t freed_bytes = 0;
  for (size_t n = 1; n <= victim_bytes.size(); ++n) {
    freed_bytes += victim_bytes[n - 1];
    if (Fits(request, freed_bytes, kLowWatermark)) return n;
  }
  // Above the watermarks, but within what is hard.
  if (Fits(request, freed_bytes, 1.0)) return victim_bytes.size();
  return OutOfMemory(
      "sessions: no room for " + FormatBytes(request.needed_bytes) +
      " within " + FormatBytes(request.quota_bytes) + " (of which " +
      FormatBytes(request.used_bytes - freed_bytes) +
      " are pinned, open or not ours) and " + FormatBytes(request.free_bytes) +
      " free on the disk (" + FormatBytes(request.min_free_bytes) +
      " stay free); free some of it, remove sessions or raise sessions.bytes");
}

}  // namespace lkv
