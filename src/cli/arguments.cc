#include "cli/arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "base/machine.h"
#include "base/printable_text.h"
#include "cli/exit_code.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

// "1,,2" has an empty word.
std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

CLI::Option* AddListOption(
    CLI::App& app, const std::string& name, const std::string& description,
    std::function<void(const std::vector<std::string>&)> take) {
  return app
      .add_option_function<std::string>(
          name,
          [name, take = std::move(take)](const std::string& text) {
            const std::vector<std::string> words = SplitAtCommas(text);
            if (std::find(words.begin(), words.end(), "") != words.end()) {
              throw CLI::ValidationError(
                  name, Quoted(text) + " has an empty place in its list");
            }
            take(words);
          },
          description)
      ->type_name("LIST")
      ->allow_extra_args(false);
}

void AddThreads(CLI::App& app, uint32_t* n_threads) {
  app.add_option("--threads", *n_threads,
                 "Threads; default: the cores this process may use")
      ->type_name("N")
      ->check(WholeNumber(1, ThreadTeam::kMaxThreads));
}

}  // namespace

CLI::Validator OneOf(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](const std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) {
          return {};
        }
        std::string list;
        for (const std::string& word : words) {
          list += (list.empty() ? "" : " | ") + word;
        }
        return Quoted(text) + " is none of " + list;
      },
      "");
}

void ConfigArguments::AddTo(CLI::App& app, Offer offer) {
  app.add_option("--config", file_, "YAML file with the block lookahead_kv")
      ->type_name("FILE")
      ->check(NamesSomething());
  const auto add = [&](const char* key, std::optional<std::string>* text) {
    const OptionKey& option = *FindOption(key);
    std::string name = "--" + std::string(key);
    std::replace(name.begin(), name.end(), '_', '-');
    app.add_option(name, *text,
                   std::string(option.doc) + ": " + AllowedValues(option))
        ->type_name("VALUE");
  };
  if (offer != Offer::kFileOnly) add("kv_type", &kv_type_);
  if (offer == Offer::kAll) {
    app.add_option("--budget", budget_,
                   "Memory of the KV cache: " + std::string(kBudgetForms))
        ->type_name("SIZE");
    add("policy", &policy_);
    add("seed", &seed_);
  }
  app.add_option("--set", sets_,
                 "Any key of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->allow_extra_args(false);
}

Result<Configuration> ConfigArguments::Load() const {
  ConfigurationLayers layers;
  layers.file = file_;
  layers.environment = ReadEnvironment();
  for (const std::string& text : sets_) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return InvalidArgument("--set: " + Quoted(text) +
                             " has no '='; write --set key=value");
    }
    layers.command_line.push_back(
        {text.substr(0, equals), text.substr(equals + 1), "--set"});
  }
  const auto add = [&](const char* key, const char* option,
                       const std::optional<std::string>& text) {
    if (text) layers.command_line.push_back({key, *text, option});
  };
  add("budget", "--budget", budget_);
  add("policy", "--policy", policy_);
  add("kv_type", "--kv-type", kv_type_);
  add("seed", "--seed", seed_);
  auto configuration = Configuration::Load(layers);
  if (configuration.ok()) {
    for (const std::string& warning : configuration->warnings()) {
      PrintError(warning);
    }
  }
  return configuration;
}

void ModelArguments::AddTo(CLI::App& app, Offer offer) {
  app.add_option("-m,--model", model_,
                 "GGUF model; else $LKV_MODEL, else the one set-up fetched")
      ->type_name("FILE")
      ->check(NamesSomething());
  AddThreads(app, &n_threads_);
  if (offer == Offer::kThreads) return;
  app.add_option("--activations", activations_,
                 "auto: 8 bit in prefill, 16 while decoding; high: 16 bit")
      ->type_name("PRECISION")
      ->check(OneOf({"auto", "high"}));
  if (offer == Offer::kPrecision) return;
  app.add_option("--ctx", ctx_tokens_,
                 "Longest sequence; default: what the request needs, up to "
                 "the trained length")
      ->type_name("TOKENS")
      ->check(WholeNumber(1, 1u << 24));
  app.add_flag("--allow-beyond-trained", allow_beyond_trained_,
               "Allow sequences longer than the model was trained for");
}

Result<EngineOptions> ModelArguments::ToEngineOptions() const {
  auto model = ChooseModel(model_);
  if (!model.ok()) return model.status();
  EngineOptions options;
  options.model_path = std::move(*model);
  options.n_threads = n_threads_;
  options.activations = activations_ == "high" ? ActivationPrecision::kHigh
                                               : ActivationPrecision::kAuto;
  options.ctx_tokens = ctx_tokens_;
  options.allow_beyond_trained = allow_beyond_trained_;
  return options;
}

CLI::Validator NamesSomething() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.empty() ? std::string("is empty, name a file")
                            : std::string();
      },
      "");
}

CLI::Validator WholeNumber(uint32_t min, uint32_t max) {
  return CLI::Validator(
      [min, max](const std::string& text) -> std::string {
        uint32_t value = 0;
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        if (parsed.ec == std::errc() && parsed.ptr == end && value >= min &&
            value <= max) {
          return {};
        }
        return Quoted(text) + " is no whole number from " +
               std::to_string(min) + " to " + std::to_string(max);
      },
      "");
}

CLI::Option* AddList(CLI::App& app, const std::string& name,
                     std::vector<uint32_t>* numbers, uint32_t min, uint32_t max,
                     const std::string& description) {
  return AddListOption(
      app, name, description,
      [=,
       check = WholeNumber(min, max)](const std::vector<std::string>& words) {
        numbers->clear();
        for (std::string word : words) {
          const std::string problem = check(word);
          if (!problem.empty()) throw CLI::ValidationError(name, problem);
          numbers->push_back(static_cast<uint32_t>(std::stoul(word)));
        }
      });
}

CLI::Option* AddList(CLI::App& app, const std::string& name,
                     std::vector<std::string>* words,
                     const std::string& description) {
  return AddListOption(
      app, name, description,
      [=](const std::vector<std::string>& given) { *words = given; });
}

void ThreadArguments::AddTo(CLI::App& app) { AddThreads(app, &n_threads_); }

Result<std::unique_ptr<ThreadTeam>> ThreadArguments::CreateTeam() const {
  RemarkOnThreads(n_threads_);
  return ThreadTeam::Create(n_threads_ > 0 ? n_threads_
                                           : ThreadTeam::DefaultThreads());
}

void AddNumber(CLI::App& app, const std::string& name, uint32_t* number,
               uint32_t min, uint32_t max, const std::string& description) {
  app.add_option(name, *number,
                 description + " [" + std::to_string(*number) + "]")
      ->type_name("N")
      ->check(WholeNumber(min, max));
}

Result<std::vector<double>> ReadShares(const std::string& option,
                                       const std::vector<std::string>& texts) {
  std::vector<double> shares;
  for (const std::string& text : texts) {
    const Result<double> share = ParseShare(text);
    if (!share.ok()) {
      return InvalidArgument(option + ": " +
                             std::string(share.status().message()));
    }
    shares.push_back(*share);
  }
  return shares;
}

void RemarkOnThreads(uint32_t n_threads) {
  const uint32_t n_cores = UsableCores();
  if (n_threads <= n_cores) return;
  PrintError("--threads: " + std::to_string(n_threads) + " threads share the " +
             (n_cores == 1 ? "one core" : std::to_string(n_cores) + " cores") +
             " this process may use, which slows them down; leave it out to "
             "use each core once");
}

Result<std::string> ChooseModel(const std::string& given) {
  if (!given.empty()) return given;
  const char* variable = std::getenv("LKV_MODEL");
  if (variable != nullptr && *variable != '\0') return std::string(variable);

  std::vector<std::string> found;
  std::error_code failed;  // a missing folder holds no model
  for (std::filesystem::directory_iterator at(LKV_MODEL_DIR, failed), end;
       !failed && at != end; at.increment(failed)) {
    if (at->path().extension() == ".gguf") found.push_back(at->path());
  }
  if (found.empty()) {
    return NotFound("model: none given and none in " LKV_MODEL_DIR
                    "; pass -m FILE, set LKV_MODEL or run scripts/setup.sh");
  }
  return *std::min_element(found.begin(), found.end());
}

}  // namespace lkv::cli
