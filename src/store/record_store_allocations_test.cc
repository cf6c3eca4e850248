// A store allocates nothing once it is made.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "io/open_block_io.h"
#include "store/record_store.h"
#include "store/testing_records.h"
#include "testing/test_paths.h"

namespace {

std::atomic<uint64_t> allocations{0};

void* CountedAllocate(size_t n, size_t alignment) {
  ++allocations;
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(n)
                : std::aligned_alloc(
                      alignment, (n + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

// Every allocation of the test binary is counted.
void* operator new(size_t n) { return CountedAllocate(n, 1); }
void* operator new[](size_t n) { return CountedAllocate(n, 1); }
void* operator new(size_t n, std::align_val_t alignment) {
  return CountedAllocate(n, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace lkv {
namespace {

class RecordStoreAllocationsTest
    : public testing::TestWithParam<BlockIoOptions::Method> {};

TEST_P(RecordStoreAllocationsTest, StepsAllocateNothing) {
  const TempFolder temp;
  auto folder = OpenLocalFolder(temp.File("ours"));
  ASSERT_TRUE(folder.ok());
  auto opened = OpenBlockIo(**folder, {.method = GetParam()});
  ASSERT_TRUE(opened.ok());
  RecordStore::Options options = TestRecordOptions();
  options.read_alignment = opened->read_alignment;
  options.disk_bytes_max = 1 << 20;  // so that it also refuses
  const auto store = CreateStore(*opened->io, options);
  std::vector<RecordId> ids;
  ids.reserve(1000);
  // FillWith and the checks of gtest would be counted, too.
  const auto step = [&](size_t i) {
    opened->io->Wait(200);  // else all steps would be over before the disk
    store->Poll();
    for (const RecordId id : ids) {
      const RecordState state = store->state(id);
      if (state == RecordState::kResident) store->Drop(id);
      if (state == RecordState::kArrived) store->Show(id);
    }
    const std::optional<RecordId> id = store->Open();
    if (id.has_value()) {
      store->Seal(*id);
      ids.push_back(*id);
    }
    const RecordId old = ids[i * 7 % ids.size()];
    if (store->state(old) == RecordState::kOnDisk) store->Fetch({&old, 1});
    if (ids.size() > 250 && i % 512 > 256) {
      store->Release(ids.back());
      ids.pop_back();
    }
  };
  for (size_t i = 0; i < 100; ++i) step(i);
  const uint64_t before = allocations;
  for (size_t i = 0; i < 3000; ++i) step(i);
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_GT(store->counters().n_fetches, 100u);
  EXPECT_GT(store->counters().n_segments_written, 10u);
}

INSTANTIATE_TEST_SUITE_P(All, RecordStoreAllocationsTest,
                         testing::Values(BlockIoOptions::Method::kBest,
                                         BlockIoOptions::Method::kThreads),
                         [](const auto& info) {
                           return info.param == BlockIoOptions::Method::kBest
                                      ? "Best"
                                      : "Threads";
                         });

}  // namespace
}  // namespace lkv
