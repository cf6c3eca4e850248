// Lets a test run as on a kernel without huge pages.
#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

namespace lkv {

// From here on the system refuses this process and its children all advice
// about huge pages. False where it refuses the filter for that, too, as QEMU's
// user mode does. There is no way back, so call it in a process of its own.
inline bool DenyHugePages() {
  // Low word of the third argument of madvise (little endian).
  constexpr uint32_t kAdvice = offsetof(seccomp_data, args) + 2 * 8;
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kAdvice),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_HUGEPAGE, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_NOHUGEPAGE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof(steps) / sizeof(steps[0]), steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace lkv
