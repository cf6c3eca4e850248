// ForecastCheck: whether the history network earns its part in the scores of a
// sequence, judged while it serves.
//
// The moving average says what tokens get now; the network is there for those
// that lie still and come back. So the check waits for returns: at a sampled
// query, the token far behind it that gets the most attention of all that the
// average had given up. Who saw it coming? The rank of that token among the
// lane's far tokens, by the network's forecast and by the average, says so (1:
// above all others, 0.5: no better than chance). While the network's mean rank
// is far below the average's, scores are those of the average alone. Far below,
// because the sum of two rankings of equal merit is better than each: on legal
// prose and code, where the network ranked returns .62 to .65 and the average
// .65 to .67, the KL with the network was a third of that without. So what the
// check finds is a network that misleads, as one trained for other texts may.
// (Ours.)
//
// Thread rule: Add for different lanes may run at the same time; Decide is one
// caller's, apart from them. Allocates in the constructor only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/state_stream.h"

namespace lkv {

class ForecastCheck {
 public:
  // A return: this much of a head's attention, and this many times what the
  // average expected. (From 8 times on the average ranks returns well itself.)
  static constexpr float kReturnMass = 0.05f;
  static constexpr float kReturnSurprise = 512;
  // One lane in so many is looked at, in turns.
  static constexpr uint32_t kLanePeriod = 16;
  // Returns before the network may be judged (mean ranks of so many are certain
  // to 0.03), and those that the judgement remembers: when there are so many
  // they count half.
  static constexpr uint32_t kMinReturns = 128;
  // How much lower the network may rank returns than the average does. One that
  // says nothing ranks them 0.5.
  static constexpr float kMargin = 0.1f;
  static constexpr uint32_t kMaxReturns = 1024;

  struct Verdict {
    bool uses_network = true;
    uint32_t n_returns = 0;
    // Mean ranks of what returned; 0 while there were none.
    float network_rank = 0, average_rank = 0;
  };

  explicit ForecastCheck(uint32_t n_lanes) : lanes_(n_lanes) {}

  // Whether query number n of those that peaks are taken from samples the lane.
  static bool Samples(uint32_t lane, uint32_t n) {
    return (n + lane) % kLanePeriod == 0;
  }

  void Add(uint32_t lane, float network_rank, float average_rank) {
    Ranks& ranks = lanes_[lane];
    ++ranks.n;
    ranks.network += network_rank;
    ranks.average += average_rank;
  }
  // Takes in what all lanes added since the last call. O(lanes).
  void Decide();
  const Verdict& verdict() const { return verdict_; }
  // Between steps.
  void ExchangeState(StateStream& stream) {
    stream.Exchange(total_.n);
    stream.Exchange(total_.network);
    stream.Exchange(total_.average);
    stream.Exchange(verdict_.uses_network);
    stream.Exchange(verdict_.n_returns);
    stream.Exchange(verdict_.network_rank);
    stream.Exchange(verdict_.average_rank);
  }

 private:
  struct Ranks {
    uint32_t n = 0;
    float network = 0, average = 0;
  };

  std::vector<Ranks> lanes_;
  Ranks total_;
  Verdict verdict_;
};

}  // namespace lkv
