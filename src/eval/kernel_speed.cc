#include "eval/kernel_speed.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/stopwatch.h"
#include "base/types.h"
#include "eval/percentile.h"
#include "eval/stream_probe.h"
#include "model/activation_rows.h"

namespace lkv {
namespace {

// Holds the largest matrix: 1,536 by 4,096 in 16 bit.
constexpr size_t kSmallestWorkingSet = size_t{12} << 20;

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return Percentile<double>(values, 50);
}

// Attention of one lane, by head_dim and query heads per KV head.
struct LaneShape {
  uint32_t head_dim;
  uint32_t group;

  std::string Name() const {
    return std::to_string(head_dim) + "x" + std::to_string(group);
  }
  size_t page_bytes() const { return KvPageBytes(KvType::kF16, head_dim); }
};

// Those of common models: SmolLM2, Llama 3 8B and 70B.
constexpr LaneShape kLaneShapes[] = {{64, 3}, {128, 4}, {128, 8}};
// Columns of a matrix: SmolLM2 and Llama 3 8B.
constexpr uint32_t kColumns[] = {576, 4096};

// A weight format and what its kernels are called.
struct Format {
  const char* name;
  WeightFormat format;
  bool reads_f32 = false;  // activations: quantised otherwise
};
constexpr Format kFormats[] = {
    {"tile4", WeightFormat::kTile4},
    {"tile8", WeightFormat::kTile8},
    {"tile8x16", WeightFormat::kTile8x16},
    {"tile16", WeightFormat::kTile16F16, true},
};

struct DecodeVariant {
  bool shuffled = false;      // pages in random order
  bool keeps_masses = false;  // probabilities kept and reduced, as a policy
                              // wants them
};

class KernelBench {
 public:
  KernelBench(const KernelTable& kernels, ThreadTeam& team,
              const KernelSpeedOptions& options,
              const std::function<void(const KernelSpeedRow&)>& on_row,
              const std::function<bool()>& cancelled)
      : kernels_(kernels),
        options_(options),
        on_row_(on_row),
        cancelled_(cancelled),
        team_(team) {
    CHECK(options.working_set_bytes >= kSmallestWorkingSet);
  }

  std::vector<KernelSpeedRow> Run() {
    for (uint32_t columns : kColumns) {
      for (const Format& format : kFormats) {
        for (QuantizeBits bits : {QuantizeBits::k8, QuantizeBits::k16}) {
          if (format.reads_f32 && bits == QuantizeBits::k16) continue;
          MatrixTimesVector(format, bits, columns);
          MatrixTimesMatrix(format, bits, columns);
        }
      }
    }
    for (const LaneShape& shape : kLaneShapes) {
      Decode(shape, KvType::kF16, {});
      Decode(shape, KvType::kF16, {.shuffled = true});
      Decode(shape, KvType::kF16, {.keeps_masses = true});
      Decode(shape, KvType::kBF16, {});
      Prefill(shape);
    }
    return std::move(rows_);
  }

 private:
  static std::string NameOf(const char* what, const Format& format,
                            QuantizeBits bits) {
    return std::string(what) + "/" + format.name + "/" +
           (format.reads_f32           ? "f32"
            : bits == QuantizeBits::k8 ? "x8"
                                       : "x16");
  }

  // True if `name` is to be measured; then the working set is filled, too.
  bool Wanted(const std::string& name) {
    if (name.find(options_.filter) == std::string::npos) return false;
    if (memory_.size() == 0) FillWorkingSet();
    return true;
  }

  void FillWorkingSet() {
    memory_ = AlignedBuffer<uint8_t>(options_.working_set_bytes);
    // Small halves (0.25 to 0.5): any tile and any page made of them holds
    // ordinary numbers.
    std::minstd_rand random(1);
    for (size_t i = 0; i < memory_.size(); i += 2) {
      const auto half = static_cast<uint16_t>(0x3400 + random() % 0x400);
      std::memcpy(&memory_[i], &half, sizeof(half));
    }
  }

  template <typename Pass>
  static double SecondsOf(const Pass& pass) {
    const Stopwatch watch;
    pass();
    return watch.Seconds();
  }

  // Passes alternate with a streaming read of the first n_bytes.
  template <typename Pass>
  void MeasureBesideStream(const std::string& name, uint64_t n, size_t n_bytes,
                           const Pass& pass) {
    std::vector<double> seconds, ratios;
    for (uint32_t i = 0; i < options_.n_passes && !cancelled_(); ++i) {
      const double stream =
          SecondsOf([&] { StreamRead(team_, memory_.data(), n_bytes); });
      seconds.push_back(SecondsOf(pass));
      ratios.push_back(stream / seconds.back());
    }
    if (ratios.empty()) return;
    KernelSpeedRow row = NewRow(name, n, KernelSpeedRow::Bound::kMemory);
    row.gb_s = static_cast<double>(n_bytes) / MedianOf(seconds) * 1e-9;
    row.ratio_to_stream = MedianOf(ratios);
    row.ratio_min = *std::min_element(ratios.begin(), ratios.end());
    row.ratio_max = *std::max_element(ratios.begin(), ratios.end());
    Add(row);
  }

  template <typename Pass>
  void MeasureArithmetic(const std::string& name, uint64_t n, double flop,
                         const Pass& pass) {
    std::vector<double> seconds;
    for (uint32_t i = 0; i < options_.n_passes && !cancelled_(); ++i) {
      seconds.push_back(SecondsOf(pass));
    }
    if (seconds.empty()) return;
    KernelSpeedRow row = NewRow(name, n, KernelSpeedRow::Bound::kArithmetic);
    row.gflop_s = flop / MedianOf(seconds) * 1e-9;
    Add(row);
  }

  KernelSpeedRow NewRow(const std::string& name, uint64_t n,
                        KernelSpeedRow::Bound bound) const {
    KernelSpeedRow row;
    row.kernel = name;
    row.isa = kernels_.name;
    row.n = n;
    row.bound = bound;
    row.n_threads = team_.n_threads();
    return row;
  }

  void Add(const KernelSpeedRow& row) {
    rows_.push_back(row);
    if (on_row_) on_row_(row);
  }

  // n_tokens rows of activations, quantised.
  ActivationRows::View FillRows(ActivationRows& rows, uint32_t n_tokens,
                                uint32_t columns, QuantizeBits bits) {
    const ActivationRows::View view(&rows, columns, bits);
    std::minstd_rand random(2);
    for (uint32_t t = 0; t < n_tokens; ++t) {
      for (uint32_t c = 0; c < columns; ++c) {
        view.row(t)[c] = static_cast<float>(random() % 2001) - 1000;
      }
      view.Finish(t);
    }
    return view;
  }

  // All row tiles of a matrix at the start of the working set, by all threads.
  void Multiply(const Format& format, const ActivationRows::View& x,
                uint32_t columns, uint32_t n_tokens, size_t n_row_tiles,
                std::vector<float>& y) {
    // As the executor cuts its products.
    constexpr size_t kItemBytes = size_t{32} << 10;
    const size_t n_items = CountItems(
        n_row_tiles * columns / kTileColumns * TileBytes(format.format),
        kItemBytes, n_row_tiles);
    team_.ForEach(n_items, [&](size_t item) {
      const Range tiles = RangeOf(n_row_tiles, item, n_items);
      kernels_.matmul[static_cast<size_t>(format.format)](
          {.tiles = memory_.data(),
           .n_column_tiles = columns / kTileColumns,
           .row_tile_begin = tiles.begin,
           .row_tile_end = tiles.end,
           .n_tokens = n_tokens,
           .quantized = x.quantized(),
           .x = x.f32(),
           .x_stride = x.stride(),
           .y = y.data(),
           .y_stride = n_row_tiles * kTileRows});
    });
  }

  void MatrixTimesVector(const Format& format, QuantizeBits bits,
                         uint32_t columns) {
    const std::string name = NameOf("matvec", format, bits);
    if (!Wanted(name)) return;
    const size_t row_bytes = columns / kTileColumns * TileBytes(format.format);
    const size_t n_row_tiles = memory_.size() / row_bytes;
    ActivationRows rows(&kernels_, 1, columns);
    const ActivationRows::View x = FillRows(rows, 1, columns, bits);
    std::vector<float> y(n_row_tiles * kTileRows);
    MeasureBesideStream(name, columns, n_row_tiles * row_bytes, [&] {
      Multiply(format, x, columns, 1, n_row_tiles, y);
    });
  }

  void MatrixTimesMatrix(const Format& format, QuantizeBits bits,
                         uint32_t columns) {
    const std::string name = NameOf("matmul", format, bits);
    if (!Wanted(name)) return;
    constexpr uint32_t kTokens = 256;
    constexpr size_t kRowTiles = 96;  // 1,536 rows
    ActivationRows rows(&kernels_, kTokens, columns);
    const ActivationRows::View x = FillRows(rows, kTokens, columns, bits);
    std::vector<float> y(kTokens * kRowTiles * kTileRows);
    MeasureArithmetic(
        name, columns, 2.0 * kTokens * kRowTiles * kTileRows * columns,
        [&] { Multiply(format, x, columns, kTokens, kRowTiles, y); });
  }

  // What a member of the team works with alone.
  struct Lane {
    Lane(const LaneShape& shape, uint32_t n_queries, uint32_t n_slots)
        : q(size_t{n_queries} * shape.group * shape.head_dim),
          out(q.size()),
          m(n_queries * shape.group),
          l(m.size()),
          p(size_t{shape.group} * n_slots),
          p_max(size_t{shape.group} * CeilDiv(n_slots, kAttendChunkSlots)),
          mass_max(n_slots),
          mass_mean(n_slots),
          scratch(AttendPrefillScratch(shape.head_dim)) {
      std::fill(q.span().begin(), q.span().end(), 0.01f);
    }

    AlignedBuffer<float> q, out, m, l, p, p_max, mass_max, mass_mean, scratch;
  };
  std::vector<Lane> NewLanes(const LaneShape& shape, uint32_t n_queries,
                             uint32_t n_slots) const {
    std::vector<Lane> lanes;
    for (uint32_t i = 0; i < team_.n_threads(); ++i) {
      lanes.emplace_back(shape, n_queries, n_slots);
    }
    return lanes;
  }

  // Pages of the whole working set, cut into lanes by their order here.
  std::vector<uint32_t> ListPages(const LaneShape& shape, bool shuffled) const {
    std::vector<uint32_t> pages(memory_.size() / shape.page_bytes());
    std::iota(pages.begin(), pages.end(), 0);
    if (shuffled) {
      std::shuffle(pages.begin(), pages.end(), std::minstd_rand(3));
    }
    return pages;
  }

  void Decode(const LaneShape& shape, KvType type,
              const DecodeVariant& variant) {
    const std::string name =
        std::string("decode/") + (type == KvType::kF16 ? "f16/" : "bf16/") +
        shape.Name() + (variant.shuffled ? "/shuffled" : "") +
        (variant.keeps_masses ? "/masses" : "");
    if (!Wanted(name)) return;
    const std::vector<uint32_t> pages = ListPages(shape, variant.shuffled);
    const uint32_t n_slots = static_cast<uint32_t>(
        std::min<size_t>(8192, pages.size() / 8 * kPageTokens));
    const size_t lane_pages = n_slots / kPageTokens;
    const size_t n_lanes = pages.size() / lane_pages;
    std::vector<Lane> lanes = NewLanes(shape, 1, n_slots);
    const auto pass = [&] {
      team_.Run([&](TeamMember& me) {
        Lane& mine = lanes[me.index()];
        me.ForEach(n_lanes, [&](size_t item) {
          DecodeLane(shape, type, variant, &pages[item * lane_pages], n_slots,
                     mine);
        });
      });
    };
    MeasureBesideStream(name, n_slots,
                        n_lanes * lane_pages * shape.page_bytes(), pass);
  }

  void DecodeLane(const LaneShape& shape, KvType type,
                  const DecodeVariant& variant, const uint32_t* pages,
                  uint32_t n_slots, Lane& mine) {
    const size_t chunks = CeilDiv(n_slots, kAttendChunkSlots);
    const bool keeps = variant.keeps_masses;
    kernels_.attend_decode[static_cast<size_t>(type)](
        {.run = {.pool = memory_.data(),
                 .page_bytes = shape.page_bytes(),
                 .pages = pages,
                 .n_slots = n_slots,
                 .head_dim = shape.head_dim},
         .group = shape.group,
         .q = mine.q.data(),
         .m = mine.m.data(),
         .l = mine.l.data(),
         .o = mine.out.data(),
         .p = keeps ? mine.p.data() : nullptr,
         .p_stride = n_slots,
         .p_max = keeps ? mine.p_max.data() : nullptr,
         .p_max_stride = chunks});
    if (!keeps) return;
    kernels_.reduce_mass({.p = mine.p.data(),
                          .p_stride = n_slots,
                          .p_max = mine.p_max.data(),
                          .p_max_stride = chunks,
                          .m = mine.m.data(),
                          .l = mine.l.data(),
                          .group = shape.group,
                          .n_slots = n_slots,
                          .mass_max = mine.mass_max.data(),
                          .mass_mean = mine.mass_mean.data()});
  }

  void Prefill(const LaneShape& shape) {
    const std::string name = "prefill/f16/" + shape.Name();
    if (!Wanted(name)) return;
    const uint32_t n_queries = std::max(1u, kPrefillRows / shape.group);
    const std::vector<uint32_t> pages = ListPages(shape, false);
    const uint32_t n_slots = static_cast<uint32_t>(
        std::min<size_t>(4096, pages.size() * kPageTokens));
    constexpr size_t kBlocks = 32;  // of n_queries query tokens
    std::vector<Lane> lanes = NewLanes(shape, n_queries, n_slots);
    const size_t q_stride = size_t{shape.group} * shape.head_dim;
    const double visible = (n_slots - (n_queries - 1) / 2.0) * n_queries;
    const auto pass = [&] {
      team_.Run([&](TeamMember& me) {
        Lane& mine = lanes[me.index()];
        me.ForEach(kBlocks, [&](size_t) {
          kernels_.attend_prefill[static_cast<size_t>(KvType::kF16)](
              {.run = {.pool = memory_.data(),
                       .page_bytes = shape.page_bytes(),
                       .pages = pages.data(),
                       .n_slots = n_slots,
                       .head_dim = shape.head_dim},
               .group = shape.group,
               .n_queries = n_queries,
               .n_visible = n_slots - n_queries + 1,
               .q = mine.q.data(),
               .q_stride = q_stride,
               .out = mine.out.data(),
               .out_stride = q_stride,
               .m = mine.m.data(),
               .l = mine.l.data(),
               .observed = nullptr,
               .n_observed = 0,
               .p = nullptr,
               .p_stride = 0,
               .p_max = nullptr,
               .p_max_stride = 0,
               .scratch = mine.scratch.data()});
        });
      });
    };
    MeasureArithmetic(name, n_slots,
                      4.0 * kBlocks * shape.head_dim * shape.group * visible,
                      pass);
  }

  const KernelTable& kernels_;
  const KernelSpeedOptions& options_;
  const std::function<void(const KernelSpeedRow&)>& on_row_;
  const std::function<bool()>& cancelled_;
  ThreadTeam& team_;
  AlignedBuffer<uint8_t> memory_;  // the working set
  std::vector<KernelSpeedRow> rows_;
};

}  // namespace

std::vector<KernelSpeedRow> MeasureKernelSpeed(
    const KernelTable& kernels, ThreadTeam& team,
    const KernelSpeedOptions& options,
    const std::function<void(const KernelSpeedRow&)>& on_row,
    const std::function<bool()>& cancelled) {
  return KernelBench(kernels, team, options, on_row, cancelled).Run();
}

}  // namespace lkv
