#include "store/record_table.h"

#include "base/check.h"

namespace lkv {
namespace {

// What may follow a state, one bit a state. kFree follows by Remove alone.
constexpr uint32_t Bit(RecordState state) {
  return uint32_t{1} << static_cast<uint32_t>(state);
}
constexpr uint32_t Successors(RecordState state) {
  switch (state) {
    case RecordState::kFilling:
      return Bit(RecordState::kUnwritten);
    case RecordState::kUnwritten:
      return Bit(RecordState::kWriting);
    case RecordState::kWriting:
      return Bit(RecordState::kUnwritten) | Bit(RecordState::kResident);
    case RecordState::kResident:
      return Bit(RecordState::kOnDisk);
    case RecordState::kOnDisk:
      return Bit(RecordState::kFetching);
    case RecordState::kFetching:
      return Bit(RecordState::kArrived) | Bit(RecordState::kOnDisk) |
             Bit(RecordState::kLost);
    case RecordState::kArrived:
      return Bit(RecordState::kResident) | Bit(RecordState::kOnDisk);
    case RecordState::kFree:
    case RecordState::kLost:
      return 0;
  }
  return 0;
}

}  // namespace

RecordTable::RecordTable(uint32_t capacity)
    : capacity_(capacity), records_(capacity, Access::kSparse) {}

RecordTable::Record& RecordTable::At(RecordId id) {
  const auto index = static_cast<uint32_t>(id);
  CHECK(index < n_ever_used_);
  return records_.data()[index];
}

RecordId RecordTable::Add(uint32_t frame) {
  CHECK(n_used_ < capacity_);
  ++n_used_;
  uint32_t index = first_free_;
  if (index == kNone) {
    index = n_ever_used_++;
  } else {
    first_free_ = records_.data()[index].frame;
  }
  records_.data()[index] = {.state = RecordState::kFilling,
                            .n_failures = 0,
                            .n_pins = 0,
                            .n_holders = 1,
                            .frame = frame,
                            .place = kNone};
  return RecordId{index};
}

void RecordTable::Remove(RecordId id) {
  Record& record = At(id);
  CHECK(record.state != RecordState::kFree);
  CHECK(record.n_holders == 0 && record.n_pins == 0);
  record.state = RecordState::kFree;
  record.frame = first_free_;
  first_free_ = static_cast<uint32_t>(id);
  --n_used_;
}

void RecordTable::Move(RecordId id, RecordState to) {
  Record& record = At(id);
  CHECK((Successors(record.state) & Bit(to)) != 0);
  CHECK(HasFrame(to) || record.n_pins == 0);
  record.state = to;
  if (to == RecordState::kArrived) record.n_failures = 0;
}

uint32_t RecordTable::frame(RecordId id) const {
  CHECK(HasFrame(state(id)));
  return At(id).frame;
}

void RecordTable::Pin(RecordId id) {
  Record& record = At(id);
  CHECK(IsReadable(record.state));
  CHECK(record.n_pins < UINT16_MAX);
  ++record.n_pins;
}

void RecordTable::Unpin(RecordId id) {
  CHECK(At(id).n_pins > 0);
  --At(id).n_pins;
}

void RecordTable::Share(RecordId id) {
  CHECK(state(id) != RecordState::kFree && At(id).n_holders > 0);
  ++At(id).n_holders;
}

bool RecordTable::Release(RecordId id) {
  Record& record = At(id);
  CHECK(record.state != RecordState::kFree && record.n_holders > 0);
  CHECK(record.n_holders > 1 || record.n_pins == 0);
  return --record.n_holders == 0;
}

}  // namespace lkv
