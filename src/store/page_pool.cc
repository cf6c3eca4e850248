#include "store/page_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"

namespace lkv {
namespace {

// All pages of slab `slab` in a pool of `capacity` pages.
uint64_t SlabMask(uint32_t slab, uint32_t capacity) {
  const uint32_t n = capacity - slab * PagePool::kSlabPages;
  return n >= PagePool::kSlabPages ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}

size_t MachineBytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Result<PagePool> PagePool::Create(size_t page_bytes, uint32_t capacity_pages) {
  CHECK(page_bytes > 0 && page_bytes % 64 == 0 && capacity_pages > 0);
  const size_t n_slabs = (size_t{capacity_pages} + kSlabPages - 1) / kSlabPages;
  const std::string what = "page pool: " + std::to_string(capacity_pages) +
                           " pages of " + std::to_string(page_bytes) + " bytes";
  if (page_bytes > MachineBytes() / kSlabPages / n_slabs) {
    return OutOfMemory(what + " exceed the memory of this machine (" +
                       std::to_string(MachineBytes()) +
                       " bytes); use a smaller budget or a shorter context");
  }
  const size_t reserved_bytes = n_slabs * kSlabPages * page_bytes;
  void* base = mmap(nullptr, reserved_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return OutOfMemory(what + " cannot be reserved; use a smaller budget");
  }
  // A huge page would make the first token of a slab cost 2 MiB and keep the
  // memory of an emptied slab; where the system forces them, decline.
  madvise(base, reserved_bytes, MADV_NOHUGEPAGE);
  return PagePool(page_bytes, capacity_pages, static_cast<uint8_t*>(base),
                  reserved_bytes);
}

PagePool::PagePool(size_t page_bytes, uint32_t capacity_pages, uint8_t* base,
                   size_t reserved_bytes)
    : base_(base),
      reserved_bytes_(reserved_bytes),
      page_bytes_(page_bytes),
      capacity_(capacity_pages),
      free_((size_t{capacity_pages} + kSlabPages - 1) / kSlabPages),
      slabs_with_free_((free_.size() + 63) / 64) {
  for (uint32_t slab = 0; slab < free_.size(); ++slab) {
    free_[slab] = SlabMask(slab, capacity_);
    slabs_with_free_[slab / 64] |= uint64_t{1} << slab % 64;
  }
}

PagePool::PagePool(PagePool&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      reserved_bytes_(other.reserved_bytes_),
      page_bytes_(other.page_bytes_),
      capacity_(other.capacity_),
      n_used_(other.n_used_),
      n_slabs_in_use_(other.n_slabs_in_use_),
      free_(std::move(other.free_)),
      slabs_with_free_(std::move(other.slabs_with_free_)),
      lowest_word_(other.lowest_word_) {}

PagePool::~PagePool() {
  if (base_ != nullptr) CHECK(munmap(base_, reserved_bytes_) == 0);
}

PageId PagePool::Take() {
  CHECK(n_used_ < capacity_);
  while (slabs_with_free_[lowest_word_] == 0) ++lowest_word_;
  uint64_t& word = slabs_with_free_[lowest_word_];
  const uint32_t slab =
      static_cast<uint32_t>(lowest_word_ * 64 + std::countr_zero(word));
  if (free_[slab] == SlabMask(slab, capacity_)) ++n_slabs_in_use_;
  const uint32_t page = static_cast<uint32_t>(std::countr_zero(free_[slab]));
  free_[slab] &= free_[slab] - 1;
  if (free_[slab] == 0) word &= ~(uint64_t{1} << slab % 64);
  ++n_used_;
  return PageId{slab * kSlabPages + page};
}

void PagePool::Give(PageId id) {
  const uint32_t page = static_cast<uint32_t>(id);
  CHECK(page < capacity_);
  const uint32_t slab = page / kSlabPages;
  const uint64_t bit = uint64_t{1} << page % kSlabPages;
  CHECK((free_[slab] & bit) == 0);
  free_[slab] |= bit;
  slabs_with_free_[slab / 64] |= uint64_t{1} << slab % 64;
  lowest_word_ = std::min<size_t>(lowest_word_, slab / 64);
  --n_used_;
  if (free_[slab] == SlabMask(slab, capacity_)) {
    --n_slabs_in_use_;
    const size_t slab_bytes = kSlabPages * page_bytes_;
    CHECK(madvise(base_ + slab * slab_bytes, slab_bytes, MADV_DONTNEED) == 0);
  }
}

}  // namespace lkv
