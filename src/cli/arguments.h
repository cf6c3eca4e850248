// Options that several verbs share: which configuration, which model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "engine/engine.h"
#include "lookaheadkv/status.h"
#include "options/configuration.h"

namespace lkv::cli {

// --config, --set and the keys that have an option of their own.
class ConfigArguments {
 public:
  // Keys that a verb offers as options; the rest goes through --set.
  enum class Offer { kFileOnly, kKvType, kAll };
  void AddTo(CLI::App& app, Offer offer);

  // Prints a line for each variable LKV_... that nothing reads.
  Result<Configuration> Load() const;

 private:
  std::optional<std::string> file_;
  std::vector<std::string> sets_;  // "key=value"
  std::optional<std::string> budget_, policy_, kv_type_, seed_;
};

// -m, --threads, --activations, --ctx, --allow-beyond-trained.
class ModelArguments {
 public:
  enum class Offer {
    kThreads,    // model and threads
    kPrecision,  // and --activations
    kAll,        // and the limits of a sequence
  };
  void AddTo(CLI::App& app, Offer offer);

  // kNotFound when no model is named anywhere.
  Result<EngineOptions> ToEngineOptions() const;

 private:
  std::string model_;
  uint32_t n_threads_ = 0;
  std::string activations_ = "auto";
  uint32_t ctx_tokens_ = 0;
  bool allow_beyond_trained_ = false;
};

// --threads of a verb that runs no model.
class ThreadArguments {
 public:
  void AddTo(CLI::App& app);
  // Remarks on more threads than cores. kOutOfMemory when the system refuses
  // one.
  Result<std::unique_ptr<ThreadTeam>> CreateTeam() const;

 private:
  uint32_t n_threads_ = 0;  // 0: the cores this process may use
};

// Refuses an empty text where a file is to be named: a variable of a script
// that was not set.
CLI::Validator NamesSomething();

// Refuses all but these words.
CLI::Validator OneOf(std::vector<std::string> words);

// Refuses all but whole numbers from min to max.
CLI::Validator WholeNumber(uint32_t min, uint32_t max);

// Seeds have the range of the key `seed`.
inline constexpr uint32_t kMostSeed = 0xffffffff;

// An option that takes a whole number from min to max; its help shows the
// number's value as the default.
void AddNumber(CLI::App& app, const std::string& name, uint32_t* number,
               uint32_t min, uint32_t max, const std::string& description);

// Shares such as "12.5%" that were given to `option`.
Result<std::vector<double>> ReadShares(const std::string& option,
                                       const std::vector<std::string>& texts);

// An option that takes "0,2048,8192" or "full,25%". CLI11's own lists drop
// empty words; here they are refused.
CLI::Option* AddList(CLI::App& app, const std::string& name,
                     std::vector<uint32_t>* numbers, uint32_t min, uint32_t max,
                     const std::string& description);
CLI::Option* AddList(CLI::App& app, const std::string& name,
                     std::vector<std::string>* words,
                     const std::string& description);

// Says on stderr when n_threads are more than there are cores.
void RemarkOnThreads(uint32_t n_threads);

// The model to use: the given path, else $LKV_MODEL, else the first *.gguf in
// the folder that scripts/setup.sh fills. kNotFound when there is none.
Result<std::string> ChooseModel(const std::string& given);

}  // namespace lkv::cli
