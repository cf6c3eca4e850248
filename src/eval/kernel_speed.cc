#include "eval/kernel_speed.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/stopwatch.h"
#include "cache/attention_runner.h"
#include "eval/percentile.h"
#include "eval/stream_probe.h"
#include "kernels/kernel_inputs.h"
#include "store/page_allocator.h"

namespace lkv {
namespace {

// Holds the largest matrix: 1,536 by 4,096 in 16 bit.
constexpr size_t kSmallestWorkingSet = size_t{12} << 20;

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return Percentile<double>(values, 50);
}

// Heads of common models: SmolLM2, Llama 3 8B and 70B.
struct Heads {
  uint32_t head_dim;
  uint32_t group;  // query heads per KV head

  std::string Name() const {
    return std::to_string(head_dim) + "x" + std::to_string(group);
  }
};
constexpr Heads kHeads[] = {{64, 3}, {128, 4}, {128, 8}};
constexpr uint32_t kColdHeadDims[] = {64, 128};
// Groups of a lane, 8,192 tokens, of whose pages one in kColdPagesPerChosen is
// attended to.
constexpr uint32_t kColdGroups = 128;
constexpr uint32_t kColdPagesPerChosen = 4;
// Columns of a matrix: SmolLM2 and Llama 3 8B.
constexpr uint32_t kColumns[] = {576, 4096};

// Pages of a lane in memory: next to each other; extents of them (as the page
// store gives them) in random order; each anywhere.
enum class PageOrder { kInOrder, kExtents, kShuffled };

struct DecodeVariant {
  PageOrder order = PageOrder::kInOrder;
  KeepMass keep = KeepMass::kNo;  // kYes: and reduced, as a policy wants it

  std::string Name() const {
    return std::string(order == PageOrder::kShuffled  ? "/shuffled"
                       : order == PageOrder::kExtents ? "/extents"
                                                      : "") +
           (keep == KeepMass::kYes ? "/masses" : "");
  }
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
      for (size_t format = 0; format < kWeightFormats; ++format) {
        for (QuantizeBits bits : {QuantizeBits::k8, QuantizeBits::k16}) {
          const MatmulShape shape = {
              .format = static_cast<WeightFormat>(format),
              .bits = bits,
              .n_columns = columns};
          if (ReadsF32(shape.format) && bits == QuantizeBits::k16) continue;
          MatrixTimesVector(shape);
          MatrixTimesMatrix(shape);
        }
      }
    }
    for (const Heads& heads : kHeads) {
      for (KvType type : {KvType::kF16, KvType::kBF16, KvType::kInt8}) {
        Decode(heads, type, {});
        Decode(heads, type, {.order = PageOrder::kExtents});
        Decode(heads, type, {.order = PageOrder::kShuffled});
        Decode(heads, type, {.keep = KeepMass::kYes});
        Prefill(heads, type, PrefillProducts::kF32);
        Prefill(heads, type, PrefillProducts::kBF16);
      }
      ScanCold(heads);
      AttendCold(heads);
    }
    for (uint32_t head_dim : kColdHeadDims) EncodeCold(head_dim);
    return std::move(rows_);
  }

 private:
  static std::string NameOfProduct(const char* what, const MatmulShape& shape) {
    return std::string(what) + "/" + NameOf(shape.format) + "/" +
           (ReadsF32(shape.format)           ? "f32"
            : shape.bits == QuantizeBits::k8 ? "x8"
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
    FillWithSmallHalves(memory_.span());
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

  // All row tiles of a matrix at the start of the working set, by all threads.
  void Multiply(const MatmulShape& shape, MatmulInputs& inputs) {
    // As the executor cuts its products.
    constexpr size_t kItemBytes = size_t{32} << 10;
    const size_t n_items =
        CountItems(shape.matrix_bytes(), kItemBytes, shape.n_row_tiles);
    const MatmulArgs all = inputs.Args(memory_.data());
    team_.ForEach(n_items, [&](size_t item) {
      const Range tiles = RangeOf(shape.n_row_tiles, item, n_items);
      MatmulArgs args = all;
      args.row_tile_begin = tiles.begin;
      args.row_tile_end = tiles.end;
      kernels_.matmul[static_cast<size_t>(shape.format)](args);
    });
  }

  // The whole working set is the matrix.
  void MatrixTimesVector(MatmulShape shape) {
    const std::string name = NameOfProduct("matvec", shape);
    if (!Wanted(name)) return;
    shape.n_tokens = 1;
    shape.n_row_tiles =
        memory_.size() / (shape.n_column_tiles() * TileBytes(shape.format));
    MatmulInputs inputs(kernels_, shape);
    MeasureBesideStream(name, shape.n_columns, shape.matrix_bytes(),
                        [&] { Multiply(shape, inputs); });
  }

  void MatrixTimesMatrix(MatmulShape shape) {
    const std::string name = NameOfProduct("matmul", shape);
    if (!Wanted(name)) return;
    shape.n_tokens = 256;
    shape.n_row_tiles = 96;  // 1,536 rows
    MatmulInputs inputs(kernels_, shape);
    const double flop =
        2.0 * shape.n_tokens * shape.n_row_tiles * kTileRows * shape.n_columns;
    MeasureArithmetic(name, shape.n_columns, flop,
                      [&] { Multiply(shape, inputs); });
  }

  // Pages of the whole working set.
  std::vector<const uint8_t*> ListPages(size_t page_bytes,
                                        PageOrder order) const {
    const uint32_t n_together =
        order == PageOrder::kShuffled ? 1 : PageAllocator::kExtentPages;
    std::vector<uint32_t> groups(memory_.size() / page_bytes / n_together);
    std::iota(groups.begin(), groups.end(), 0);
    if (order != PageOrder::kInOrder) {
      std::shuffle(groups.begin(), groups.end(), std::minstd_rand(3));
    }
    std::vector<const uint8_t*> pages;
    for (uint32_t group : groups) {
      for (uint32_t i = 0; i < n_together; ++i) {
        pages.push_back(&memory_[(group * n_together + i) * page_bytes]);
      }
    }
    return pages;
  }

  // In runs as long as the cache's, one item each.
  void Decode(const Heads& heads, KvType type, const DecodeVariant& variant) {
    const bool keeps = variant.keep == KeepMass::kYes;
    const std::string name = std::string("decode/") + NameOf(type) + "/" +
                             heads.Name() + variant.Name();
    if (!Wanted(name)) return;
    const LaneShape shape = {.type = type,
                             .head_dim = heads.head_dim,
                             .group = heads.group,
                             .n_slots = AttentionRunner::kRunSlots};
    const std::vector<const uint8_t*> pages =
        ListPages(shape.page_bytes(), variant.order);
    const size_t n_runs = pages.size() / shape.n_pages();
    std::vector<DecodeInputs> inputs;  // by member of the team
    for (uint32_t i = 0; i < team_.n_threads(); ++i) inputs.emplace_back(shape);
    const auto attend = kernels_.attend_decode[static_cast<size_t>(type)];
    const auto pages_of = [&](size_t run) {
      return &pages[run * shape.n_pages()];
    };
    const auto pass = [&] {
      team_.Run([&](TeamMember& me) {
        DecodeInputs& mine = inputs[me.index()];
        me.ForEach(n_runs, [&](size_t run) {
          AttendDecodeArgs args = mine.Args(pages_of(run), variant.keep);
          PageRun next;
          if (me.GoesOnAfter(run, n_runs)) {
            next = shape.Run(pages_of(run + 1));
            args.next = &next;
          }
          attend(args);
          if (keeps) kernels_.reduce_mass(mine.MassArgs());
        });
      });
    };
    MeasureBesideStream(name, shape.n_slots,
                        n_runs * shape.n_pages() * shape.page_bytes(), pass);
  }

  static ColdShape ColdShapeOf(const Heads& heads) {
    return {.head_dim = heads.head_dim,
            .group = heads.group,
            .n_groups = kColdGroups};
  }

  // Calls work(inputs, lane) for n_lanes lanes, by all threads.
  template <typename Work>
  void ForColdLanes(std::vector<ColdInputs>& inputs, size_t n_lanes,
                    const Work& work) {
    team_.Run([&](TeamMember& me) {
      me.ForEach(n_lanes, [&](size_t lane) { work(inputs[me.index()], lane); });
    });
  }

  std::vector<ColdInputs> InputsOfThreads(const ColdShape& shape) const {
    std::vector<ColdInputs> inputs;
    for (uint32_t i = 0; i < team_.n_threads(); ++i) inputs.emplace_back(shape);
    return inputs;
  }

  // The whole working set are digests.
  void ScanCold(const Heads& heads) {
    const std::string name = "scan_cold/" + heads.Name();
    if (!Wanted(name)) return;
    const ColdShape shape = ColdShapeOf(heads);
    const size_t n_lanes =
        memory_.size() / (kColdGroups * shape.digest_bytes());
    std::vector<const uint8_t*> digests;
    for (size_t i = 0; i < n_lanes * kColdGroups; ++i) {
      digests.push_back(&memory_[i * shape.digest_bytes()]);
    }
    std::vector<ColdInputs> inputs = InputsOfThreads(shape);
    MeasureBesideStream(
        name, kColdGroups * kColdGroupSlots,
        digests.size() * shape.digest_bytes(), [&] {
          ForColdLanes(inputs, n_lanes, [&](ColdInputs& mine, size_t lane) {
            kernels_.scan_cold(mine.ScanArgs(&digests[lane * kColdGroups]));
          });
        });
  }

  // The bodies of all lanes, pages drawn from them. The estimates that they
  // complete are in the cache.
  void AttendCold(const Heads& heads) {
    const std::string name = "attend_cold/" + heads.Name();
    if (!Wanted(name)) return;
    const ColdShape shape = ColdShapeOf(heads);
    const size_t n_lanes =
        memory_.size() / (shape.n_pages() * shape.body_bytes());
    std::minstd_rand random(4);
    std::vector<std::vector<ChosenColdPage>> chosen(n_lanes);
    size_t n_bytes = 0;
    for (size_t i = 0; i < n_lanes * shape.n_pages(); ++i) {
      if (random() % kColdPagesPerChosen != 0) continue;
      chosen[i / shape.n_pages()].push_back(
          {.body = &memory_[i * shape.body_bytes()],
           .page = static_cast<uint32_t>(i % shape.n_pages())});
      n_bytes += shape.body_bytes();
    }
    std::vector<ColdInputs> inputs = InputsOfThreads(shape);
    MeasureBesideStream(
        name, kColdGroups * kColdGroupSlots / kColdPagesPerChosen, n_bytes,
        [&] {
          ForColdLanes(inputs, n_lanes, [&](ColdInputs& mine, size_t lane) {
            kernels_.attend_cold(mine.AttendArgs(chosen[lane]));
          });
        });
  }

  // The whole working set are pages of f16; what becomes of them stays in the
  // cache.
  void EncodeCold(uint32_t head_dim) {
    const std::string name = "encode_cold/" + std::to_string(head_dim);
    if (!Wanted(name)) return;
    const ColdShape shape = {.head_dim = head_dim, .group = 1, .n_groups = 1};
    const size_t n_groups = memory_.size() / shape.f16_bytes();
    std::vector<ColdInputs> inputs = InputsOfThreads(shape);
    MeasureBesideStream(
        name, kColdGroupSlots, n_groups * shape.f16_bytes(), [&] {
          ForColdLanes(inputs, n_groups, [&](ColdInputs& mine, size_t group) {
            kernels_.encode_cold(
                mine.EncodeArgs(&memory_[group * shape.f16_bytes()]));
          });
        });
  }

  void Prefill(const Heads& heads, KvType type, PrefillProducts products) {
    const bool is_bf16 = products == PrefillProducts::kBF16;
    const auto of_f32 = kernels_.attend_prefill[static_cast<size_t>(type)];
    const auto of_bf16 =
        kernels_.attend_prefill_bf16[static_cast<size_t>(type)];
    if (is_bf16 && of_bf16 == of_f32) return;  // nothing of its own
    const auto attend = is_bf16 ? of_bf16 : of_f32;
    const std::string name = std::string("prefill/") + NameOf(type) + "/" +
                             heads.Name() + (is_bf16 ? "/bf16products" : "");
    if (!Wanted(name)) return;
    constexpr size_t kBlocks = 32;  // of n_queries query tokens
    const uint32_t n_queries = std::max(1u, kPrefillRows / heads.group);
    LaneShape shape = {
        .type = type, .head_dim = heads.head_dim, .group = heads.group};
    const std::vector<const uint8_t*> pages =
        ListPages(shape.page_bytes(), PageOrder::kInOrder);
    shape.n_slots = static_cast<uint32_t>(
        std::min<size_t>(4096, pages.size() * kPageSlots));
    std::vector<PrefillInputs> inputs;  // by member of the team
    for (uint32_t i = 0; i < team_.n_threads(); ++i) {
      inputs.emplace_back(shape, n_queries, std::vector<uint32_t>{});
    }
    const auto pass = [&] {
      team_.Run([&](TeamMember& me) {
        PrefillInputs& mine = inputs[me.index()];
        me.ForEach(kBlocks, [&](size_t) { attend(mine.Args(pages.data())); });
      });
    };
    const double visible = (shape.n_slots - (n_queries - 1) / 2.0) * n_queries;
    MeasureArithmetic(name, shape.n_slots,
                      4.0 * kBlocks * heads.head_dim * heads.group * visible,
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
