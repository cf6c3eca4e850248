#include "cache/sequence_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/copy_slot.h"
#include "kernels/read_keys.h"

namespace lkv {
namespace {

// Pages for those of a text that are not exact: a short one has none, but a
// pool has some.
uint32_t RestPages(uint32_t n_pages, uint32_t n_exact) {
  return std::max(n_pages, n_exact + 1) - n_exact;
}

// Whether less than half of the slabs that a pool from before a fork keeps is
// in use.
bool IsLoose(const PagePool& pool) {
  return pool.n_used() < pool.PagesIn(pool.n_slabs_in_use()) / 2;
}

}  // namespace

Result<SequencePages::Pools> SequencePages::CreatePools(const KvShape& shape,
                                                        const Options& options,
                                                        uint32_t n_times) {
  const uint32_t n_exact = options.n_exact_pages * shape.n_lanes();
  PagePool::Options rest = {
      .page_bytes = shape.page_bytes(options.type),
      .capacity_pages = RestPages(options.capacity_pages, n_exact),
      .capacity_pages_max = RestPages(options.capacity_pages_max, n_exact),
      .n_owners = shape.n_lanes()};
  PagePool::Options exact = {.page_bytes = shape.page_bytes(KvType::kF16),
                             .capacity_pages = n_exact};
  if (n_times > 1) {
    rest.capacity_pages_max *= n_times;
    rest.capacity_pages = rest.capacity_pages_max;
    exact.capacity_pages *= n_times;
  }
  Result<PagePool> pool = PagePool::Create(rest);
  if (!pool.ok()) return pool.status();
  Pools pools{std::make_shared<PagePool>(*std::move(pool)), nullptr};
  if (n_exact > 0) {
    Result<PagePool> created = PagePool::Create(exact);
    if (!created.ok()) return created.status();
    pools.exact = std::make_shared<PagePool>(*std::move(created));
  }
  return pools;
}

Result<SequencePages> SequencePages::Create(const KvShape& shape,
                                            const Options& options) {
  CHECK(options.n_exact_pages == 0 || options.type == KvType::kInt8);
  Result<Pools> pools = CreatePools(shape, options, 1);
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
    tables_.emplace_back(options.pages_per_lane, options.slots);
  }
}

// Whether a pool has room for all pages of the longest text, whatever others
// hold in it.
bool SequencePages::HasRoomBesideOthers(const Pools& pools) const {
  const uint32_t n_exact = options_.n_exact_pages * n_lanes();
  return pools.rest->n_free() >=
             RestPages(options_.capacity_pages_max, n_exact) &&
         (pools.exact == nullptr || pools.exact->n_free() >= n_exact);
}

std::vector<SequencePages::SharedPool> SequencePages::PoolsInUse() const {
  std::vector<SharedPool> all = shared_pools_;
  all.push_back({pools_.rest, 0});
  if (pools_.exact != nullptr) all.push_back({pools_.exact, 0});
  for (SharedPool& shared : all) {
    shared.n_pages = 0;
    for (const PageTable& table : tables_) {
      shared.n_pages += static_cast<uint32_t>(std::count_if(
          table.pages().begin(), table.pages().end(),
          [&](const uint8_t* page) { return shared.pool->Contains(page); }));
    }
  }
  std::erase_if(all, [](const SharedPool& s) { return s.n_pages == 0; });
  return all;
}

Result<SequencePages> SequencePages::Fork() {
  // Twice: what is in use beside others' pages is at most once.
  constexpr uint32_t kTimes = 2;
  const bool keeps_pools = HasRoomBesideOthers(pools_);
  Result<Pools> mine =
      keeps_pools ? pools_ : CreatePools(shape_, options_, kTimes);
  if (!mine.ok()) return mine.status();
  Result<Pools> theirs = CreatePools(shape_, options_, kTimes);
  if (!theirs.ok()) return theirs.status();
  std::vector<SharedPool> shared_of_fork = PoolsInUse();
  std::vector<SharedPool> shared = keeps_pools ? shared_pools_ : shared_of_fork;
  SequencePages fork(*this);

  // Nothing fails from here on.
  for (const PageTable& table : tables_) {
    for (const uint8_t* page : table.pages()) PoolOf(page).Share(page);
  }
  shared_pools_ = std::move(shared);
  pools_ = *std::move(mine);
  is_forked_ = true;
  fork.shared_pools_ = std::move(shared_of_fork);
  fork.pools_ = *std::move(theirs);
  fork.is_forked_ = true;
  return fork;
}

SequencePages::~SequencePages() {
  // What only it has goes with its pools.
  if (!is_forked_) return;
  for (const PageTable& table : tables_) {
    for (const uint8_t* page : table.pages()) PoolOf(page).Give(page);
  }
}

PagePool& SequencePages::PoolOf(const uint8_t* page) const {
  if (pools_.rest->Contains(page)) return *pools_.rest;
  if (pools_.exact != nullptr && pools_.exact->Contains(page)) {
    return *pools_.exact;
  }
  const auto shared =
      std::find_if(shared_pools_.begin(), shared_pools_.end(),
                   [&](const SharedPool& s) { return s.pool->Contains(page); });
  CHECK(shared != shared_pools_.end());
  return *shared->pool;
}

void SequencePages::GiveBack(const uint8_t* page) {
  PagePool& pool = PoolOf(page);
  pool.Give(page);
  std::erase_if(shared_pools_, [&](SharedPool& shared) {
    return shared.pool.get() == &pool && --shared.n_pages == 0;
  });
}

void SequencePages::Grow(uint32_t capacity_pages) {
  options_.capacity_pages = capacity_pages;
  const uint32_t n_rest =
      RestPages(capacity_pages, options_.n_exact_pages * n_lanes());
  // A fork's pool has room for more from the start.
  if (pools_.rest->capacity() < n_rest) pools_.rest->Grow(n_rest);
}

void SequencePages::Shrink(uint32_t capacity_pages) {
  CHECK(n_used_ <= capacity_pages && capacity_pages <= options_.capacity_pages);
  options_.capacity_pages = capacity_pages;
}

uint64_t SequencePages::payload_bytes() const {
  // Exact pages never leave, so all lanes have the same number of them.
  const uint32_t n_exact =
      n_lanes() * std::min(options_.n_exact_pages, tables_[0].n_pages());
  return uint64_t{n_exact} * shape_.page_bytes(KvType::kF16) +
         uint64_t{n_used_ - n_exact} * shape_.page_bytes(options_.type);
}

uint64_t SequencePages::SharedBytes(const uint8_t* page) const {
  const PagePool& pool = PoolOf(page);
  return pool.IsShared(page) ? pool.page_bytes() : 0;
}

uint64_t SequencePages::shared_bytes() const {
  if (!is_forked_) return 0;
  uint64_t bytes = 0;
  for (const PageTable& table : tables_) {
    for (const uint8_t* page : table.pages()) bytes += SharedBytes(page);
  }
  return bytes;
}

uint64_t SequencePages::shared_open_bytes(uint32_t n_tokens) const {
  if (!is_forked_ || n_tokens % kPageTokens == 0) return 0;
  uint64_t bytes = 0;
  for (const PageTable& table : tables_) {
    bytes += SharedBytes(table.pages().back());
  }
  return bytes;
}

PageRun SequencePages::Run(uint32_t lane, uint32_t first_slot,
                           uint32_t n_slots) const {
  const uint32_t first_page = first_slot / kPageTokens;
  PageRun run{.pages = tables_[lane].pages().data() + first_page,
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

void SequencePages::ReadKeys(uint32_t lane, uint32_t index, float* keys) const {
  const KvType type = TypeOfSlot(index * kPageTokens);
  lkv::ReadKeys(type, tables_[lane].pages()[index], shape_.head_dim,
                type == KvType::kInt8 ? KeyOffset(lane) : nullptr, keys);
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
  const uint32_t first_page = PagesOf(n_tokens);
  const uint32_t end_page = PagesOf(n_tokens + n_new);
  for (uint32_t lane = 0; lane < n_lanes(); ++lane) {
    if (n_tokens % kPageTokens != 0) {
      OwnPage(lane, tables_[lane].n_pages() - 1);
    }
    for (uint32_t page = first_page; page < end_page; ++page) {
      tables_[lane].OpenPage(TakeFor(lane, page), page * kPageTokens);
    }
    tables_[lane].AddTokens(n_new);
  }
  n_used_ += n_lanes() * (end_page - first_page);
  CHECK(n_used_ <= options_.capacity_pages);
}

void SequencePages::ExchangeState(StateStream& stream, uint32_t n_tokens) {
  CHECK(!stream.is_reading() || n_used_ == 0);
  for (uint32_t lane = 0; lane < n_lanes(); ++lane) {
    tables_[lane].ExchangeState(stream, n_tokens,
                                [&](uint32_t index) -> uint8_t* {
                                  if (n_free() == 0) return nullptr;
                                  ++n_used_;
                                  return TakeFor(lane, index);
                                });
  }
}

void SequencePages::FinishContents() {
  if (options_.n_exact_pages == 0) return;
  for (uint32_t lane = 0; lane < n_lanes(); ++lane) {
    if (tables_[lane].n_tokens() >= kPageTokens) SetKeyOffset(lane);
  }
}

uint8_t* SequencePages::TakeFor(uint32_t lane, uint32_t index) {
  return index < options_.n_exact_pages ? pools_.exact->Take()
                                        : pools_.rest->TakeFor(lane);
}

void SequencePages::OwnPage(uint32_t lane, uint32_t index) {
  if (!is_forked_) return;
  const uint8_t* const from = tables_[lane].pages()[index];
  PagePool& pool = PoolOf(from);
  if (!pool.IsShared(from)) return;
  uint8_t* const to = TakeFor(lane, index);
  std::memcpy(to, from, pool.page_bytes());
  tables_[lane].Relocate(index, to);
  GiveBack(from);
}

void SequencePages::Remove(uint32_t lane, uint32_t index) {
  CHECK(index >= options_.n_exact_pages);
  GiveBack(tables_[lane].Remove(index));
  --n_used_;
}

void SequencePages::MoveSlots(uint32_t lane, std::span<const uint32_t> pages,
                              std::span<const uint32_t> slots) {
  const std::span<uint8_t* const> addresses = tables_[lane].pages();
  CHECK(pages.front() >= options_.n_exact_pages);
  for (size_t i = 0; i < slots.size() / kPageTokens; ++i) {
    OwnPage(lane, pages[i]);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    CopySlot(options_.type, shape_.head_dim, addresses[slots[i] / kPageTokens],
             slots[i] % kPageTokens, addresses[pages[i / kPageTokens]],
             static_cast<uint32_t>(i % kPageTokens));
  }
  tables_[lane].MoveSlots(pages, slots);
}

void SequencePages::PrefetchSlots(uint32_t lane,
                                  std::span<const uint32_t> pages) const {
  constexpr size_t kLineBytes = 64;
  const size_t page_bytes = shape_.page_bytes(options_.type);
  for (const uint32_t index : pages) {
    const uint8_t* page = tables_[lane].pages()[index];
    for (size_t at = 0; at < page_bytes; at += kLineBytes) {
      __builtin_prefetch(page + at, 1);
    }
  }
}

void SequencePages::Compact() {
  PagePool& own = *pools_.rest;
  // All pages could lie below end_page, with an extent per lane to spare, which
  // keeps the pages of a lane together; one slab more is not worth a move.
  const uint32_t n_slabs =
      own.SlabsOf(own.n_used() + n_lanes() * PageAllocator::kExtentPages);
  const bool has_holes = own.n_slabs_in_use() > n_slabs + 1;
  const bool has_loose_pool =
      std::any_of(shared_pools_.begin(), shared_pools_.end(),
                  [&](const SharedPool& shared) {
                    // Exact pages never leave, so their pools have no holes.
                    return shared.pool->page_bytes() == own.page_bytes() &&
                           IsLoose(*shared.pool);
                  });
  if (!has_holes && !has_loose_pool) return;
  const uint32_t end_page = has_holes ? own.PagesIn(n_slabs) : own.capacity();
  uint32_t n_moves = 0;
  for (uint32_t i = 0; i < CeilDiv(n_lanes(), kPageTokens); ++i) {
    n_moves += CompactLane(next_lane_, end_page, kMaxMovesPerCompact - n_moves);
    // A lane with more to move goes on in the next call.
    if (n_moves == kMaxMovesPerCompact) return;
    next_lane_ = (next_lane_ + 1) % n_lanes();
  }
}

// Moves pages of the own pool at or above end_page below it, and into the own
// pool what this sequence alone holds in loose ones. Returns how many.
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
    const bool should_move = &pool == &own ? from >= end : IsLoose(pool);
    if (!should_move || pool.IsShared(from)) continue;
    uint8_t* const to = own.TakeFor(lane, end_page);
    std::memcpy(to, from, own.page_bytes());
    table.Relocate(i, to);
    GiveBack(from);
    ++n_moves;
  }
  return n_moves;
}

}  // namespace lkv
