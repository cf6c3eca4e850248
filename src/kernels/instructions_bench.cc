// Runs every kernel of every set on one small fixed input, to count its
// instructions: unlike a time, the count is the same on a busy machine. The
// shapes are those of a small model, with a remainder where kernels treat one
// apart.
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/testing_sets.h"
#include "testing/counted_call.h"

namespace lkv {
namespace {

constexpr uint32_t kGroup = 3;
constexpr const char* kTypeNames[] = {"f16", "bf16"};

void Count(const std::string& name, const std::function<void()>& kernel) {
  kernel();
  CountInstructions(name, kernel);
}

// Halves of 0.25 to 0.5 (as f16), which are fit for scales, weights and pages.
AlignedBuffer<uint8_t> RandomHalves(size_t n_bytes) {
  AlignedBuffer<uint8_t> bytes(n_bytes);
  Random random(1);
  for (size_t i = 0; i < n_bytes; i += sizeof(uint16_t)) {
    uint16_t half = static_cast<uint16_t>(0x3400 + random.Below(0x400));
    std::memcpy(&bytes[i], &half, sizeof(half));
  }
  return bytes;
}

// Names end with the bits of an activation and the number of tokens.
void CountMatmuls(const KernelTable& set) {
  constexpr size_t kRowTiles = 4;
  constexpr size_t kColumnTiles = 18;  // 576 columns
  constexpr size_t kColumns = kColumnTiles * kTileColumns;
  constexpr size_t kTokensMax = 7;
  const std::vector<float> x = Random(2).Activations(kTokensMax * kColumns);
  std::vector<int8_t> high(x.size()), low(x.size());
  std::vector<float> scale(x.size() / 32), sums(x.size() / 16);
  std::vector<float> y(kTokensMax * kRowTiles * kTileRows);
  constexpr const char* kNames[kWeightFormats] = {"tile4", "tile8", "tile8x16",
                                                  "tile16_f16", "tile16_bf16"};
  for (size_t format = 0; format < kWeightFormats; ++format) {
    const AlignedBuffer<uint8_t> tiles =
        RandomHalves(kRowTiles * kColumnTiles *
                     TileBytes(static_cast<WeightFormat>(format)));
    const bool is_tile16 =
        format >= static_cast<size_t>(WeightFormat::kTile16F16);
    for (int bits : {8, 16}) {
      if (is_tile16 && bits == 8) continue;
      int8_t* const low_or_none = bits == 16 ? low.data() : nullptr;
      set.quantize_row(x.data(), x.size(), high.data(), low_or_none,
                       scale.data(), sums.data());
      for (size_t n_tokens : {size_t{1}, kTokensMax}) {
        const MatmulArgs args = {.tiles = tiles.data(),
                                 .n_column_tiles = kColumnTiles,
                                 .row_tile_begin = 0,
                                 .row_tile_end = kRowTiles,
                                 .n_tokens = n_tokens,
                                 .quantized = {.high = high.data(),
                                               .low = low_or_none,
                                               .scale = scale.data(),
                                               .sums = sums.data(),
                                               .stride = kColumns},
                                 .x = x.data(),
                                 .x_stride = kColumns,
                                 .y = y.data(),
                                 .y_stride = kRowTiles * kTileRows};
        Count(std::string(set.name) + "/matmul/" + kNames[format] + "/x" +
                  std::to_string(is_tile16 ? 32 : bits) + "/" +
                  std::to_string(n_tokens),
              [&] { set.matmul[format](args); });
      }
    }
  }
}

// Two and a half chunks of slots: a whole one, then one with a short page.
constexpr uint32_t kSlots = 2 * kAttendChunkSlots + 120;
constexpr uint32_t kPages = (kSlots + kPageSlots - 1) / kPageSlots;
constexpr uint32_t kPaddedSlots = kPages * kPageSlots;
constexpr uint32_t kChunks = 3;

struct Lane {
  explicit Lane(uint32_t head_dim)
      : page_bytes(size_t{2} * kPageSlots * head_dim * sizeof(uint16_t)),
        pool(RandomHalves(kPages * page_bytes)),
        pages(kPages),
        head_dim(head_dim) {
    std::iota(pages.rbegin(), pages.rend(), 0);
  }

  PageRun Run() const {
    return {.pool = pool.data(),
            .page_bytes = page_bytes,
            .pages = pages.data(),
            .n_slots = kSlots,
            .head_dim = head_dim};
  }

  size_t page_bytes;
  AlignedBuffer<uint8_t> pool;
  std::vector<uint32_t> pages;
  uint32_t head_dim;
};

// Names end with the type of the page and head_dim; `kept`: with
// probabilities kept.
void CountDecode(const KernelTable& set, size_t type, uint32_t head_dim) {
  const Lane lane(head_dim);
  const std::vector<float> q = Random(3).Activations(kGroup * head_dim);
  std::vector<float> m(kGroup), l(kGroup), o(q.size());
  std::vector<float> p(kGroup * kPaddedSlots), p_max(kGroup * kChunks);
  for (bool keep : {false, true}) {
    const AttendDecodeArgs args = {.run = lane.Run(),
                                   .group = kGroup,
                                   .q = q.data(),
                                   .m = m.data(),
                                   .l = l.data(),
                                   .o = o.data(),
                                   .p = keep ? p.data() : nullptr,
                                   .p_stride = kPaddedSlots,
                                   .p_max = keep ? p_max.data() : nullptr,
                                   .p_max_stride = kChunks};
    Count(std::string(set.name) + "/attend_decode/" + kTypeNames[type] + "/" +
              std::to_string(head_dim) + (keep ? "/kept" : ""),
          [&] { set.attend_decode[type](args); });
  }
}

void CountPrefill(const KernelTable& set, size_t type, uint32_t head_dim) {
  constexpr uint32_t kQueries = 20;
  constexpr uint32_t kObserved[] = {7, 15, 19};
  constexpr uint32_t kObservedRows = 3 * kGroup;
  const Lane lane(head_dim);
  const size_t stride = size_t{kGroup} * head_dim;
  const std::vector<float> q = Random(4).Activations(kQueries * stride);
  std::vector<float> out(q.size());
  std::vector<float> m(kQueries * kGroup), l(kQueries * kGroup);
  std::vector<float> p(kObservedRows * kPaddedSlots);
  std::vector<float> p_max(kObservedRows * kChunks);
  AlignedBuffer<float> scratch(AttendPrefillScratch(head_dim));
  const AttendPrefillArgs args = {.run = lane.Run(),
                                  .group = kGroup,
                                  .n_queries = kQueries,
                                  .n_visible = kSlots - kQueries + 1,
                                  .q = q.data(),
                                  .q_stride = stride,
                                  .out = out.data(),
                                  .out_stride = stride,
                                  .m = m.data(),
                                  .l = l.data(),
                                  .observed = kObserved,
                                  .n_observed = 3,
                                  .p = p.data(),
                                  .p_stride = kPaddedSlots,
                                  .p_max = p_max.data(),
                                  .p_max_stride = kChunks,
                                  .scratch = scratch.data()};
  Count(std::string(set.name) + "/attend_prefill/" + kTypeNames[type] + "/" +
            std::to_string(head_dim),
        [&] { set.attend_prefill[type](args); });
}

void CountSlots(const KernelTable& set, size_t type) {
  constexpr uint32_t kHeadDim = 64;
  Lane lane(kHeadDim);
  const std::vector<float> row = Random(5).Activations(kHeadDim);
  float norms[kPageSlots], distances[kPageSlots];
  const std::string end = std::string("/") + kTypeNames[type];
  Count(set.name + ("/write_slot" + end), [&] {
    set.write_slot[type](lane.pool.data(), 5, kHeadDim, row.data(), row.data());
  });
  Count(set.name + ("/value_stats" + end), [&] {
    set.value_stats[type](lane.pool.data(), 1, kPageSlots, kHeadDim, row.data(),
                          norms, distances);
  });
}

void CountReduceMass(const KernelTable& set) {
  std::vector<float> p(kGroup * kPaddedSlots, 0.5f), p_max(kGroup * kChunks);
  const std::vector<float> m(kGroup, 1.0f), l(kGroup, 9.0f);
  std::vector<float> mass_max(kPaddedSlots), mass_mean(kPaddedSlots);
  const ReduceMassArgs args = {.p = p.data(),
                               .p_stride = kPaddedSlots,
                               .p_max = p_max.data(),
                               .p_max_stride = kChunks,
                               .m = m.data(),
                               .l = l.data(),
                               .group = kGroup,
                               .n_slots = kSlots,
                               .mass_max = mass_max.data(),
                               .mass_mean = mass_mean.data()};
  Count(set.name + std::string("/reduce_mass"), [&] { set.reduce_mass(args); });
}

void CountRows(const KernelTable& set) {
  constexpr size_t kColumns = 576;
  constexpr size_t kPairs = 32;
  Random random(6);
  const std::vector<float> a = random.Activations(kColumns);
  const std::vector<float> b = random.Activations(kColumns);
  std::vector<float> out(kColumns), scale(kColumns / 32), sums(kColumns / 16);
  std::vector<int8_t> high(kColumns), low(kColumns);
  std::vector<uint16_t> ema(kColumns);
  const std::string start = std::string(set.name) + "/";
  Count(start + "quantize_row/x8", [&] {
    set.quantize_row(a.data(), kColumns, high.data(), nullptr, scale.data(),
                     sums.data());
  });
  Count(start + "quantize_row/x16", [&] {
    set.quantize_row(a.data(), kColumns, high.data(), low.data(), scale.data(),
                     sums.data());
  });
  Count(start + "rms_norm",
        [&] { set.rms_norm(a.data(), b.data(), kColumns, 1e-5f, out.data()); });
  Count(start + "silu_multiply",
        [&] { set.silu_multiply(a.data(), b.data(), kColumns, out.data()); });
  Count(start + "add",
        [&] { set.add(a.data(), b.data(), kColumns, out.data()); });
  Count(start + "rope_normal",
        [&] { set.rope_normal(out.data(), a.data(), b.data(), kPairs); });
  Count(start + "rope_neox",
        [&] { set.rope_neox(out.data(), a.data(), b.data(), kPairs); });
  Count(start + "ema_f16",
        [&] { set.ema_f16(ema.data(), a.data(), kColumns, 0.7f); });
}

void CountSet(const KernelTable& set) {
  CountMatmuls(set);
  for (size_t type : {0, 1}) {
    CountDecode(set, type, 64);
    CountDecode(set, type, 128);
    CountPrefill(set, type, 64);
    CountSlots(set, type);
  }
  CountReduceMass(set);
  CountRows(set);
}

}  // namespace
}  // namespace lkv

int main() {
  lkv::PrintCompiler();
  for (const lkv::KernelTable* set : lkv::AllSets()) lkv::CountSet(*set);
  return 0;
}
