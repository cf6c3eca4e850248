#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "base/unsigned_f8.h"
#include "io/crc32c.h"
#include "testing/memory_file_system.h"
#include "trace/block_layout.h"
#include "trace/synthetic_trace.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace lkv {
namespace {

constexpr char kPath[] = "a.trace";

// 2 of 3 layers, 2 KV heads: 4 lanes.
TraceInfo SmallInfo() {
  return {.shape = {.n_layers = 3, .n_kv_heads = 2, .group = 3, .head_dim = 16},
          .layers = {0, 2},
          .model = "0123",
          .text = "a text"};
}

// Masses that are different for every (lane, step, position) and sum to 1.
std::vector<float> Masses(uint32_t lane, uint32_t step) {
  std::vector<float> mass(step + 1);
  for (uint32_t i = 0; i <= step; ++i) {
    mass[i] = 1 + static_cast<float>((i * 7 + step * 3 + lane * 5) % 11);
  }
  const float sum = std::accumulate(mass.begin(), mass.end(), 0.0f);
  for (float& m : mass) m /= sum;
  return mass;
}

void WriteStep(TraceWriter& writer, uint32_t n_lanes) {
  const uint32_t step = writer.n_steps();
  for (uint32_t lane = 0; lane < n_lanes; ++lane) {
    const std::vector<float> mean = Masses(lane, step);
    std::vector<float> max = mean;
    for (float& m : max) m = std::min(1.0f, 2 * m);
    writer.AddStep(lane, {.value_norm = static_cast<float>(step),
                          .value_distance = 0.5f * static_cast<float>(lane),
                          .mass_max = max.data(),
                          .mass_mean = mean.data()});
    if (HasExpectation(step)) writer.AddExpectation(lane, mean);
  }
}

class TraceFileTest : public testing::Test {
 protected:
  // Writes a trace of so many steps.
  Status Write(uint32_t n_steps) {
    auto writer = TraceWriter::Create(files_, kPath, SmallInfo());
    if (!writer.ok()) return writer.status();
    for (uint32_t step = 0; step < n_steps; ++step) {
      WriteStep(**writer, SmallInfo().n_lanes());
      if (Status s = (*writer)->FinishStep(); !s.ok()) return s;
    }
    return (*writer)->Finish();
  }
  std::vector<uint8_t>& bytes() { return files_.files[kPath]; }

  // What opening the file and reading all lanes says.
  Status ReadAll() {
    const auto reader = TraceReader::Open(files_, kPath);
    if (!reader.ok()) return reader.status();
    for (uint32_t lane = 0; lane < reader->info().n_lanes(); ++lane) {
      if (auto trace = reader->ReadLane(lane); !trace.ok()) {
        return trace.status();
      }
    }
    return {};
  }

  MemoryFileSystem files_;
};

TEST_F(TraceFileTest, GivesBackWhatWasWritten) {
  // More than one segment, the last one not full; token rows of both kinds.
  const uint32_t n_steps = 3 * kSegmentSteps + 9;
  ASSERT_TRUE(Write(n_steps).ok());
  const auto reader = TraceReader::Open(files_, kPath);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->n_steps(), n_steps);
  EXPECT_EQ(reader->info().layers, SmallInfo().layers);
  EXPECT_EQ(reader->info().model, "0123");
  EXPECT_EQ(reader->info().text, "a text");
  EXPECT_EQ(reader->info().shape.group, 3u);
  for (uint32_t lane = 0; lane < 4; ++lane) {
    const auto trace = reader->ReadLane(lane);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    ASSERT_EQ(trace->n_steps(), n_steps);
    for (uint32_t step = 0; step < n_steps; ++step) {
      EXPECT_EQ(trace->value_norm(step), step);
      EXPECT_EQ(trace->value_distance(step), 0.5f * lane);
      const std::vector<float> mean = Masses(lane, step);
      for (uint32_t p = 0; p < PagesOf(step + 1); ++p) {
        const auto begin = mean.begin() + p * kPageTokens;
        const auto end =
            mean.begin() + std::min((p + 1) * kPageTokens, step + 1);
        const float sum = std::accumulate(begin, end, 0.0f);
        EXPECT_NEAR(trace->pages(step).mean[p], sum, sum / 1024);
        EXPECT_GE(trace->pages(step).max[p], sum / 1.001f);
        const float peak = std::min(1.0f, 2 * *std::max_element(begin, end));
        EXPECT_EQ(trace->pages(step).peak[p],
                  UnsignedF8ToF32(F32ToUnsignedF8(peak)));
      }
      if (!HasTokenRows(step)) continue;
      for (uint32_t i = 0; i <= step; ++i) {
        EXPECT_NEAR(trace->tokens(step).mean[i], mean[i], mean[i] / 16);
        EXPECT_NEAR(trace->tokens(step).max[i], std::min(1.0f, 2 * mean[i]),
                    mean[i] / 8);
      }
    }
  }
}

TEST_F(TraceFileTest, GivesBackWhatWasExpectedBehindEverySegment) {
  ASSERT_TRUE(Write(3 * kSegmentSteps + 5).ok());
  const auto reader = TraceReader::Open(files_, kPath);
  ASSERT_TRUE(reader.ok());
  for (uint32_t lane = 0; lane < 4; ++lane) {
    const auto trace = reader->ReadLane(lane);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    for (uint32_t segment = 0; segment < 3; ++segment) {
      const uint32_t step = (segment + 1) * kSegmentSteps - 1;
      ASSERT_TRUE(HasExpectation(step));
      const std::vector<float> mass = Masses(lane, step);
      for (uint32_t i = 0; i <= step; ++i) {
        EXPECT_EQ(trace->expectation(step)[i],
                  UnsignedF8ToF32(F32ToUnsignedF8(mass[i])))
            << "lane " << lane << ", step " << step << ", token " << i;
      }
    }
  }
}

TEST_F(TraceFileTest, GivesBackTheSecondReading) {
  for (uint32_t n_steps : {kSegmentSteps, kSegmentSteps + 9}) {
    auto writer = TraceWriter::Create(files_, kPath, SmallInfo());
    ASSERT_TRUE(writer.ok());
    for (uint32_t step = 0; step < n_steps; ++step) {
      WriteStep(**writer, 4);
      ASSERT_TRUE((*writer)->FinishStep().ok());
    }
    for (uint32_t lane = 0; lane < 4; ++lane) {
      std::vector<float> most(n_steps, 0.25f);
      most[lane] = 0.5f;
      ASSERT_TRUE((*writer)->AddReread(most).ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
    const auto reader = TraceReader::Open(files_, kPath);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_TRUE(reader->has_reread());
    for (uint32_t lane = 0; lane < 4; ++lane) {
      const auto trace = reader->ReadLane(lane);
      ASSERT_TRUE(trace.ok()) << trace.status().message();
      EXPECT_EQ(trace->n_steps(), n_steps);
      ASSERT_EQ(trace->reread().size(), n_steps);
      for (uint32_t i = 0; i < n_steps; ++i) {
        EXPECT_EQ(trace->reread()[i], i == lane ? 0.5f : 0.25f);
      }
    }
  }
}

TEST_F(TraceFileTest, HasNoSecondReadingThatNobodyRecorded) {
  ASSERT_TRUE(Write(70).ok());
  const auto reader = TraceReader::Open(files_, kPath);
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(reader->has_reread());
  EXPECT_TRUE(reader->ReadLane(0)->reread().empty());
}

TEST_F(TraceFileTest, HasTheSizeThatTheFormatStates) {
  EXPECT_LT(90 * StepRecordsBytes(0, 4096), 476'000'000u)
      << "90 lanes of 4,096 tokens";
}

TEST_F(TraceFileTest, RefusesEveryCut) {
  ASSERT_TRUE(Write(70).ok());
  const std::vector<uint8_t> whole = bytes();
  for (size_t n = 0; n < whole.size(); n += 1 + n / 50) {
    bytes().assign(whole.begin(), whole.begin() + static_cast<long>(n));
    const Status s = ReadAll();
    EXPECT_EQ(s.code(), StatusCode::kCorrupt) << n << " bytes";
    EXPECT_NE(s.message().find(kPath), std::string::npos);
  }
}

TEST_F(TraceFileTest, RefusesEveryAlteredByte) {
  ASSERT_TRUE(Write(20).ok());
  for (size_t i = 0; i < bytes().size(); ++i) {
    bytes()[i] ^= 0x20;
    EXPECT_EQ(ReadAll().code(), StatusCode::kCorrupt) << "byte " << i;
    bytes()[i] ^= 0x20;
  }
  EXPECT_TRUE(ReadAll().ok());
}

TEST_F(TraceFileTest, SaysWhatIsNoTrace) {
  bytes() = std::vector<uint8_t>(1000, 'x');
  const Status s = ReadAll();
  EXPECT_EQ(s.code(), StatusCode::kCorrupt);
  EXPECT_NE(s.message().find("no attention trace"), std::string::npos);
}

TEST_F(TraceFileTest, RefusesAttentionThatIsNone) {
  for (float wrong : {std::numeric_limits<float>::quiet_NaN(), -0.5f, 3.0f}) {
    auto writer = TraceWriter::Create(files_, kPath, SmallInfo());
    ASSERT_TRUE(writer.ok());
    for (uint32_t lane = 0; lane < 4; ++lane) {
      (*writer)->AddStep(lane, {.mass_max = &wrong, .mass_mean = &wrong});
    }
    ASSERT_TRUE((*writer)->FinishStep().ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    const Status s = ReadAll();
    EXPECT_EQ(s.code(), StatusCode::kCorrupt) << wrong;
    EXPECT_NE(s.message().find("step 0"), std::string::npos);
  }
}

TEST_F(TraceFileTest, RefusesAnExpectationThatIsNone) {
  auto writer = TraceWriter::Create(files_, kPath, SmallInfo());
  ASSERT_TRUE(writer.ok());
  for (uint32_t step = 0; step < kSegmentSteps; ++step) {
    std::vector<float> mass = Masses(0, step);
    for (uint32_t lane = 0; lane < 4; ++lane) {
      (*writer)->AddStep(lane,
                         {.mass_max = mass.data(), .mass_mean = mass.data()});
      if (!HasExpectation(step)) continue;
      mass[7] += 0.2f;  // sums to 1.2
      (*writer)->AddExpectation(lane, mass);
      mass[7] -= 0.2f;
    }
    ASSERT_TRUE((*writer)->FinishStep().ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  const Status s = ReadAll();
  EXPECT_EQ(s.code(), StatusCode::kCorrupt);
  EXPECT_NE(s.message().find("step 63 holds an expectation"), std::string::npos)
      << s.message();
}

TEST_F(TraceFileTest, RefusesAnotherVersionByItsNumber) {
  ASSERT_TRUE(Write(20).ok());
  uint64_t payload_bytes = 0;
  std::memcpy(&payload_bytes, &bytes()[8], sizeof(payload_bytes));
  bytes()[kBlockHeadBytes] = 2;  // the info block begins with it
  const uint32_t crc =
      Crc32c(std::span(bytes()).subspan(kBlockCheckedAt, payload_bytes + 8));
  std::memcpy(&bytes()[4], &crc, sizeof(crc));
  const Status s = ReadAll();
  EXPECT_EQ(s.code(), StatusCode::kCorrupt);
  EXPECT_NE(s.message().find("is of version 2"), std::string::npos)
      << s.message();
}

TEST_F(TraceFileTest, LeavesTheOldFileWhenTheDiskIsFull) {
  ASSERT_TRUE(Write(20).ok());
  const std::vector<uint8_t> old = bytes();
  for (uint64_t free_bytes : {uint64_t{0}, uint64_t{100}, uint64_t{5000}}) {
    files_.free_bytes = free_bytes;
    EXPECT_EQ(Write(80).code(), StatusCode::kIo) << free_bytes;
    EXPECT_EQ(bytes(), old);
  }
  files_.free_bytes = UINT64_MAX;
  files_.refuses_commit = true;
  EXPECT_EQ(Write(80).code(), StatusCode::kIo);
  EXPECT_EQ(bytes(), old);
}

TEST_F(TraceFileTest, RefusesNothingToRecord) {
  EXPECT_EQ(Write(0).code(), StatusCode::kInvalidArgument);
  TraceInfo info = SmallInfo();
  info.layers.clear();
  EXPECT_EQ(TraceWriter::Create(files_, kPath, info).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lkv
