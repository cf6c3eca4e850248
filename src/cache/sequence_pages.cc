#include "cache/sequence_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace lkv {

Result<SequencePages> SequencePages::Create(const KvShape& shape,
                                            const Options& options) {
  const uint32_t n_exact = options.n_exact_pages * shape.n_lanes();
  // A short text has no other pages than exact ones, but a pool has some.
  const auto rest = [&](uint32_t n_pages) {
    return std::max(n_pages, n_exact + 1) - n_exact;
  };
  Result<PagePool> pool =
      PagePool::Create({.page_bytes = shape.page_bytes(options.type),
                        .capacity_pages = rest(options.capacity_pages),
                        .capacity_pages_max = rest(options.capacity_pages_max),
                        .n_owners = shape.n_lanes()});
  if (!pool.ok()) return pool.status();
  std::optional<PagePool> exact_pool;
  if (n_exact > 0) {
    Result<PagePool> created =
        PagePool::Create({.page_bytes = shape.page_bytes(KvType::kF16),
                          .capacity_pages = n_exact});
    if (!created.ok()) return created.status();
    exact_pool.emplace(*std::move(created));
  }
  return SequencePages(shape, options, *std::move(pool), std::move(exact_pool));
}

SequencePages::SequencePages(const KvShape& shape, const Options& options,
                             PagePool pool, std::optional<PagePool> exact_pool)
    : type_(options.type),
      head_dim_(shape.head_dim),
      n_exact_pages_(options.n_exact_pages),
      capacity_pages_(options.capacity_pages),
      pool_(std::move(pool)),
      exact_pool_(std::move(exact_pool)) {
  CHECK(n_exact_pages_ == 0 || type_ == KvType::kInt8);
  if (n_exact_pages_ > 0) {
    key_offsets_.resize(size_t{shape.n_lanes()} * shape.head_dim);
  }
  tables_.reserve(shape.n_lanes());
  for (uint32_t lane = 0; lane < shape.n_lanes(); ++lane) {
    tables_.emplace_back(options.pages_per_lane);
  }
}

void SequencePages::Grow(uint32_t capacity_pages) {
  const uint32_t n_exact = n_exact_pages_ * n_lanes();
  capacity_pages_ = capacity_pages;
  pool_.Grow(std::max(capacity_pages, n_exact + 1) - n_exact);
}

uint64_t SequencePages::payload_bytes() const {
  uint64_t bytes = uint64_t{pool_.n_used()} * pool_.page_bytes();
  if (exact_pool_) {
    bytes += uint64_t{exact_pool_->n_used()} * exact_pool_->page_bytes();
  }
  return bytes;
}

PageRun SequencePages::Run(uint32_t lane, uint32_t first_slot,
                           uint32_t n_slots) const {
  const uint32_t first_page = first_slot / kPageTokens;
  PageRun run{.pool = pool_.base(),
              .page_bytes = pool_.page_bytes(),
              .pages = tables_[lane].page_ids() + first_page,
              .n_slots = n_slots,
              .head_dim = head_dim_};
  if (first_page < n_exact_pages_) {
    run.n_exact_pages = std::min(n_exact_pages_ - first_page, PagesOf(n_slots));
    run.exact_pool = exact_pool_->base();
    run.exact_page_bytes = exact_pool_->page_bytes();
  }
  run.key_offset = KeyOffset(lane);
  return run;
}

void SequencePages::Write(const KernelTable& kernels, uint32_t lane,
                          uint32_t slot, const float* k, const float* v) {
  const KvType type = TypeOfSlot(slot);
  const float* offset = KeyOffset(lane);
  float shifted[kMaxHeadDim];
  if (type == KvType::kInt8 && offset != nullptr) {
    for (uint32_t d = 0; d < head_dim_; ++d) shifted[d] = k[d] - offset[d];
    k = shifted;
  }
  kernels.write_slot[static_cast<size_t>(type)](
      PageOfSlot(lane, slot), slot % kPageTokens, head_dim_, k, v);
  if (slot + 1 == kPageTokens && offset != nullptr) SetKeyOffset(lane);
}

void SequencePages::SetKeyOffset(uint32_t lane) {
  const uint16_t* keys = reinterpret_cast<const uint16_t*>(PageOfSlot(lane, 0));
  float* offset = &key_offsets_[size_t{lane} * head_dim_];
  for (uint32_t d = 0; d < head_dim_; ++d) {
    float sum = 0;
    for (uint32_t slot = kFirstOffsetSlot; slot < kPageTokens; ++slot) {
      sum += F16ToF32(keys[size_t{d} * kPageTokens + slot]);
    }
    offset[d] = sum / (kPageTokens - kFirstOffsetSlot);
  }
}

void SequencePages::Extend(uint32_t n_tokens, uint32_t n_new) {
  const uint32_t first_page = PagesOf(n_tokens);
  const uint32_t end_page = PagesOf(n_tokens + n_new);
  for (uint32_t lane = 0; lane < n_lanes(); ++lane) {
    for (uint32_t page = first_page; page < end_page; ++page) {
      const PageId id =
          page < n_exact_pages_ ? exact_pool_->Take() : pool_.TakeFor(lane);
      tables_[lane].OpenPage(id, page * kPageTokens);
    }
    tables_[lane].AddTokens(n_new);
  }
}

void SequencePages::Remove(uint32_t lane, uint32_t index) {
  CHECK(index >= n_exact_pages_);
  pool_.Give(tables_[lane].Remove(index));
}

void SequencePages::Compact() {
  // All pages could lie below end_page, with an extent per lane to spare, which
  // keeps the pages of a lane together; one slab more is not worth a move.
  const uint32_t n_slabs =
      pool_.SlabsOf(pool_.n_used() + n_lanes() * PageAllocator::kExtentPages);
  if (pool_.n_slabs_in_use() <= n_slabs + 1) return;
  const uint32_t end_page = pool_.PagesIn(n_slabs);
  uint32_t n_moves = 0;
  for (uint32_t i = 0; i < CeilDiv(n_lanes(), kPageTokens); ++i) {
    n_moves += CompactLane(next_lane_, end_page, kMaxMovesPerCompact - n_moves);
    // A lane with more to move goes on in the next call.
    if (n_moves == kMaxMovesPerCompact) return;
    next_lane_ = (next_lane_ + 1) % n_lanes();
  }
}

// Moves pages at or above end_page below it. Returns how many.
uint32_t SequencePages::CompactLane(uint32_t lane, uint32_t end_page,
                                    uint32_t max_moves) {
  PageTable& table = tables_[lane];
  uint32_t n_moves = 0;
  for (uint32_t i = n_exact_pages_; i < table.n_pages() && n_moves < max_moves;
       ++i) {
    const PageId from = table.page_id(i);
    if (static_cast<uint32_t>(from) < end_page) continue;
    const PageId to = pool_.TakeFor(lane, end_page);
    std::memcpy(pool_.PageData(to), pool_.PageData(from), pool_.page_bytes());
    table.Relocate(i, to);
    pool_.Give(from);
    ++n_moves;
  }
  return n_moves;
}

}  // namespace lkv
