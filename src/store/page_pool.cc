#include "store/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/machine.h"

namespace lkv {
namespace {

// A whole number of system pages, of 4 to 64 KiB.
constexpr uint64_t kSmallSlabBytes = uint64_t{256} << 10;

// Read once: it does not change, and a dozen files for each sequence took
// longer than all else in Create.
uint64_t MachineBytes() {
  static const uint64_t n_bytes = TotalMemoryBytes();
  return n_bytes;
}

}  // namespace

Result<PagePool> PagePool::Create(Options options) {
  if (options.capacity_pages_max == 0) {
    options.capacity_pages_max = options.capacity_pages;
  }
  const size_t page_bytes = options.page_bytes;
  const uint32_t capacity_pages_max = options.capacity_pages_max;
  CHECK(page_bytes > 0 && page_bytes % 64 == 0);
  CHECK(options.capacity_pages > 0);
  const uint64_t machine_bytes = MachineBytes();
  if (page_bytes > machine_bytes / capacity_pages_max) {
    return OutOfMemory(
        "page pool: " + std::to_string(capacity_pages_max) + " pages of " +
        std::to_string(page_bytes) + " bytes exceed the " +
        std::to_string(machine_bytes) +
        " bytes that this machine, its container and its limits allow; use a "
        "smaller budget or a shorter context");
  }
  const bool huge = page_bytes * capacity_pages_max >= kHugeFromBytes;
  PagePool pool(options, huge ? kHugePageBytes : kSmallSlabBytes);
  if (Status s = pool.Reserve(); !s.ok()) return s;
  return pool;
}

PagePool::PagePool(const Options& options, uint64_t slab_bytes)
    : page_bytes_(options.page_bytes),
      slab_bytes_(slab_bytes),
      allocator_(options.capacity_pages, options.capacity_pages_max,
                 options.n_owners),
      used_in_slab_(SlabsOf(options.capacity_pages_max)),
      holders_(options.capacity_pages_max, Access::kSparse) {}

Status PagePool::Reserve() {
  // One huge page more, so that the first slab can begin at a border.
  reserved_bytes_ = used_in_slab_.size() * slab_bytes_ + kHugePageBytes;
  void* reserved = mmap(nullptr, reserved_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return OutOfMemory("page pool: " + std::to_string(reserved_bytes_) +
                       " bytes of addresses refused by the system; use a "
                       "smaller budget or raise the limit of this process "
                       "(ulimit -v)");
  }
  reserved_ = reserved;
  const uintptr_t address = reinterpret_cast<uintptr_t>(reserved);
  base_ = reinterpret_cast<uint8_t*>(CeilDiv(address, kHugePageBytes) *
                                     kHugePageBytes);
  // Advice: a kernel without huge pages refuses it, and all works without.
  static_cast<void>(madvise(reserved_, reserved_bytes_, MADV_NOHUGEPAGE));
  AdviseHugePages();
  return {};
}

// For the slabs that lie wholly within the capacity.
void PagePool::AdviseHugePages() {
  if (slab_bytes_ != kHugePageBytes) return;
  const uint64_t n_whole = uint64_t{capacity()} * page_bytes_ / slab_bytes_;
  static_cast<void>(madvise(base_, n_whole * slab_bytes_, MADV_HUGEPAGE));
}

void PagePool::Grow(uint32_t capacity_pages) {
  allocator_.Grow(capacity_pages);
  AdviseHugePages();
}

PagePool::PagePool(PagePool&& other) noexcept
    : base_(other.base_),
      reserved_(std::exchange(other.reserved_, nullptr)),
      reserved_bytes_(other.reserved_bytes_),
      page_bytes_(other.page_bytes_),
      slab_bytes_(other.slab_bytes_),
      allocator_(std::move(other.allocator_)),
      n_slabs_in_use_(other.n_slabs_in_use_),
      used_in_slab_(std::move(other.used_in_slab_)),
      holders_(std::move(other.holders_)) {}

PagePool::~PagePool() {
  if (reserved_ != nullptr) CHECK(munmap(reserved_, reserved_bytes_) == 0);
}

PagePool::SlabRange PagePool::SlabsOfPage(uint32_t page) const {
  const uint64_t begin = uint64_t{page} * page_bytes_;
  return {static_cast<uint32_t>(begin / slab_bytes_),
          static_cast<uint32_t>((begin + page_bytes_ - 1) / slab_bytes_)};
}

uint32_t PagePool::IndexOf(const uint8_t* page) const {
  CHECK(Contains(page));
  return static_cast<uint32_t>(static_cast<size_t>(page - base_) / page_bytes_);
}

uint8_t* PagePool::Use(uint32_t page) {
  holders_[page] = 1;
  const auto [first, last] = SlabsOfPage(page);
  for (uint32_t slab = first; slab <= last; ++slab) {
    if (used_in_slab_[slab]++ == 0) ++n_slabs_in_use_;
  }
  return PageAt(page);
}

void PagePool::Share(const uint8_t* page) {
  uint32_t& n_holders = holders_[IndexOf(page)];
  CHECK(n_holders > 0);
  ++n_holders;
}

void PagePool::Give(const uint8_t* address) {
  const uint32_t page = IndexOf(address);
  CHECK(holders_[page] > 0);
  if (--holders_[page] > 0) return;
  allocator_.Give(page);
  const auto [first, last] = SlabsOfPage(page);
  for (uint32_t slab = first; slab <= last; ++slab) {
    if (--used_in_slab_[slab] > 0) continue;
    --n_slabs_in_use_;
    CHECK(madvise(base_ + slab * slab_bytes_, slab_bytes_, MADV_DONTNEED) == 0);
  }
}

}  // namespace lkv
