#include "eval/reread.h"

namespace lkv {
namespace {

class RereadObserver final : public AttentionObserver {
 public:
  RereadObserver(const KvShape& shape, RereadScores& scores)
      : shape_(shape), scores_(scores) {}
  void OnAttention(const AttentionSample& sample) override {
    scores_.Observe(shape_.LaneOf(sample.layer, sample.kv_head),
                    sample.mass_max);
  }
  bool WatchesAll() const override { return true; }

 private:
  const KvShape shape_;
  RereadScores& scores_;
};

}  // namespace

Status Reread(Engine& engine, Sequence& sequence, std::span<const int32_t> text,
              RereadScores& scores, const std::function<bool()>& cancelled) {
  RereadObserver observer(engine.architecture().kv_shape(), scores);
  engine.SetObserver(&observer);
  const Status status = sequence.Prefill(text, {}, cancelled);
  engine.SetObserver(nullptr);
  return status;
}

}  // namespace lkv
