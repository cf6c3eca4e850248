#include "eval/io_speed.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/errno_text.h"
#include "base/stopwatch.h"
#include "base/types.h"
#include "eval/percentile.h"
#include "io/io_buffer.h"
#include "io/open_block_io.h"

namespace lkv {
namespace {

constexpr uint32_t kPieceBytes = 256 * 1024;
constexpr uint32_t kWaitUs = 100'000;
constexpr double kUs = 1e6;

Status Failed(const OpenedBlockIo& opened, const IoCompletion& completion) {
  return IoError(opened.file->path() + ": cannot be used (" +
                 ErrnoText(completion.error) +
                 "); check the disk and its free space");
}

// Writes the file, a piece at a time.
Status FillFile(OpenedBlockIo& opened, uint64_t file_bytes) {
  IoBuffer piece(kPieceBytes);
  std::mt19937_64 random(1);
  for (uint64_t offset = 0; offset < file_bytes; offset += kPieceBytes) {
    for (size_t i = 0; i < piece.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(piece.data() + i, &word, sizeof(word));
    }
    const IoRequest request = {.kind = IoRequest::Kind::kWrite,
                               .offset = offset,
                               .data = piece.data(),
                               .n_bytes = kPieceBytes};
    CHECK(opened.io->Submit({&request, 1}) == 1);
    IoCompletion completion;
    while (opened.io->Poll({&completion, 1}) == 0) opened.io->Wait(kWaitUs);
    if (completion.error != 0) return Failed(opened, completion);
  }
  return {};
}

// One row while it is measured.
struct Measured {
  OpenedBlockIo* opened = nullptr;
  IoSpeedRow row;
  std::vector<double> rates;       // [passes]
  std::vector<double> latency_us;  // [passes, reads]
  std::vector<double> submit_us;   // [calls]
  double cpu_us = 0;               // of all passes
};

// Keeps `depth` reads under way until n_reads are done.
class Reading {
 public:
  Reading(const IoSpeedOptions& options, Measured& measured, uint64_t seed)
      : io_(*measured.opened->io),
        measured_(measured),
        read_bytes_(
            CeilDiv(options.read_bytes, measured.opened->read_alignment) *
            measured.opened->read_alignment),
        n_places_(options.file_bytes / read_bytes_),
        n_reads_(options.n_reads),
        begun_us_(measured.row.depth),
        random_(seed) {
    buffers_.reserve(measured.row.depth);
    for (uint32_t i = 0; i < measured.row.depth; ++i) {
      buffers_.emplace_back(read_bytes_);
      free_.push_back(i);
    }
  }

  // What is under way writes into the buffers.
  ~Reading() {
    IoCompletion completions[32];
    while (io_.n_pending() > 0) {
      if (io_.Poll(completions) == 0) io_.Wait(kWaitUs);
    }
  }

  Status Run() {
    uint32_t n_done = 0;
    while (n_done < n_reads_) {
      Submit();
      IoCompletion completions[32];
      size_t n = io_.Poll(completions);
      if (n == 0) {
        io_.Wait(kWaitUs);
        n = io_.Poll(completions);
      }
      const double now_us = watch_.Seconds() * kUs;
      for (size_t i = 0; i < n; ++i) {
        if (completions[i].error != 0) {
          return Failed(*measured_.opened, completions[i]);
        }
        const auto buffer = static_cast<uint32_t>(completions[i].tag);
        measured_.latency_us.push_back(now_us - begun_us_[buffer]);
        free_.push_back(buffer);
        ++n_done;
      }
    }
    measured_.rates.push_back(n_reads_ / watch_.Seconds());
    measured_.cpu_us += cpu_watch_.Seconds() * kUs;
    return {};
  }

 private:
  void Submit() {
    requests_.clear();
    while (!free_.empty() && n_begun_ < n_reads_) {
      const uint32_t buffer = free_.back();
      free_.pop_back();
      ++n_begun_;
      requests_.push_back({.tag = buffer,
                           .offset = random_() % n_places_ * read_bytes_,
                           .data = buffers_[buffer].data(),
                           .n_bytes = read_bytes_});
    }
    if (requests_.empty()) return;
    const double begin_us = watch_.Seconds() * kUs;
    for (const IoRequest& request : requests_) {
      begun_us_[request.tag] = begin_us;
    }
    CHECK(io_.Submit(requests_) == requests_.size());
    measured_.submit_us.push_back((watch_.Seconds() * kUs - begin_us) /
                                  static_cast<double>(requests_.size()));
  }

  BlockIo& io_;
  Measured& measured_;
  const uint32_t read_bytes_;
  const uint64_t n_places_;
  const uint32_t n_reads_;
  uint32_t n_begun_ = 0;
  std::vector<IoBuffer> buffers_;  // [depth]
  std::vector<uint32_t> free_;
  std::vector<double> begun_us_;  // [depth]
  std::vector<IoRequest> requests_;
  std::mt19937_64 random_;
  const Stopwatch watch_;
  const CpuStopwatch cpu_watch_;
};

IoSpeedRow RowOf(Measured& measured) {
  std::sort(measured.rates.begin(), measured.rates.end());
  std::sort(measured.latency_us.begin(), measured.latency_us.end());
  std::sort(measured.submit_us.begin(), measured.submit_us.end());
  const auto percentile = [](const std::vector<double>& sorted, double at) {
    return Percentile(std::span<const double>(sorted), at);
  };
  IoSpeedRow row = measured.row;
  row.reads_per_second = percentile(measured.rates, 50);
  row.latency_p50_us = percentile(measured.latency_us, 50);
  row.latency_p99_us = percentile(measured.latency_us, 99);
  row.submit_p50_us = percentile(measured.submit_us, 50);
  row.submit_p99_us = percentile(measured.submit_us, 99);
  row.cpu_us =
      measured.cpu_us / static_cast<double>(measured.latency_us.size());
  return row;
}

}  // namespace

Result<std::vector<IoSpeedRow>> MeasureIoSpeed(
    const IoSpeedOptions& options, const std::function<bool()>& is_cancelled) {
  Result<std::unique_ptr<Folder>> folder = OpenLocalFolder(options.folder);
  if (!folder.ok()) return folder.status();
  std::vector<std::unique_ptr<OpenedBlockIo>> all;
  std::vector<Measured> measured;
  for (const auto method :
       {BlockIoOptions::Method::kBest, BlockIoOptions::Method::kThreads}) {
    Result<OpenedBlockIo> opened = OpenBlockIo(**folder, {.method = method});
    if (!opened.ok()) return opened.status();
    all.push_back(std::make_unique<OpenedBlockIo>(*std::move(opened)));
    const std::string& description = all.back()->description;
    const bool is_ring = description.starts_with("io_uring");
    // Denied: both are threads, and one row says why.
    if (method == BlockIoOptions::Method::kThreads &&
        !all.front()->description.starts_with("io_uring")) {
      continue;
    }
    if (Status s = FillFile(*all.back(), options.file_bytes); !s.ok()) return s;
    for (const uint32_t depth : options.depths) {
      CHECK(depth >= 1 && depth <= all.back()->io->capacity());
      Measured row;
      row.opened = all.back().get();
      row.row.method = is_ring ? "io_uring" : "threads";
      row.row.description = description;
      row.row.depth = depth;
      measured.push_back(std::move(row));
    }
  }
  uint64_t seed = 0;
  for (uint32_t pass = 0; pass < options.n_passes; ++pass) {
    for (Measured& row : measured) {
      if (is_cancelled()) return Cancelled("stopped on request");
      Reading reading(options, row, ++seed);
      if (Status s = reading.Run(); !s.ok()) return s;
    }
  }
  std::vector<IoSpeedRow> rows;
  for (Measured& row : measured) rows.push_back(RowOf(row));
  return rows;
}

}  // namespace lkv
