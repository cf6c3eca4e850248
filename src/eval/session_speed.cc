#include "eval/session_speed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "base/stopwatch.h"
#include "eval/percentile.h"
#include "session/store_files.h"

namespace lkv {
namespace {

constexpr const char* kName = "lkv bench sessions";

// So that the next reader has to go to the disk: what is there already, that
// is, with a durability other than none.
Status DropFromPageCache(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  const int error =
      file < 0 ? errno : posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  if (file >= 0) close(file);
  if (error == 0) return {};
  return IoError(path + ": cannot be driven out of the page cache");
}

SessionSpeedRow::Seconds Summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {Percentile<double>(values, 50), values.front(), values.back()};
}

// A folder that nobody else's sessions have to leave for.
class BenchFolder {
 public:
  explicit BenchFolder(std::string path) : path_(std::move(path)) {}
  ~BenchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

class Rounds {
 public:
  Rounds(Engine& engine, Sessions& sessions, const CacheOptions& cache,
         std::span<const int32_t> text, const std::function<bool()>& cancelled)
      : engine_(engine),
        sessions_(sessions),
        text_(text),
        cancelled_(cancelled) {
    options_.cache = cache;
    options_.prompt_tokens = static_cast<uint32_t>(text.size());
    options_.max_new_tokens = 1;
    row_.n_tokens = options_.prompt_tokens - 1;
    row_.is_same = true;
  }

  Status RunOne() {
    std::string id;
    std::vector<float> expected;
    {
      auto sequence = engine_.Start(options_);
      if (!sequence.ok()) return sequence.status();
      const Stopwatch watch;
      Status status =
          (*sequence)->Prefill(text_.first(text_.size() - 1), {}, cancelled_);
      if (!status.ok()) return status;
      read_.push_back(watch.Seconds());
      auto saved = sessions_.Save(engine_, **sequence, kName, {});
      if (!saved.ok()) return saved.status();
      save_.push_back(saved->seconds);
      id = saved->id;
      if (Status s = (*sequence)->Decode(text_.back()); !s.ok()) return s;
      expected.assign((*sequence)->logits().begin(),
                      (*sequence)->logits().end());
    }
    Status status =
        DropFromPageCache(sessions_.folder().path() + "/" + id + ".session");
    if (!status.ok()) return status;
    const Stopwatch watch;
    auto beginning = sessions_.Begin(engine_, options_, text_, kName);
    if (!beginning.ok()) return beginning.status();
    restore_.push_back(watch.Seconds());
    if (beginning->cached_tokens != row_.n_tokens) {
      return Corrupt("session: was not taken whole (" + beginning->miss + " " +
                     beginning->detail + ")");
    }
    row_.n_bytes = beginning->read_bytes;
    row_.read_path = sessions_.folder().read_path();
    ratio_.push_back(read_.back() / restore_.back());
    Sequence& restored = *beginning->sequence;
    if (Status s = restored.Decode(text_.back()); !s.ok()) return s;
    row_.is_same = row_.is_same && std::equal(expected.begin(), expected.end(),
                                              restored.logits().begin());
    return sessions_.store().Remove(id);
  }

  SessionSpeedRow Finish() {
    row_.read = Summary(std::move(read_));
    row_.save = Summary(std::move(save_));
    row_.restore = Summary(std::move(restore_));
    row_.ratio = Summary(std::move(ratio_));
    return row_;
  }

 private:
  Engine& engine_;
  Sessions& sessions_;
  const std::span<const int32_t> text_;
  const std::function<bool()>& cancelled_;
  SequenceOptions options_;
  SessionSpeedRow row_;
  std::vector<double> read_, save_, restore_, ratio_;
};

}  // namespace

Result<std::vector<SessionSpeedRow>> MeasureSessionSpeed(
    Engine& engine, const SessionSpeedOptions& options,
    const std::function<void(const SessionSpeedRow&)>& on_row,
    const std::function<bool()>& cancelled) {
  // Says, too, whether the folder can be used at all.
  auto users = Sessions::Open(options.cache);
  if (!users.ok()) return users.status();
  const BenchFolder folder((*users)->folder().path() + ".bench" +
                           std::to_string(getpid()));
  CacheOptions cache = options.cache;
  cache.sessions_path = folder.path();
  auto sessions = Sessions::Open(cache);
  if (!sessions.ok()) return sessions.status();
  std::vector<SessionSpeedRow> rows;
  for (const uint32_t length : options.lengths) {
    std::vector<int32_t> text(length + 1);
    for (size_t i = 0; i < text.size(); ++i) {
      text[i] = options.text[i % options.text.size()];
    }
    Rounds rounds(engine, **sessions, cache, text, cancelled);
    for (uint32_t round = 0; round < options.n_rounds; ++round) {
      if (Status s = rounds.RunOne(); !s.ok()) return s;
    }
    rows.push_back(rounds.Finish());
    if (on_row) on_row(rows.back());
  }
  return rows;
}

}  // namespace lkv
