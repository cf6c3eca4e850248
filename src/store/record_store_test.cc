#include "store/record_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "store/testing_records.h"
#include "testing/memory_block_io.h"

namespace lkv {
namespace {

using State = RecordState;

class RecordStoreTest : public testing::Test {
 protected:
  explicit RecordStoreTest(
      const RecordStore::Options& options = TestRecordOptions())
      : store_(CreateStore(io_, options)) {}

  // Puts numbers first, first + 1, ...
  std::vector<RecordId> Put(uint64_t first, uint32_t n) {
    std::vector<RecordId> ids;
    for (uint64_t i = 0; i < n; ++i) {
      const auto id = PutNumber(*store_, first + i);
      EXPECT_TRUE(id.has_value());
      ids.push_back(*id);
    }
    return ids;
  }
  std::vector<RecordId> PutSegment(uint64_t first) {
    return Put(first, store_->slots_per_segment());
  }
  // A segment's worth that only the disk has.
  std::vector<RecordId> PutOnDisk(uint64_t first) {
    const std::vector<RecordId> ids = PutSegment(first);
    store_->Poll();
    for (const RecordId id : ids) store_->Drop(id);
    return ids;
  }
  bool Fetch(RecordId id) { return store_->Fetch({&id, 1}) == 1; }

  MemoryBlockIo io_{32, 1};
  std::unique_ptr<RecordStore> store_;
};

TEST_F(RecordStoreTest, ARecordIsReadableFromTheMomentItIsSealed) {
  io_.is_stuck = true;
  const std::vector<RecordId> ids = PutSegment(1);
  store_->Poll();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(store_->state(ids[i]), State::kWriting);
    EXPECT_TRUE(HoldsNumber(1 + i, store_->data(ids[i])));
  }
  io_.is_stuck = false;
  store_->Poll();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(store_->state(ids[i]), State::kResident);
    EXPECT_TRUE(HoldsNumber(1 + i, store_->data(ids[i])));
  }
}

TEST_F(RecordStoreTest, TheDiskIsWrittenInWholeSegmentsOnce) {
  const std::vector<RecordId> ids = PutSegment(1);
  store_->Poll();
  EXPECT_EQ(io_.n_writes, 1u);
  EXPECT_EQ(io_.bytes().size(), TestRecordOptions().segment_bytes);
  for (const RecordId id : ids) store_->Drop(id);
  for (const RecordId id : ids) ASSERT_TRUE(Fetch(id));
  for (const RecordId id : ids) store_->Await(id);
  for (const RecordId id : ids) store_->Drop(id);
  EXPECT_EQ(io_.n_writes, 1u) << "what was fetched is not written again";
}

TEST_F(RecordStoreTest, WhatWasFetchedIsSeenWhenTheCallerSaysSo) {
  const std::vector<RecordId> ids = PutOnDisk(1);
  EXPECT_EQ(store_->n_free_frames(), 40u);
  ASSERT_TRUE(Fetch(ids[3]));
  EXPECT_EQ(store_->n_free_frames(), 39u);
  EXPECT_EQ(store_->state(ids[3]), State::kFetching);
  store_->Poll();
  ASSERT_EQ(store_->state(ids[3]), State::kArrived);
  store_->Show(ids[3]);
  ASSERT_EQ(store_->state(ids[3]), State::kResident);
  EXPECT_TRUE(HoldsNumber(4, store_->data(ids[3])));
  EXPECT_EQ(io_.n_reads, 1u);
}

TEST_F(RecordStoreTest, AwaitingItReadsItInTheEnd) {
  const std::vector<RecordId> ids = PutOnDisk(1);
  io_.faults.polls_late_max = 50;
  ASSERT_TRUE(Fetch(ids[0]));
  store_->Await(ids[0]);
  EXPECT_EQ(store_->state(ids[0]), State::kArrived);
  store_->Await(ids[0]);
  EXPECT_EQ(store_->counters().n_waits, 1u);
}

TEST_F(RecordStoreTest, FetchesEndWhereFramesOrTheirLimitDo) {
  std::vector<RecordId> ids = PutOnDisk(1);
  for (const RecordId id : PutOnDisk(100)) ids.push_back(id);
  io_.is_stuck = true;
  EXPECT_EQ(store_->Fetch(ids), 24u);
  EXPECT_EQ(store_->n_fetching(), 24u);
  EXPECT_EQ(store_->Fetch({&ids[24], 1}), 0u);
  EXPECT_EQ(store_->state(ids[24]), State::kOnDisk);
  io_.is_stuck = false;
  store_->Poll();
  store_->Poll();
  Put(200, 14);  // 24 + 14: two frames are left
  EXPECT_EQ(store_->Fetch({&ids[24], 4}), 2u);
  EXPECT_EQ(store_->n_free_frames(), 0u);
  EXPECT_FALSE(store_->Open().has_value());
  EXPECT_EQ(store_->counters().n_opens_refused, 1u);
}

TEST_F(RecordStoreTest, ASharedRecordLastsUntilItsLastHolder) {
  const std::vector<RecordId> ids = PutOnDisk(1);
  store_->Share(ids[0]);
  for (const RecordId id : ids) store_->Release(id);
  EXPECT_EQ(store_->n_records(), 1u);
  ASSERT_TRUE(Fetch(ids[0]));
  store_->Await(ids[0]);
  store_->Show(ids[0]);
  EXPECT_TRUE(HoldsNumber(1, store_->data(ids[0])));
  PutOnDisk(100);
  EXPECT_EQ(io_.bytes().size(), 2 * TestRecordOptions().segment_bytes);
  store_->Release(ids[0]);
  PutOnDisk(200);
  EXPECT_EQ(io_.bytes().size(), 2 * TestRecordOptions().segment_bytes)
      << "the space of the first segment is used again";
}

TEST_F(RecordStoreTest, RecordsMayGoInEveryState) {
  store_->Release(*store_->Open());
  io_.is_stuck = true;
  // More than the buffers hold, so that some are kUnwritten. 40 frames: two
  // full segments of 18 and 4 records in the third.
  std::vector<RecordId> ids = Put(1, 40);
  for (const RecordId id : ids) store_->Release(id);
  EXPECT_EQ(store_->n_records(), 0u);
  EXPECT_EQ(store_->n_free_frames(), 40u);
  io_.is_stuck = false;
  store_->Poll();
  // The buffer with 4 that are gone is filled up.
  ids = Put(100, 14);
  store_->Poll();
  for (const RecordId id : ids) store_->Drop(id);
  ASSERT_EQ(store_->Fetch({ids.data(), 6}), 6u);
  store_->Release(ids[0]);  // being fetched
  EXPECT_EQ(store_->n_fetching(), 5u);
  store_->Poll();
  store_->Release(ids[1]);  // arrived
  store_->Show(ids[2]);
  for (size_t i = 2; i < ids.size(); ++i) store_->Release(ids[i]);
  EXPECT_EQ(store_->n_records(), 0u);
  EXPECT_EQ(store_->n_free_frames(), 40u);
  EXPECT_EQ(store_->n_fetching(), 0u);
  const size_t file_bytes = io_.bytes().size();
  for (size_t n = 0; n < file_bytes; n += TestRecordOptions().segment_bytes) {
    PutOnDisk(n);
  }
  EXPECT_EQ(io_.bytes().size(), file_bytes) << "all of it was free again";
}

TEST_F(RecordStoreTest, AFetchThatFailsMayBeRepeatedThreeTimes) {
  const std::vector<RecordId> ids = PutOnDisk(1);
  io_.faults.fails = 100;
  for (const State then : {State::kOnDisk, State::kOnDisk, State::kLost}) {
    ASSERT_TRUE(Fetch(ids[0]));
    store_->Poll();
    EXPECT_EQ(store_->state(ids[0]), then);
    EXPECT_EQ(store_->n_free_frames(), 40u);
  }
  EXPECT_EQ(store_->counters().n_fetches_failed, 3u);
  EXPECT_EQ(store_->counters().n_lost, 1u);
  io_.faults.fails = 0;
  ASSERT_TRUE(Fetch(ids[1]));
  store_->Poll();
  EXPECT_EQ(store_->state(ids[1]), State::kArrived) << "others are there";
  store_->Release(ids[0]);
}

TEST_F(RecordStoreTest, WrongBytesAreNeverShown) {
  const std::vector<RecordId> ids = PutOnDisk(1);
  const std::vector<uint8_t> intact = io_.bytes();
  constexpr size_t kSlotBytes = 3584;
  // Every byte of the record and of its trailer, in steps, and each of the
  // trailer.
  for (size_t at = 0; at < kTestRecordBytes + 16;
       at += at < kTestRecordBytes - 16 ? 97 : 1) {
    io_.bytes() = intact;
    io_.bytes()[kSlotBytes + at] ^= 4;
    ASSERT_TRUE(Fetch(ids[1]));
    store_->Poll();
    ASSERT_EQ(store_->state(ids[1]), State::kOnDisk) << "byte " << at;
    io_.bytes() = intact;
    ASSERT_TRUE(Fetch(ids[1]));
    store_->Poll();
    ASSERT_EQ(store_->state(ids[1]), State::kArrived);
    store_->Drop(ids[1]);
  }
}

TEST_F(RecordStoreTest, ARecordInAnothersPlaceIsNotTakenForIt) {
  const std::vector<RecordId> ids = PutOnDisk(1);
  // Slot 2 has what was written to slot 1.
  std::copy_n(io_.bytes().begin() + 3584, 3584, io_.bytes().begin() + 2 * 3584);
  ASSERT_TRUE(Fetch(ids[2]));
  store_->Poll();
  EXPECT_EQ(store_->state(ids[2]), State::kOnDisk);
  EXPECT_EQ(store_->counters().n_checksums_wrong, 1u);
}

TEST_F(RecordStoreTest, AnOlderSegmentIsNotTakenForTheNewerOne) {
  std::vector<RecordId> ids = PutOnDisk(1);
  const std::vector<uint8_t> older = io_.bytes();
  for (const RecordId id : ids) store_->Release(id);
  ids = PutOnDisk(100);
  ASSERT_EQ(io_.bytes().size(), older.size());
  io_.bytes() = older;  // as if the second write had never reached the disk
  ASSERT_TRUE(Fetch(ids[0]));
  store_->Poll();
  EXPECT_EQ(store_->state(ids[0]), State::kOnDisk);
  EXPECT_EQ(store_->counters().n_checksums_wrong, 1u);
}

class RecordStoreWithDeadlinesTest : public RecordStoreTest {
 protected:
  static RecordStore::Options Options() {
    RecordStore::Options options = TestRecordOptions();
    options.fetch_deadline_us = 100;
    return options;
  }
  RecordStoreWithDeadlinesTest() : RecordStoreTest(Options()) {}
};

TEST_F(RecordStoreWithDeadlinesTest, AnOverdueFetchIsForgotten) {
  const std::vector<RecordId> ids = PutOnDisk(1);
  io_.is_stuck = true;
  ASSERT_TRUE(Fetch(ids[0]));
  io_.now_us = 100;
  store_->Poll();
  EXPECT_EQ(store_->state(ids[0]), State::kOnDisk);
  EXPECT_EQ(store_->n_free_frames(), 40u);
  EXPECT_EQ(store_->counters().n_fetches_overdue, 1u);
  // Asked for again; the first answer comes late and is not taken for it.
  ASSERT_TRUE(Fetch(ids[0]));
  ASSERT_EQ(io_.n_pending(), 2u);
  io_.is_stuck = false;
  store_->Poll();
  ASSERT_EQ(store_->state(ids[0]), State::kArrived);
  store_->Show(ids[0]);
  EXPECT_TRUE(HoldsNumber(1, store_->data(ids[0])));
  EXPECT_EQ(store_->n_free_frames(), 39u);
}

TEST_F(RecordStoreTest, AFailedWriteLosesNothingAndIsTriedAgain) {
  io_.faults.fails = 100;
  std::vector<RecordId> ids = PutSegment(1);
  store_->Poll();
  EXPECT_EQ(store_->counters().n_writes_failed, 1u);
  EXPECT_NE(store_->refusal().message().find("Input/output error"),
            std::string::npos);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_TRUE(HoldsNumber(1 + i, store_->data(ids[i])));
  }
  io_.faults.fails = 0;
  store_->Poll();
  EXPECT_EQ(io_.n_writes, 1u) << "not at once";
  for (int i = 0; i < 1100; ++i) store_->Poll();
  EXPECT_TRUE(store_->refusal().ok());
  EXPECT_EQ(store_->counters().disk_bytes, TestRecordOptions().segment_bytes)
      << "into the place where it failed";
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ(store_->state(ids[i]), State::kResident);
    store_->Drop(ids[i]);
  }
  EXPECT_EQ(store_->Fetch(ids), ids.size());
  store_->Poll();
  store_->Poll();
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ(store_->state(ids[i]), State::kArrived);
    store_->Show(ids[i]);
    EXPECT_TRUE(HoldsNumber(1 + i, store_->data(ids[i])));
  }
}

TEST_F(RecordStoreTest, AFullDiskStopsWritesAndNothingElse) {
  io_.capacity_bytes = 2 * TestRecordOptions().segment_bytes;
  const std::vector<RecordId> on_disk = PutOnDisk(1);
  const std::vector<RecordId> released = PutOnDisk(100);
  const std::vector<RecordId> kept = PutSegment(200);
  for (int i = 0; i < 100; ++i) store_->Poll();
  EXPECT_EQ(io_.n_writes, 2u) << "the free space is asked for first";
  EXPECT_EQ(store_->counters().n_writes_refused, 1u);
  EXPECT_NE(store_->refusal().message().find("would be left on its file"),
            std::string::npos);
  EXPECT_EQ(store_->state(kept[0]), State::kWriting);
  ASSERT_TRUE(Fetch(on_disk[0]));
  store_->Await(on_disk[0]);
  store_->Show(on_disk[0]);
  EXPECT_TRUE(HoldsNumber(1, store_->data(on_disk[0])));
  // Space that it has already needs none of the disk.
  for (const RecordId id : released) store_->Release(id);
  for (int i = 0; i < 100; ++i) store_->Poll();
  EXPECT_EQ(store_->state(kept[0]), State::kResident);
  EXPECT_TRUE(store_->refusal().ok());
}

class RecordStoreWithFloorTest : public RecordStoreTest {
 protected:
  static RecordStore::Options Options() {
    RecordStore::Options options = TestRecordOptions();
    options.free_bytes_min = options.segment_bytes;
    return options;
  }
  RecordStoreWithFloorTest() : RecordStoreTest(Options()) {}
};

TEST_F(RecordStoreWithFloorTest, OthersAreLeftTheirSpaceWhateverIsInFlight) {
  // Two and a half segments: one may be written, another would leave a half.
  io_.capacity_bytes = TestRecordOptions().segment_bytes * 5 / 2;
  io_.is_stuck = true;
  PutSegment(1);
  PutSegment(100);
  io_.is_stuck = false;
  for (int i = 0; i < 100; ++i) store_->Poll();
  EXPECT_EQ(io_.n_writes, 1u);
  EXPECT_EQ(io_.bytes().size(), TestRecordOptions().segment_bytes);
  EXPECT_NE(store_->refusal().message().find("less than 65536 bytes"),
            std::string::npos);
}

class RecordStoreWithQuotaTest : public RecordStoreTest {
 protected:
  static RecordStore::Options Options() {
    RecordStore::Options options = TestRecordOptions();
    options.disk_bytes_max = 2 * options.segment_bytes + kIoBlockBytes;
    return options;
  }
  RecordStoreWithQuotaTest() : RecordStoreTest(Options()) {}
};

TEST_F(RecordStoreWithQuotaTest, TheQuotaHoldsAndFramesKeepTheRest) {
  const std::vector<RecordId> first = PutOnDisk(1);
  PutOnDisk(100);
  const std::vector<RecordId> third = PutSegment(200);
  store_->Poll();
  EXPECT_EQ(io_.bytes().size(), 2 * TestRecordOptions().segment_bytes);
  EXPECT_EQ(store_->counters().disk_bytes, io_.bytes().size());
  EXPECT_NE(store_->refusal().message().find("quota of 135168 bytes"),
            std::string::npos)
      << store_->refusal().message();
  for (size_t i = 0; i < third.size(); ++i) {
    EXPECT_TRUE(HoldsNumber(200 + i, store_->data(third[i])));
  }
  for (const RecordId id : first) store_->Release(id);
  store_->Poll();
  store_->Poll();
  EXPECT_EQ(store_->state(third[0]), State::kResident);
  EXPECT_EQ(io_.bytes().size(), 2 * TestRecordOptions().segment_bytes);
}

TEST_F(RecordStoreWithQuotaTest, ABufferWhoseRecordsAreGoneIsNotWritten) {
  PutOnDisk(1);
  PutOnDisk(100);
  for (const RecordId id : PutSegment(200)) store_->Release(id);
  store_->Poll();
  const std::vector<RecordId> next = Put(300, 40);
  EXPECT_EQ(store_->counters().n_unwritten, 0u)
      << "its buffer can be filled again: 18, 18 and 4";
  for (const RecordId id : next) store_->Release(id);
}

TEST_F(RecordStoreTest, WhatTheBuffersHaveNoRoomForWaitsInItsFrame) {
  RecordStore::Options options = TestRecordOptions();
  options.n_frames = 100;
  MemoryBlockIo io(32, 1);
  const auto store = CreateStore(io, options);
  io.is_stuck = true;
  std::vector<RecordId> ids;
  for (uint64_t i = 0; i < 60; ++i) ids.push_back(*PutNumber(*store, i));
  EXPECT_EQ(store->counters().n_unwritten, 6u);
  EXPECT_EQ(store->state(ids[54]), State::kUnwritten);
  store->Release(ids[54]);  // the first, one between and the last
  store->Release(ids[56]);
  store->Release(ids[59]);
  EXPECT_EQ(store->counters().n_unwritten, 3u);
  io.is_stuck = false;
  store->Poll();
  EXPECT_EQ(store->counters().n_unwritten, 0u);
  for (const int i : {55, 57, 58}) {
    EXPECT_EQ(store->state(ids[i]), State::kWriting);
    EXPECT_TRUE(HoldsNumber(static_cast<uint64_t>(i), store->data(ids[i])));
  }
}

TEST_F(RecordStoreTest, ReadsBeginAtMultiplesOfTheAlignment) {
  RecordStore::Options options = TestRecordOptions();
  options.read_alignment = 4096;
  MemoryBlockIo io(32, 1);
  const auto store = CreateStore(io, options);
  EXPECT_EQ(store->slots_per_segment(), 16u);
  EXPECT_EQ(store_->slots_per_segment(), 18u);
}

TEST_F(RecordStoreTest, WhatCannotWorkIsRefusedWithARemedy) {
  RecordStore::Options options = TestRecordOptions();
  options.disk_bytes_max = options.segment_bytes;
  EXPECT_EQ(RecordStore::Create(options, io_).status().message(),
            "third tier: a quota of 65536 bytes is too small; give it 69632 or "
            "more");
  options.disk_bytes_max += kIoBlockBytes;
  EXPECT_TRUE(RecordStore::Create(options, io_).ok());
  options.n_frames = 35;
  EXPECT_EQ(RecordStore::Create(options, io_).status().message(),
            "third tier: RAM of 116480 bytes is too small; give it 119808 or "
            "more");
  options = TestRecordOptions();
  options.disk_bytes_max = UINT64_MAX;
  EXPECT_EQ(RecordStore::Create(options, io_).status().code(),
            StatusCode::kInvalidArgument);
}

using RecordStoreDeathTest = RecordStoreTest;

TEST_F(RecordStoreDeathTest, BrokenPromisesStop) {
  const std::vector<RecordId> ids = PutOnDisk(1);
  EXPECT_DEATH((void)store_->data(ids[0]), "CHECK failed");
  EXPECT_DEATH(store_->Show(ids[0]), "CHECK failed");
  EXPECT_DEATH(store_->Drop(ids[0]), "CHECK failed");
  io_.is_stuck = true;
  ASSERT_TRUE(Fetch(ids[0]));
  EXPECT_DEATH(Fetch(ids[0]), "CHECK failed");
  EXPECT_DEATH(store_->Drop(ids[0]), "CHECK failed");
  EXPECT_DEATH((void)store_->data(ids[0]), "CHECK failed");
  io_.is_stuck = false;
  store_->Poll();
  EXPECT_DEATH((void)store_->data(ids[0]), "CHECK failed");
  store_->Show(ids[0]);
  EXPECT_DEATH((void)store_->fill_data(ids[0]), "CHECK failed");
  store_->Pin(ids[0]);
  EXPECT_DEATH(store_->Drop(ids[0]), "CHECK failed");
  EXPECT_DEATH(store_->Release(ids[0]), "CHECK failed");
  store_->Unpin(ids[0]);
  store_->Drop(ids[0]);
}

}  // namespace
}  // namespace lkv
