// Whatever a disk does, a store shows the bytes that were stored or none.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "store/record_store.h"
#include "store/testing_records.h"
#include "testing/memory_block_io.h"

namespace lkv {
namespace {

using State = RecordState;

// What is known of a record from outside.
struct Known {
  RecordId id;
  uint64_t number;
  uint32_t n_holders;
  uint32_t n_pins;
};

class RandomLife {
 public:
  RandomLife(RecordStore& store, uint64_t seed)
      : store_(store), random_(seed) {}

  void Step() {
    store_.Poll();
    for (uint32_t i = 0; i < 8; ++i) Act();
    if (random_() % 16 == 0) Look(All());
  }
  // Every record shows its own bytes or none.
  void Look(const std::vector<size_t>& indices) {
    for (const size_t i : indices) {
      const State state = store_.state(records_[i].id);
      if (!RecordTable::IsReadable(state)) continue;
      ++n_looks_;
      ASSERT_TRUE(HoldsNumber(records_[i].number, store_.data(records_[i].id)))
          << "record " << records_[i].number;
    }
  }
  void End() {
    for (Known& record : records_) {
      for (; record.n_pins > 0; --record.n_pins) store_.Unpin(record.id);
      for (; record.n_holders > 0; --record.n_holders) {
        store_.Release(record.id);
      }
    }
    records_.clear();
  }
  std::vector<size_t> All() const {
    std::vector<size_t> indices(records_.size());
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
    return indices;
  }
  uint64_t n_looks() const { return n_looks_; }

 private:
  void Act() {
    const uint64_t choice = random_() % 100;
    if (choice < 30) Put();
    if (records_.empty()) return;
    Known& record = records_[random_() % records_.size()];
    const State state = store_.state(record.id);
    if (choice >= 30 && choice < 60 && state == State::kOnDisk) {
      store_.Fetch({&record.id, 1});
    } else if (state == State::kArrived) {
      random_() % 4 == 0 ? store_.Drop(record.id) : store_.Show(record.id);
    } else if (choice >= 60 && choice < 75 && state == State::kResident &&
               record.n_pins == 0) {
      store_.Drop(record.id);
    } else if (choice >= 75 && choice < 80 && RecordTable::IsReadable(state)) {
      store_.Pin(record.id);
      ++record.n_pins;
    } else if (choice >= 80 && choice < 90 && record.n_pins > 0) {
      store_.Unpin(record.id);
      --record.n_pins;
    } else if (choice >= 90 && choice < 92) {
      store_.Share(record.id);
      ++record.n_holders;
    } else if (choice >= 92) {
      Release(record);
    }
  }
  void Put() {
    // Those that the disk has make room.
    if (store_.n_free_frames() == 0) {
      for (const Known& record : records_) {
        if (record.n_pins == 0 && store_.state(record.id) == State::kResident) {
          store_.Drop(record.id);
        }
      }
    }
    const std::optional<RecordId> id = PutNumber(store_, next_number_);
    if (id.has_value()) records_.push_back({*id, next_number_++, 1, 0});
  }
  void Release(Known& record) {
    if (record.n_holders == 1 && record.n_pins > 0) return;
    store_.Release(record.id);
    if (--record.n_holders > 0) return;
    record = records_.back();
    records_.pop_back();
  }

  RecordStore& store_;
  std::mt19937_64 random_;
  std::vector<Known> records_;
  uint64_t next_number_ = 1;
  uint64_t n_looks_ = 0;
};

struct Disk {
  std::string name;
  MemoryBlockIo::Faults faults;
};

class RecordStoreRandomTest : public testing::TestWithParam<Disk> {};

TEST_P(RecordStoreRandomTest, NeverShowsWrongBytes) {
  RecordStoreCounters sum;
  uint64_t n_flipped = 0;
  uint64_t n_torn = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    MemoryBlockIo io(32, seed);
    io.faults = GetParam().faults;
    RecordStore::Options options = TestRecordOptions();
    options.fetch_deadline_us = 50;
    options.disk_bytes_max = 12 * options.segment_bytes;
    const auto store = CreateStore(io, options);
    RandomLife life(*store, seed);
    for (int step = 0; step < 3000; ++step) {
      io.now_us += 10;
      life.Step();
      ASSERT_LE(io.bytes().size(), options.disk_bytes_max);
      ASSERT_FALSE(HasFatalFailure());
    }
    EXPECT_GT(life.n_looks(), 3000u);
    life.End();
    EXPECT_EQ(store->n_records(), 0u);
    EXPECT_EQ(store->n_free_frames(), options.n_frames);
    EXPECT_EQ(store->counters().disk_bytes, io.bytes().size());
    const RecordStoreCounters counters = store->counters();
    sum.n_fetches += counters.n_fetches;
    sum.n_fetches_failed += counters.n_fetches_failed;
    sum.n_fetches_overdue += counters.n_fetches_overdue;
    sum.n_checksums_wrong += counters.n_checksums_wrong;
    sum.n_segments_written += counters.n_segments_written;
    n_flipped += io.n_flipped;
    n_torn += io.n_torn;
  }
  // The faults did happen.
  const MemoryBlockIo::Faults& faults = GetParam().faults;
  EXPECT_GT(sum.n_segments_written, 100u);
  EXPECT_GT(sum.n_fetches, 1000u);
  EXPECT_EQ(sum.n_fetches_failed > 0, faults.fails > 0);
  EXPECT_EQ(sum.n_fetches_overdue > 0, faults.polls_late_max > 5);
  EXPECT_EQ(sum.n_checksums_wrong > 0,
            faults.flips_bit > 0 || faults.tears_write > 0);
  EXPECT_EQ(n_flipped > 0, faults.flips_bit > 0);
  EXPECT_EQ(n_torn > 0, faults.tears_write > 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, RecordStoreRandomTest,
    testing::Values(Disk{"Good", {}}, Disk{"Late", {.polls_late_max = 12}},
                    Disk{"Short", {.interrupted = 20, .stops_short = 40}},
                    // A write that fails stops all others for 1,024 polls.
                    Disk{"Failing", {.fails = 1}},
                    Disk{"Torn", {.tears_write = 20}},
                    Disk{"Flipping", {.flips_bit = 10}},
                    Disk{"Everything",
                         {.fails = 1,
                          .interrupted = 5,
                          .stops_short = 10,
                          .tears_write = 10,
                          .flips_bit = 5,
                          .polls_late_max = 8}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lkv
