// How many sessions have to leave so that another one has room. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lookaheadkv/status.h"

namespace lkv {

// Sessions leave when a new one would fill more than this share of the quota,
// and then until it fills no more than the other share, so that not every save
// has to look for room.
inline constexpr double kHighWatermark = 0.95;
inline constexpr double kLowWatermark = 0.90;

struct RoomRequest {
  uint64_t needed_bytes = 0;
  uint64_t used_bytes = 0;   // of the folder, by all processes
  uint64_t quota_bytes = 0;  // for the folder
  uint64_t free_bytes = 0;   // of the file system
  uint64_t min_free_bytes = 0;
};

// Whether nobody has to leave.
bool HasRoom(const RoomRequest& request);

// `victim_bytes`: what each session that may leave takes, in the order in which
// they would. Returns how many of them have to; kOutOfMemory, with the reason,
// when all of them would not be enough.
Result<size_t> CountVictims(const RoomRequest& request,
                            std::span<const uint64_t> victim_bytes);

}  // namespace lkv
