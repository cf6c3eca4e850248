// Runs every kernel of every set on one small fixed input, to count its
// instructions: unlike a time, the count is the same on a busy machine. The
// shapes are those of a small model, with a remainder where kernels treat one
// apart.
#include <functional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_inputs.h"
#include "kernels/kernel_table.h"
#include "kernels/testing_sets.h"
#include "testing/counted_call.h"

namespace lkv {
namespace {

void Count(const std::string& name, const std::function<void()>& kernel) {
  kernel();
  CountInstructions(name, kernel);
}

AlignedBuffer<uint8_t> SmallHalves(size_t n_bytes) {
  AlignedBuffer<uint8_t> bytes(n_bytes);
  FillWithSmallHalves(bytes.span());
  return bytes;
}

// Names end with the bits of an activation and the number of tokens.
void CountMatmul(const KernelTable& set, const MatmulShape& shape) {
  const AlignedBuffer<uint8_t> tiles = SmallHalves(shape.matrix_bytes());
  MatmulInputs inputs(set, shape);
  const MatmulArgs args = inputs.Args(tiles.data());
  const char* const bits = ReadsF32(shape.format)           ? "/x32/"
                           : shape.bits == QuantizeBits::k8 ? "/x8/"
                                                            : "/x16/";
  Count(std::string(set.name) + "/matmul/" + NameOf(shape.format) + bits +
            std::to_string(shape.n_tokens),
        [&] { set.matmul[static_cast<size_t>(shape.format)](args); });
}

void CountMatmuls(const KernelTable& set) {
  for (size_t format = 0; format < kWeightFormats; ++format) {
    for (QuantizeBits bits : {QuantizeBits::k8, QuantizeBits::k16}) {
      MatmulShape shape = {.format = static_cast<WeightFormat>(format),
                           .bits = bits,
                           .n_row_tiles = 4,
                           .n_columns = 576};
      if (ReadsF32(shape.format) && bits == QuantizeBits::k8) continue;
      for (size_t n_tokens : {1, 7}) {
        shape.n_tokens = n_tokens;
        CountMatmul(set, shape);
      }
    }
  }
}

constexpr uint32_t kGroup = 3;
// Two and a half chunks of slots: a whole one, then one with a short page.
constexpr uint32_t kSlots = 2 * kAttendChunkSlots + 120;

LaneShape LaneOf(KvType type, uint32_t head_dim) {
  return {
      .type = type, .head_dim = head_dim, .group = kGroup, .n_slots = kSlots};
}

// The pages of one lane, last one first.
struct Lane {
  explicit Lane(const LaneShape& shape)
      : pool(SmallHalves(shape.n_pages() * shape.page_bytes())),
        pages(shape.ListPages(pool.data())) {}

  AlignedBuffer<uint8_t> pool;
  std::vector<const uint8_t*> pages;
};

// Names end with the type of the page and head_dim; `kept`: with
// probabilities kept.
void CountDecode(const KernelTable& set, const LaneShape& shape) {
  const Lane lane(shape);
  DecodeInputs inputs(shape);
  for (KeepMass keep : {KeepMass::kNo, KeepMass::kYes}) {
    const AttendDecodeArgs args = inputs.Args(lane.pages.data(), keep);
    Count(std::string(set.name) + "/attend_decode/" + NameOf(shape.type) + "/" +
              std::to_string(shape.head_dim) +
              (keep == KeepMass::kYes ? "/kept" : ""),
          [&] { set.attend_decode[static_cast<size_t>(shape.type)](args); });
  }
}

void CountPrefill(const KernelTable& set, const LaneShape& shape) {
  const Lane lane(shape);
  PrefillInputs inputs(shape, 20, {7, 15, 19});
  const AttendPrefillArgs args = inputs.Args(lane.pages.data());
  Count(std::string(set.name) + "/attend_prefill/" + NameOf(shape.type) + "/" +
            std::to_string(shape.head_dim),
        [&] { set.attend_prefill[static_cast<size_t>(shape.type)](args); });
}

void CountSlots(const KernelTable& set, KvType type) {
  constexpr uint32_t kHeadDim = 64;
  Lane lane(LaneOf(type, kHeadDim));
  const std::vector<float> row = Random(5).Activations(kHeadDim);
  float norms[kPageSlots], distances[kPageSlots];
  const std::string end = std::string("/") + NameOf(type);
  const auto index = static_cast<size_t>(type);
  Count(set.name + ("/write_slot" + end), [&] {
    set.write_slot[index](lane.pool.data(), 5, kHeadDim, row.data(),
                          row.data());
  });
  Count(set.name + ("/value_stats" + end), [&] {
    set.value_stats[index](lane.pool.data(), 1, kPageSlots, kHeadDim,
                           row.data(), norms, distances);
  });
}

// Names end with head_dim. Every third page of six groups is attended to: two
// of a group at times, one at others.
void CountCold(const KernelTable& set, uint32_t head_dim) {
  const ColdShape shape = {
      .head_dim = head_dim, .group = kGroup, .n_groups = 6};
  const AlignedBuffer<uint8_t> exact = SmallHalves(shape.f16_bytes());
  const AlignedBuffer<uint8_t> body = SmallHalves(shape.body_bytes());
  ColdInputs inputs(shape);
  // A copy for each group: pages of one group know each other by its address.
  std::vector<AlignedBuffer<uint8_t>> digests;
  std::vector<const uint8_t*> addresses;
  for (uint32_t i = 0; i < shape.n_groups; ++i) {
    digests.push_back(SmallHalves(shape.digest_bytes()));
    addresses.push_back(digests.back().data());
  }
  std::vector<ChosenColdPage> pages;
  for (uint32_t i = 0; i < shape.n_pages(); i += 3) {
    pages.push_back({.body = body.data(), .page = i});
  }
  const std::string end = std::string("/") + std::to_string(head_dim);
  const EncodeColdArgs encode = inputs.EncodeArgs(exact.data());
  Count(set.name + ("/encode_cold" + end), [&] { set.encode_cold(encode); });
  const ScanColdArgs scan = inputs.ScanArgs(addresses.data());
  Count(set.name + ("/scan_cold" + end), [&] { set.scan_cold(scan); });
  const AttendColdArgs attend = inputs.AttendArgs(pages);
  Count(set.name + ("/attend_cold" + end), [&] { set.attend_cold(attend); });
}

void CountReduceMass(const KernelTable& set) {
  const LaneShape shape = LaneOf(KvType::kF16, 64);
  const Lane lane(shape);
  DecodeInputs inputs(shape);
  set.attend_decode[static_cast<size_t>(shape.type)](
      inputs.Args(lane.pages.data(), KeepMass::kYes));
  const ReduceMassArgs args = inputs.MassArgs();
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
  // Two inputs and 16 hidden units, as the history network has.
  Count(start + "two_layer", [&] {
    set.two_layer({.x = a.data(),
                   .x_stride = kColumns / 2,
                   .n_rows = kColumns / 2,
                   .n_inputs = 2,
                   .n_hidden = 16,
                   .inner = b.data(),
                   .hidden_bias = b.data(),
                   .outer = b.data(),
                   .direct = b.data(),
                   .bias = 0,
                   .y = out.data()});
  });
}

void CountSet(const KernelTable& set) {
  CountMatmuls(set);
  for (KvType type : {KvType::kF16, KvType::kBF16, KvType::kInt8}) {
    CountDecode(set, LaneOf(type, 64));
    CountDecode(set, LaneOf(type, 128));
    CountPrefill(set, LaneOf(type, 64));
    CountSlots(set, type);
  }
  for (uint32_t head_dim : {64, 80}) CountCold(set, head_dim);
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
