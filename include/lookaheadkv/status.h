// Status and Result<T>: how every call of the library reports failure.
//
// The library never throws across its border, prints or exits. What can fail
// because of the environment (disk, memory, user input, file contents) returns
// a Status; what would be our own bug stops the process through CHECK.
//
// Thread rule: values, thread-compatible. Cost: success is one null pointer.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lkv {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller or the configuration asked for nonsense
  kNotFound,         // a file, model or permission is missing
  kCorrupt,          // contents are damaged or of an unsupported kind
  kOutOfMemory,      // would not fit the budget or the machine
  kCancelled,        // stopped on request
  kIo,               // the operating system refused
};

// Why a call failed, in one sentence that names the thing and the remedy:
// "<thing>: <what is wrong>; <what to do>".
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : failure_(std::make_shared<const Failure>(
            Failure{code, std::move(message)})) {}

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : failure_->code; }
  std::string_view message() const {
    return ok() ? std::string_view() : std::string_view(failure_->message);
  }

 private:
  struct Failure {
    StatusCode code;
    std::string message;
  };
  // Immutable and shared by all copies of one status, so that copying a
  // failure never copies its text.
  std::shared_ptr<const Failure> failure_;
};

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status NotFound(std::string message) {
  return {StatusCode::kNotFound, std::move(message)};
}
inline Status Corrupt(std::string message) {
  return {StatusCode::kCorrupt, std::move(message)};
}
inline Status OutOfMemory(std::string message) {
  return {StatusCode::kOutOfMemory, std::move(message)};
}
inline Status Cancelled(std::string message) {
  return {StatusCode::kCancelled, std::move(message)};
}
inline Status IoError(std::string message) {
  return {StatusCode::kIo, std::move(message)};
}

// A value, or the Status that explains why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  // Requires !failure.ok(): success without a value stops the process.
  Result(Status failure) : state_(std::move(failure)) {
    if (std::get<Status>(state_).ok()) std::abort();
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

  // Requires ok(); otherwise stops the process (noexcept), and never throws.
  T& value() & noexcept { return std::get<T>(state_); }
  const T& value() const& noexcept { return std::get<T>(state_); }
  T&& value() && noexcept { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace lkv
