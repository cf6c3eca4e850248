#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstring>

namespace lkv {

void* AllocateAlignedZeroed(size_t n_bytes) {
  const bool huge = n_bytes >= kHugePageBytes;
  const size_t alignment = huge ? kHugePageBytes : kBufferAlignment;
  const size_t rounded = (n_bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw AllocationFailure(n_bytes);
  // Advice: a kernel without huge pages refuses it and the buffer is as good
  // as any other.
  if (huge) static_cast<void>(madvise(memory, rounded, MADV_HUGEPAGE));
  std::memset(memory, 0, n_bytes);
  return memory;
}

}  // namespace lkv
