#include "cli/arguments.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/printable_text.h"
#include "base/thread_team.h"
#include "cli/exit_code.h"
#include "options/budget_text.h"

namespace lkv::cli {

void ConfigArguments::AddTo(CLI::App& app, Offer offer) {
  app.add_option("--config", file_, "YAML file with the block lookahead_kv")
      ->type_name("FILE")
      ->check(NamesSomething());
  if (offer == Offer::kAll) {
    app.add_option("--budget", budget_,
                   "Memory of the KV cache: " + std::string(kBudgetForms))
        ->type_name("SIZE");
    const auto add = [&](const char* key, std::optional<std::string>* text) {
      const OptionKey& option = *FindOption(key);
      std::string name = "--" + std::string(key);
      std::replace(name.begin(), name.end(), '_', '-');
      app.add_option(name, *text,
                     std::string(option.doc) + ": " + AllowedValues(option))
          ->type_name("VALUE");
    };
    add("policy", &policy_);
    add("kv_type", &kv_type_);
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
  app.add_option("--threads", n_threads_,
                 "Threads; default: the cores this process may use")
      ->type_name("N")
      ->check(CLI::Range(1u, ThreadTeam::kMaxThreads));
  if (offer == Offer::kThreads) return;
  app.add_option("--activations", activations_,
                 "auto: 8 bit in prefill, 16 while decoding; high: 16 bit")
      ->type_name("PRECISION")
      ->check(CLI::IsMember({"auto", "high"}));
  if (offer == Offer::kPrecision) return;
  app.add_option("--ctx", ctx_tokens_,
                 "Longest sequence; default: what the request needs, up to "
                 "the trained length")
      ->type_name("TOKENS")
      ->check(CLI::Range(1u, 1u << 24));
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
