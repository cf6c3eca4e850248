// The test model, opened once for all tests of a binary that need no other
// engine: loading takes longer than most of them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "engine/engine.h"
#include "testing/test_paths.h"

namespace lkv {

// One engine for each precision asked for. A test leaves nobody observing it.
template <ActivationPrecision precision = ActivationPrecision::kAuto>
Engine& SharedEngine() {
  static const std::unique_ptr<Engine> engine = [] {
    EngineOptions options;
    options.model_path = TestModelPath();
    options.activations = precision;
    Result<std::unique_ptr<Engine>> opened = Engine::Open(options);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? *std::move(opened) : nullptr;
  }();
  return *engine;
}

}  // namespace lkv
