// What a trained network is worth to the cache: the traces that judge it,
// replayed with the look-ahead policy at a quarter of their text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "lookaheadkv/status.h"
#include "policy/history_network.h"
#include "trace/trace_reader.h"

namespace lkv {

inline constexpr double kHoldoutBudget = 0.25;

// Mass hits (trace/replay.h) over all lanes of all traces.
struct HoldoutHits {
  double mass_hit = 0;         // with the network
  double ema_mass_hit = 0;     // by the moving average alone
  double oracle_mass_hit = 0;  // of oracle_future
  double random_mass_hit = 0;
  // (oracle - network) / (oracle - random): 0 as good as the oracle.
  double regret = 0;
};

struct HoldoutReplay {
  std::optional<HoldoutHits> hits;
  std::string why_none;  // set when there are none
};

// Replays those traces of which a quarter leaves something to choose; without
// any there are no hits, and a reason. Fails as reading a trace does, and with
// kCancelled. `progress` (may be empty) is told lanes done and all. 3 s for
// three traces of 3,072 tokens and 90 lanes on two cores.
Result<HoldoutReplay> ReplayHoldout(
    std::span<const TraceReader* const> traces, const HistoryNetwork& network,
    const KernelTable& kernels, ThreadTeam& team,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
