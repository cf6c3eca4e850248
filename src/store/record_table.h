// What is known of each record of a RecordStore: where its bytes are, who holds
// it, who reads it. 16 bytes a record.
//
//   kFilling    its bytes are being made, in a frame
//   kUnwritten  readable; the disk has nothing of it yet
//   kWriting    readable; on its way to the disk
//   kResident   readable; the disk has it, too
//   kOnDisk     only the disk has it
//   kFetching   a frame is set aside, the disk is asked
//   kArrived    in the frame and checked, but not yet to be seen
//   kLost       the disk does not give it back
//
// A record has a frame in all states but kOnDisk and kLost, and keeps it until
// the disk has the bytes: what a failed write takes away is time.
//
// Pure but for the memory it owns. Thread-compatible. O(1); what is broken by a
// call that its state does not allow stops the process. Allocates in its
// constructor only; the system gives the memory as records are first used.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"

namespace lkv {

enum class RecordId : uint32_t {};

enum class RecordState : uint8_t {
  kFree,
  kFilling,
  kUnwritten,
  kWriting,
  kResident,
  kOnDisk,
  kFetching,
  kArrived,
  kLost,
};
inline constexpr uint32_t kRecordStates = 9;

class RecordTable {
 public:
  explicit RecordTable(uint32_t capacity);

  static constexpr size_t kBytesPerRecord = 16;

  uint32_t capacity() const { return capacity_; }
  // In any state but kFree.
  uint32_t n_used() const { return n_used_; }

  // A record in kFilling with one holder. Requires n_used() < capacity().
  RecordId Add(uint32_t frame);
  // Requires no holder, no pin.
  void Remove(RecordId id);

  RecordState state(RecordId id) const { return At(id).state; }
  // Requires that `to` may follow its state; no pin when that takes its frame.
  void Move(RecordId id, RecordState to);
  bool IsReadable(RecordId id) const { return IsReadable(state(id)); }
  static bool IsReadable(RecordState state) {
    return state == RecordState::kUnwritten || state == RecordState::kWriting ||
           state == RecordState::kResident;
  }
  static bool HasFrame(RecordState state) {
    return state != RecordState::kFree && state != RecordState::kOnDisk &&
           state != RecordState::kLost;
  }

  // Requires HasFrame.
  uint32_t frame(RecordId id) const;
  void SetFrame(RecordId id, uint32_t frame) { At(id).frame = frame; }
  // Where the store has put it, in its own numbers.
  uint32_t place(RecordId id) const { return At(id).place; }
  void SetPlace(RecordId id, uint32_t place) { At(id).place = place; }

  // A pin forbids that the frame is taken. Requires a readable record.
  void Pin(RecordId id);
  void Unpin(RecordId id);
  uint32_t n_pins(RecordId id) const { return At(id).n_pins; }

  void Share(RecordId id);
  // Returns whether that was the last holder.
  bool Release(RecordId id);

  // Counts a fetch that failed; returns how many did.
  uint32_t CountFailure(RecordId id) { return ++At(id).n_failures; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Record {
    RecordState state;
    uint8_t n_failures;
    uint16_t n_pins;
    uint32_t n_holders;
    uint32_t frame;  // of a free one: the next free one
    uint32_t place;
  };
  static_assert(sizeof(Record) == kBytesPerRecord);

  Record& At(RecordId id);
  const Record& At(RecordId id) const {
    return const_cast<RecordTable*>(this)->At(id);
  }

  const uint32_t capacity_;
  AlignedBuffer<Record> records_;  // [capacity]
  uint32_t n_ever_used_ = 0;       // those behind were never touched
  uint32_t first_free_ = kNone;
  uint32_t n_used_ = 0;
};

}  // namespace lkv
