#include "kernels/kernel_inputs.h"

#include <cstring>
#include <random>
#include <utility>

#include "base/check.h"

namespace lkv {
namespace {

// As activations are: most are small, one in 20 is large.
void FillWithActivations(std::span<float> values) {
  std::minstd_rand random(2);
  for (float& value : values) {
    value = static_cast<float>(random() % 2001) / 1000 - 1;
    if (random() % 20 == 0) value *= 8;
  }
}

}  // namespace

const char* NameOf(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
    case KvType::kInt8:
      return "int8";
  }
  return "";
}

const char* NameOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kTile4:
      return "tile4";
    case WeightFormat::kTile8:
      return "tile8";
    case WeightFormat::kTile8x16:
      return "tile8x16";
    case WeightFormat::kTile16F16:
      return "tile16_f16";
    case WeightFormat::kTile16BF16:
      return "tile16_bf16";
  }
  return "";
}

void FillWithSmallHalves(std::span<uint8_t> bytes) {
  CHECK(bytes.size() % sizeof(uint16_t) == 0);
  std::minstd_rand random(1);
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint16_t)) {
    const auto half = static_cast<uint16_t>(0x3400 + random() % 0x400);
    std::memcpy(&bytes[i], &half, sizeof(half));
  }
}

MatmulInputs::MatmulInputs(const KernelTable& kernels, const MatmulShape& shape)
    : shape_(shape),
      rows_(&kernels, shape.n_tokens, shape.n_columns),
      view_(&rows_, shape.n_columns, shape.bits),
      y_(shape.n_tokens * shape.n_row_tiles * kTileRows) {
  CHECK(shape.n_columns % kTileColumns == 0);
  FillWithActivations({view_.row(0), shape.n_tokens * shape.n_columns});
  for (size_t token = 0; token < shape.n_tokens; ++token) view_.Finish(token);
}

MatmulArgs MatmulInputs::Args(const uint8_t* tiles) {
  return {.tiles = tiles,
          .n_column_tiles = shape_.n_column_tiles(),
          .row_tile_begin = 0,
          .row_tile_end = shape_.n_row_tiles,
          .n_tokens = shape_.n_tokens,
          .quantized = view_.quantized(),
          .x = view_.f32(),
          .x_stride = view_.stride(),
          .y = y_.data(),
          .y_stride = shape_.n_row_tiles * kTileRows,
          .next = nullptr};
}

std::vector<const uint8_t*> LaneShape::ListPages(const uint8_t* first) const {
  std::vector<const uint8_t*> pages;
  for (uint32_t i = n_pages(); i-- > 0;) {
    pages.push_back(first + i * page_bytes());
  }
  return pages;
}

PageRun LaneShape::Run(const uint8_t* const* pages) const {
  return {.pages = pages, .n_slots = n_slots, .head_dim = head_dim};
}

DecodeInputs::DecodeInputs(const LaneShape& shape)
    : shape_(shape),
      p_stride_(size_t{shape.n_pages()} * kPageSlots),
      p_max_stride_(CeilDiv(shape.n_slots, kAttendChunkSlots)),
      q_(size_t{shape.group} * shape.head_dim),
      m_(shape.group),
      l_(shape.group),
      o_(q_.size()),
      p_(shape.group * p_stride_),
      p_max_(shape.group * p_max_stride_),
      mass_max_(p_stride_),
      mass_mean_(p_stride_) {
  FillWithActivations(q_.span());
}

AttendDecodeArgs DecodeInputs::Args(const uint8_t* const* pages,
                                    KeepMass keep) {
  const bool keeps = keep == KeepMass::kYes;
  return {.run = shape_.Run(pages),
          .group = shape_.group,
          .q = q_.data(),
          .m = m_.data(),
          .l = l_.data(),
          .o = o_.data(),
          .p = keeps ? p_.data() : nullptr,
          .p_stride = p_stride_,
          .p_max = keeps ? p_max_.data() : nullptr,
          .p_max_stride = p_max_stride_};
}

ReduceMassArgs DecodeInputs::MassArgs() {
  return {.p = p_.data(),
          .p_stride = p_stride_,
          .p_max = p_max_.data(),
          .p_max_stride = p_max_stride_,
          .m = m_.data(),
          .l = l_.data(),
          .group = shape_.group,
          .n_slots = shape_.n_slots,
          .mass_max = mass_max_.data(),
          .mass_mean = mass_mean_.data()};
}

ColdInputs::ColdInputs(const ColdShape& shape)
    : shape_(shape),
      n_slots_(size_t{shape.n_pages()} * kPageSlots),
      q_(size_t{shape.group} * shape.head_dim),
      logits_(shape.group * n_slots_),
      units_(size_t{shape.n_groups} * shape.group),
      offsets_(units_.size()),
      m_(shape.group),
      l_(shape.group),
      o_(q_.size()),
      p_(shape.group * n_slots_),
      p_max_(shape.group * CeilDiv(n_slots_, kAttendChunkSlots)),
      folded_q_(units_.size() * shape.head_dim),
      digest_(shape.digest_bytes()),
      bodies_(kColdGroupPages * shape.body_bytes()) {
  FillWithActivations(q_.span());
}

ScanColdArgs ColdInputs::ScanArgs(const uint8_t* const* digests) {
  return {.digests = digests,
          .first_group = 0,
          .n_groups = shape_.n_groups,
          .q = q_.data(),
          .to = Estimates()};
}

ColdEstimates ColdInputs::Estimates() {
  return {.group = shape_.group,
          .head_dim = shape_.head_dim,
          .logits = logits_.data(),
          .logit_stride = n_slots_,
          .q = folded_q_.data(),
          .units = units_.data(),
          .offsets = offsets_.data()};
}

AttendColdArgs ColdInputs::AttendArgs(std::span<const ChosenColdPage> pages) {
  CHECK(pages.size() <= shape_.n_pages());
  return {.pages = pages.data(),
          .n_pages = static_cast<uint32_t>(pages.size()),
          .of = Estimates(),
          .m = m_.data(),
          .l = l_.data(),
          .o = o_.data(),
          .p = p_.data(),
          .p_stride = n_slots_,
          .p_max = p_max_.data(),
          .p_max_stride = CeilDiv(n_slots_, kAttendChunkSlots)};
}

EncodeColdArgs ColdInputs::EncodeArgs(const uint8_t* pages) {
  EncodeColdArgs args = {};
  args.head_dim = shape_.head_dim;
  args.digest = digest_.data();
  for (uint32_t i = 0; i < kColdGroupPages; ++i) {
    args.pages[i] = pages + i * KvPageBytes(KvType::kF16, shape_.head_dim);
    args.bodies[i] = bodies_.data() + i * shape_.body_bytes();
  }
  return args;
}

PrefillInputs::PrefillInputs(const LaneShape& shape, uint32_t n_queries,
                             std::vector<uint32_t> observed)
    : shape_(shape),
      n_queries_(n_queries),
      observed_(std::move(observed)),
      p_stride_(size_t{shape.n_pages()} * kPageSlots),
      p_max_stride_(CeilDiv(shape.n_slots, kAttendChunkSlots)),
      q_(size_t{n_queries} * shape.group * shape.head_dim),
      out_(q_.size()),
      m_(size_t{n_queries} * shape.group),
      l_(m_.size()),
      p_(observed_.size() * shape.group * p_stride_),
      p_max_(observed_.size() * shape.group * p_max_stride_),
      scratch_(AttendPrefillScratch(shape.head_dim)) {
  CHECK(n_queries <= shape.n_slots);
  FillWithActivations(q_.span());
}

AttendPrefillArgs PrefillInputs::Args(const uint8_t* const* pages) {
  const size_t stride = size_t{shape_.group} * shape_.head_dim;
  return {.run = shape_.Run(pages),
          .group = shape_.group,
          .n_queries = n_queries_,
          .n_visible = shape_.n_slots - n_queries_ + 1,
          .q = q_.data(),
          .q_stride = stride,
          .out = out_.data(),
          .out_stride = stride,
          .m = m_.data(),
          .l = l_.data(),
          .observed = observed_.data(),
          .n_observed = static_cast<uint32_t>(observed_.size()),
          .p = p_.data(),
          .p_stride = p_stride_,
          .p_max = p_max_.data(),
          .p_max_stride = p_max_stride_,
          .scratch = scratch_.data()};
}

}  // namespace lkv
