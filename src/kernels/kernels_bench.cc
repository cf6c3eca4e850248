// How fast the kernels are on this machine, on one thread.
//
//   kernels_bench --benchmark_filter=avx512
//
// Kernels that memory bounds are shown as GB/s of the bytes they must read and
// as `of_stream`, the median ratio to a streaming read of the same bytes that
// alternates with them. Kernels that arithmetic bounds are shown as GFLOP/s.
// All times are CPU time of the thread, so that a neighbour who takes the core
// does not count; one who takes the memory does, for both sides of a ratio.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// Far more than any cache of today's machines holds of it.
constexpr size_t kWorkingSetBytes = size_t{256} << 20;

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// 256 MiB that all memory-bound benchmarks read, filled with small random
// halves (0.25 to 0.5).
const AlignedBuffer<uint8_t>& WorkingSet() {
  static const AlignedBuffer<uint8_t> memory = [] {
    AlignedBuffer<uint8_t> bytes(kWorkingSetBytes);
    std::minstd_rand random(1);
    for (size_t i = 0; i < bytes.size(); i += 2) {
      uint16_t half = static_cast<uint16_t>(0x3400 + random() % 0x400);
      std::memcpy(&bytes[i], &half, sizeof(half));
    }
    return bytes;
  }();
  return memory;
}

void StreamRead(size_t n_bytes) {
  const uint64_t* words =
      reinterpret_cast<const uint64_t*>(WorkingSet().data());
  uint64_t sums[16] = {};
  for (size_t i = 0; i + 16 <= n_bytes / sizeof(uint64_t); i += 16) {
    for (size_t j = 0; j < 16; ++j) sums[j] += words[i + j];
  }
  for (uint64_t& sum : sums) benchmark::DoNotOptimize(sum);
}

// Runs a kernel that reads the first n_bytes of the working set in turn with a
// streaming read of them.
template <typename Fn>
void RunBesideStream(benchmark::State& state, size_t n_bytes, Fn&& kernel) {
  std::vector<double> ratios;
  for (auto _ : state) {
    double start = ThreadSeconds();
    StreamRead(n_bytes);
    double middle = ThreadSeconds();
    kernel();
    double end = ThreadSeconds();
    state.SetIterationTime(end - middle);
    ratios.push_back((middle - start) / (end - middle));
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["of_stream"] = ratios[ratios.size() / 2];
  state.SetBytesProcessed(
      static_cast<int64_t>(static_cast<size_t>(state.iterations()) * n_bytes));
}

// Activations of n_tokens rows, quantised to `bits` bits.
struct Rows {
  std::vector<float> x;
  std::vector<int8_t> high, low;
  std::vector<float> scale, sums;

  Rows(const KernelTable& set, size_t n_tokens, size_t n_columns, int bits)
      : x(n_tokens * n_columns),
        high(x.size()),
        low(bits == 16 ? x.size() : 0),
        scale(x.size() / 32),
        sums(x.size() / 16) {
    std::minstd_rand random(2);
    for (float& value : x) value = static_cast<float>(random() % 2001) - 1000;
    set.quantize_row(x.data(), x.size(), high.data(),
                     low.empty() ? nullptr : low.data(), scale.data(),
                     sums.data());
  }
};

MatmulArgs ArgsOf(const Rows& rows, const void* tiles, size_t n_row_tiles,
                  size_t n_column_tiles, size_t n_tokens,
                  std::vector<float>* y) {
  size_t stride = n_column_tiles * kTileColumns;
  y->resize(n_tokens * n_row_tiles * kTileRows);
  return {.tiles = tiles,
          .n_column_tiles = n_column_tiles,
          .row_tile_begin = 0,
          .row_tile_end = n_row_tiles,
          .n_tokens = n_tokens,
          .quantized = {.high = rows.high.data(),
                        .low = rows.low.empty() ? nullptr : rows.low.data(),
                        .scale = rows.scale.data(),
                        .sums = rows.sums.data(),
                        .stride = stride},
          .x = rows.x.data(),
          .x_stride = stride,
          .y = y->data(),
          .y_stride = n_row_tiles * kTileRows};
}

constexpr size_t kColumnTiles = 18;  // 576 columns

void MatrixTimesVector(benchmark::State& state, const KernelTable& set,
                       WeightFormat format, int bits) {
  size_t row_bytes = kColumnTiles * TileBytes(format);
  size_t n_row_tiles = kWorkingSetBytes / row_bytes;
  Rows rows(set, 1, kColumnTiles * kTileColumns, bits);
  std::vector<float> y;
  MatmulArgs args =
      ArgsOf(rows, WorkingSet().data(), n_row_tiles, kColumnTiles, 1, &y);
  RunBesideStream(state, n_row_tiles * row_bytes,
                  [&] { set.matmul[static_cast<size_t>(format)](args); });
}

// FLOP/s from thread CPU time.
template <typename Fn>
void RunArithmetic(benchmark::State& state, double flop, Fn&& kernel) {
  for (auto _ : state) {
    double start = ThreadSeconds();
    kernel();
    state.SetIterationTime(ThreadSeconds() - start);
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
}

void MatrixTimesMatrix(benchmark::State& state, const KernelTable& set,
                       WeightFormat format, int bits) {
  constexpr size_t kTokens = 256;
  constexpr size_t kRowTiles = 96;  // 1536 rows
  Rows rows(set, kTokens, kColumnTiles * kTileColumns, bits);
  std::vector<float> y;
  MatmulArgs args =
      ArgsOf(rows, WorkingSet().data(), kRowTiles, kColumnTiles, kTokens, &y);
  double flop =
      2.0 * kTokens * kRowTiles * kTileRows * kColumnTiles * kTileColumns;
  RunArithmetic(state, flop,
                [&] { set.matmul[static_cast<size_t>(format)](args); });
}

constexpr uint32_t kGroup = 3;

// The page list of each of the lanes that fill the working set.
std::vector<uint32_t> PageList(size_t page_bytes, bool shuffled) {
  std::vector<uint32_t> pages(kWorkingSetBytes / page_bytes);
  std::iota(pages.begin(), pages.end(), 0);
  if (shuffled) {
    std::shuffle(pages.begin(), pages.end(), std::minstd_rand(3));
  }
  return pages;
}

struct DecodeCase {
  uint32_t head_dim;
  size_t type;
  bool shuffled;
  bool keep_p;
};

void Decode(benchmark::State& state, const KernelTable& set, DecodeCase c) {
  constexpr uint32_t kSlots = 8192;
  size_t page_bytes = size_t{4} * kPageSlots * c.head_dim;
  std::vector<uint32_t> pages = PageList(page_bytes, c.shuffled);
  size_t lane_pages = kSlots / kPageSlots;
  size_t n_lanes = pages.size() / lane_pages;
  std::vector<float> q(kGroup * c.head_dim, 0.01f);
  std::vector<float> m(kGroup), l(kGroup), o(q.size());
  std::vector<float> p(kGroup * kSlots), p_max(kGroup * kSlots / 256);
  AttendDecodeArgs args = {.run = {.pool = WorkingSet().data(),
                                   .page_bytes = page_bytes,
                                   .pages = nullptr,
                                   .n_slots = kSlots,
                                   .head_dim = c.head_dim},
                           .group = kGroup,
                           .q = q.data(),
                           .m = m.data(),
                           .l = l.data(),
                           .o = o.data(),
                           .p = c.keep_p ? p.data() : nullptr,
                           .p_stride = kSlots,
                           .p_max = c.keep_p ? p_max.data() : nullptr,
                           .p_max_stride = kSlots / kAttendChunkSlots};
  RunBesideStream(state, n_lanes * lane_pages * page_bytes, [&] {
    for (size_t lane = 0; lane < n_lanes; ++lane) {
      args.run.pages = &pages[lane * lane_pages];
      set.attend_decode[c.type](args);
    }
  });
}

void Prefill(benchmark::State& state, const KernelTable& set, size_t type,
             uint32_t head_dim, uint32_t group) {
  constexpr uint32_t kQueries = 256;
  constexpr uint32_t kSlots = 4096;
  size_t page_bytes = size_t{4} * kPageSlots * head_dim;
  std::vector<uint32_t> pages = PageList(page_bytes, false);
  std::vector<float> q(size_t{kQueries} * group * head_dim, 0.01f);
  std::vector<float> out(q.size());
  std::vector<float> m(kQueries * group), l(kQueries * group);
  AlignedBuffer<float> scratch(AttendPrefillScratch(head_dim));
  AttendPrefillArgs args = {.run = {.pool = WorkingSet().data(),
                                    .page_bytes = page_bytes,
                                    .pages = pages.data(),
                                    .n_slots = kSlots,
                                    .head_dim = head_dim},
                            .group = group,
                            .n_queries = kQueries,
                            .n_visible = kSlots - kQueries + 1,
                            .q = q.data(),
                            .q_stride = size_t{group} * head_dim,
                            .out = out.data(),
                            .out_stride = size_t{group} * head_dim,
                            .m = m.data(),
                            .l = l.data(),
                            .observed = nullptr,
                            .n_observed = 0,
                            .p = nullptr,
                            .p_stride = 0,
                            .p_max = nullptr,
                            .p_max_stride = 0,
                            .scratch = scratch.data()};
  double visible = (kSlots - (kQueries - 1) / 2.0) * kQueries;
  RunArithmetic(state, 4.0 * head_dim * group * visible,
                [&] { set.attend_prefill[type](args); });
}

template <typename Fn>
void Register(const std::string& name, Fn fn) {
  benchmark::RegisterBenchmark(name.c_str(), fn)->UseManualTime();
}

void RegisterSet(const KernelTable& set) {
  struct {
    const char* name;
    WeightFormat format;
  } formats[] = {{"tile4", WeightFormat::kTile4},
                 {"tile8", WeightFormat::kTile8},
                 {"tile8x16", WeightFormat::kTile8x16},
                 {"tile16", WeightFormat::kTile16F16}};
  for (auto [name, format] : formats) {
    for (int bits : {8, 16}) {
      bool is_f32 = format == WeightFormat::kTile16F16;
      if (is_f32 && bits == 16) continue;
      std::string what = std::string(name) + "/" +
                         (is_f32      ? "f32"
                          : bits == 8 ? "x8"
                                      : "x16");
      auto f = format;
      Register(std::string(set.name) + "/matvec/" + what,
               [&set, f, bits](benchmark::State& state) {
                 MatrixTimesVector(state, set, f, bits);
               });
      Register(std::string(set.name) + "/matmul/" + what,
               [&set, f, bits](benchmark::State& state) {
                 MatrixTimesMatrix(state, set, f, bits);
               });
    }
  }
  struct {
    const char* name;
    DecodeCase c;
  } decodes[] = {{"f16/64", {64, 0, false, false}},
                 {"f16/64/p", {64, 0, false, true}},
                 {"f16/64/shuffled", {64, 0, true, false}},
                 {"f16/128", {128, 0, false, false}},
                 {"bf16/64", {64, 1, false, false}}};
  for (auto [name, decode] : decodes) {
    auto c = decode;
    Register(std::string(set.name) + "/decode/" + name,
             [&set, c](benchmark::State& state) { Decode(state, set, c); });
  }
  for (uint32_t head_dim : {64, 128}) {
    Register(std::string(set.name) + "/prefill/f16/" + std::to_string(head_dim),
             [&set, head_dim](benchmark::State& state) {
               Prefill(state, set, 0, head_dim, 3);
             });
  }
}

}  // namespace
}  // namespace lkv

int main(int argc, char** argv) {
  for (const char* const* name = lkv::AvailableKernels(); *name != nullptr;
       ++name) {
    lkv::RegisterSet(*lkv::SelectKernels(*name));
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
