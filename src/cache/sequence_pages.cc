#include "cache/sequence_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace lkv {
namespace {

// Whether a pool keeps slabs that n_slabs could do without: one is not worth a
// move.
bool IsLoose(const PagePool& pool, uint32_t n_slabs) {
  return pool.n_slabs_in_use() > n_slabs + 1;
}

bool IsLoose(const PagePool& pool) {
  return IsLoose(pool, pool.SlabsOf(pool.n_used()));
}

}  // namespace

Result<SequencePages::Pools> SequencePages::CreatePools(
    const KvShape& shape, const Options& options) {
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
  Pools pools{.rest = std::make_shared<PagePool>(*std::move(pool))};
  if (n_exact > 0) {
    Result<PagePool> exact =
        PagePool::Create({.page_bytes = shape.page_bytes(KvType::kF16),
                          .capacity_pages = n_exact});
    if (!exact.ok()) return exact.status();
    pools.exact = std::make_shared<PagePool>(*std::move(exact));
  }
  return pools;
}

Result<SequencePages> SequencePages::Create(const KvShape& shape,
                                            const Options& options) {
  CHECK(options.n_exact_pages == 0 || options.type == KvType::kInt8);
  Result<Pools> pools = CreatePools(shape, options);
  if (!pools.ok()) return pools.status();
  return SequencePages(shape, options, *std::move(pools));
}

SequencePages::SequencePages(const KvShape& shape, const Options& options,
                             Pools pools)
    : shape_(shape), options_(options), pools_(std::move(pools)) {
  if (options.n_exact_pages > 0) {
    key_offsets_.resize(size_t{shape.n_lanes()} * shape.head_dim);
  }
  tables_.reserve(shape.n_lanes());
  for (uint32_t lane = 0; lane < shape.n_lanes(); ++lane) {
    tables_.emplace_back(options.pages_per_lane);
  }
}

Result<SequencePages> SequencePages::Fork() {
  Result<Pools> mine = CreatePools(shape_, options_);
  if (!mine.ok()) return mine.status();
  Result<Pools> theirs = CreatePools(shape_, options_);
  if (!theirs.ok()) return theirs.status();
  std::vector<std::shared_ptr<PagePool>> shared = shared_pools_;
  shared.push_back(pools_.rest);
  if (pools_.exact != nullptr) shared.push_back(pools_.exact);
  std::erase_if(shared, [&](const std::shared_ptr<PagePool>& pool) {
    return !HasPagesIn(*pool);
  });
  std::vector<std::shared_ptr<PagePool>> shared_of_fork = shared;
  SequencePages fork(*this);

  // Nothing fails from here on.
  for (const PageTable& table : tables_) {
    for (uint32_t i = 0; i < table.n_pages(); ++i) {
      const uint8_t* const page = table.pages()[i];
      PoolOf(page).Share(page);
    }
  }
  shared_pools_ = std::move(shared);
  pools_ = *std::move(mine);
  fork.shared_pools_ = std::move(shared_of_fork);
  fork.pools_ = *std::move(theirs);
  return fork;
}

SequencePages::~SequencePages() {
  // What lies in its own pools goes with them.
  if (shared_pools_.empty()) return;
  for (const PageTable& table : tables_) {
    for (uint32_t i = 0; i < table.n_pages(); ++i) {
      const uint8_t* const page = table.pages()[i];
      PoolOf(page).Give(page);
    }
  }
}

bool SequencePages::HasPagesIn(const PagePool& pool) const {
  return std::any_of(
      tables_.begin(), tables_.end(), [&](const PageTable& table) {
        return std::any_of(
            table.pages(), table.pages() + table.n_pages(),
            [&](const uint8_t* page) { return pool.Contains(page); });
      });
}

PagePool& SequencePages::PoolOf(const uint8_t* page) const {
  if (pools_.rest->Contains(page)) return *pools_.rest;
  if (pools_.exact != nullptr && pools_.exact->Contains(page)) {
    return *pools_.exact;
  }
  const auto pool = std::find_if(
      shared_pools_.begin(), shared_pools_.end(),
      [&](const std::shared_ptr<PagePool>& p) { return p->Contains(page); });
  CHECK(pool != shared_pools_.end());
  return **pool;
}

void SequencePages::Grow(uint32_t capacity_pages) {
  const uint32_t n_exact = options_.n_exact_pages * n_lanes();
  options_.capacity_pages = capacity_pages;
  pools_.rest->Grow(std::max(capacity_pages, n_exact + 1) - n_exact);
}

uint64_t SequencePages::payload_bytes() const {
  // Exact pages never leave, so all lanes have the same number of them.
  const uint32_t n_exact =
      n_lanes() * std::min(options_.n_exact_pages, tables_[0].n_pages());
  return uint64_t{n_exact} * shape_.page_bytes(KvType::kF16) +
         uint64_t{n_used_ - n_exact} * shape_.page_bytes(options_.type);
}

uint64_t SequencePages::shared_bytes() const {
  if (shared_pools_.empty()) return 0;
  uint64_t bytes = 0;
  for (const PageTable& table : tables_) {
    for (uint32_t i = 0; i < table.n_pages(); ++i) {
      const uint8_t* const page = table.pages()[i];
      const PagePool& pool = PoolOf(page);
      if (pool.IsShared(page)) bytes += pool.page_bytes();
    }
  }
  return bytes;
}

PageRun SequencePages::Run(uint32_t lane, uint32_t first_slot,
                           uint32_t n_slots) const {
  const uint32_t first_page = first_slot / kPageTokens;
  PageRun run{.pages = tables_[lane].pages() + first_page,
              .n_slots = n_slots,
              .head_dim = shape_.head_dim};
  if (first_page < options_.n_exact_pages) {
    run.n_exact_pages =
        std::min(options_.n_exact_pages - first_page, PagesOf(n_slots));
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
    for (uint32_t d = 0; d < shape_.head_dim; ++d)
      shifted[d] = k[d] - offset[d];
    k = shifted;
  }
  kernels.write_slot[static_cast<size_t>(type)](
      PageOfSlot(lane, slot), slot % kPageTokens, shape_.head_dim, k, v);
  if (slot + 1 == kPageTokens && offset != nullptr) SetKeyOffset(lane);
}

void SequencePages::SetKeyOffset(uint32_t lane) {
  const uint16_t* keys = reinterpret_cast<const uint16_t*>(PageOfSlot(lane, 0));
  float* offset = &key_offsets_[size_t{lane} * shape_.head_dim];
  for (uint32_t d = 0; d < shape_.head_dim; ++d) {
    float sum = 0;
    for (uint32_t slot = kFirstOffsetSlot; slot < kPageTokens; ++slot) {
      sum += F16ToF32(keys[size_t{d} * kPageTokens + slot]);
    }
    offset[d] = sum / (kPageTokens - kFirstOffsetSlot);
  }
}

void SequencePages::Extend(uint32_t n_tokens, uint32_t n_new) {
  if (n_tokens % kPageTokens != 0) OwnLastPages();
  const uint32_t first_page = PagesOf(n_tokens);
  const uint32_t end_page = PagesOf(n_tokens + n_new);
  for (uint32_t lane = 0; lane < n_lanes(); ++lane) {
    for (uint32_t page = first_page; page < end_page; ++page) {
      tables_[lane].OpenPage(TakeFor(lane, page), page * kPageTokens);
    }
    tables_[lane].AddTokens(n_new);
  }
  n_used_ += n_lanes() * (end_page - first_page);
}

uint8_t* SequencePages::TakeFor(uint32_t lane, uint32_t index) {
  return index < options_.n_exact_pages ? pools_.exact->Take()
                                        : pools_.rest->TakeFor(lane);
}

void SequencePages::OwnLastPages() {
  if (shared_pools_.empty()) return;
  for (uint32_t lane = 0; lane < n_lanes(); ++lane) {
    PageTable& table = tables_[lane];
    const uint32_t last = table.n_pages() - 1;
    const uint8_t* const from = table.pages()[last];
    PagePool& pool = PoolOf(from);
    if (!pool.IsShared(from)) continue;
    uint8_t* const to = TakeFor(lane, last);
    std::memcpy(to, from, pool.page_bytes());
    table.Relocate(last, to);
    pool.Give(from);
  }
}

void SequencePages::Remove(uint32_t lane, uint32_t index) {
  CHECK(index >= options_.n_exact_pages);
  const uint8_t* const page = tables_[lane].Remove(index);
  PoolOf(page).Give(page);
  --n_used_;
}

void SequencePages::Compact() {
  PagePool& own = *pools_.rest;
  // All pages could lie below end_page, with an extent per lane to spare, which
  // keeps the pages of a lane together.
  const uint32_t n_slabs =
      own.SlabsOf(own.n_used() + n_lanes() * PageAllocator::kExtentPages);
  const bool is_loose = IsLoose(own, n_slabs);
  if (!is_loose &&
      std::none_of(shared_pools_.begin(), shared_pools_.end(),
                   [](const auto& pool) { return IsLoose(*pool); })) {
    return;
  }
  const uint32_t end_page = is_loose ? own.PagesIn(n_slabs) : own.capacity();
  uint32_t n_moves = 0;
  for (uint32_t i = 0; i < CeilDiv(n_lanes(), kPageTokens); ++i) {
    n_moves += CompactLane(next_lane_, end_page, kMaxMovesPerCompact - n_moves);
    // A lane with more to move goes on in the next call.
    if (n_moves == kMaxMovesPerCompact) return;
    next_lane_ = (next_lane_ + 1) % n_lanes();
  }
}

// Moves pages at or above end_page below it, and pages that this sequence alone
// has in loose pools to where new pages come from. Returns how many.
uint32_t SequencePages::CompactLane(uint32_t lane, uint32_t end_page,
                                    uint32_t max_moves) {
  PagePool& own = *pools_.rest;
  PageTable& table = tables_[lane];
  const uint8_t* const end = own.PageAt(end_page);
  uint32_t n_moves = 0;
  for (uint32_t i = options_.n_exact_pages;
       i < table.n_pages() && n_moves < max_moves; ++i) {
    const uint8_t* const from = table.pages()[i];
    PagePool& pool = PoolOf(from);
    const bool stays =
        &pool == &own ? from < end : pool.IsShared(from) || !IsLoose(pool);
    if (stays) continue;
    uint8_t* const to = own.TakeFor(lane, end_page);
    std::memcpy(to, from, own.page_bytes());
    table.Relocate(i, to);
    pool.Give(from);
    ++n_moves;
  }
  return n_moves;
}

}  // namespace lkv
