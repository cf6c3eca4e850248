#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace lkv {

AlignedMemory AllocateAlignedZeroed(size_t n_bytes, Access access) {
  const bool huge = n_bytes >= kHugePageBytes;
  const size_t alignment = huge ? kHugePageBytes : kBufferAlignment;
  const size_t rounded = (n_bytes + alignment - 1) / alignment * alignment;
  // calloc knows which memory is fresh from the system, hence zero already,
  // and does not touch it.
  void* block = std::calloc(rounded + alignment, 1);
  if (block == nullptr) throw AllocationFailure(n_bytes);
  const auto address = reinterpret_cast<uintptr_t>(block);
  void* aligned = reinterpret_cast<void*>((address + alignment - 1) /
                                          alignment * alignment);
  // Advice: a kernel without huge pages refuses it and the buffer is as good
  // as any other.
  if (huge) {
    static_cast<void>(
        madvise(aligned, rounded,
                access == Access::kDense ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
  }
  return {block, aligned};
}

}  // namespace lkv
