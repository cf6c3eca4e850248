#include "cli/config_verb.h"

#include <algorithm>

#include "base/byte_text.h"
#include "base/printable_text.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "eval/kv_sizes.h"
#include "gguf/gguf_file.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "options/budget_text.h"
#include "options/option_table.h"
#include "options/presets.h"
#include "options/suggestion.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

Json KeyAsJson(const OptionKey& key) {
  return {{"key", key.name},
          {"default", FormatOption(key, CacheOptions())},
          {"allowed", AllowedValues(key)},
          {"unit", key.unit},
          {"environment", EnvironmentName(key)},
          {"meaning", key.doc},
          {"formula", key.formula}};
}

std::string KeyAsText(const OptionKey& key) {
  std::string out = std::string(key.name) + "\n";
  const auto add = [&](const std::string& label, std::string text) {
    if (text.empty()) return;
    std::string indent = "  " + label + std::string(13 - label.size(), ' ');
    for (const std::string& line : WrapText(text, 64)) {
      out += indent + line + '\n';
      indent.assign(indent.size(), ' ');
    }
  };
  add("meaning", std::string(key.doc));
  add("how", std::string(key.formula));
  add("default", FormatOption(key, CacheOptions()));
  add("allowed", AllowedValues(key));
  add("unit", std::string(key.unit));
  add("environment", EnvironmentName(key));
  return out;
}

std::string KvTypeText(const CacheOptions& cache) {
  return FormatOption(*FindOption("kv_type"), cache);
}

Result<uint64_t> ReadBytes(const std::string& option, const std::string& text) {
  const auto budget = ParseBudget(text);
  if (!budget.ok() || budget->kind != Budget::Kind::kBytes) {
    return InvalidArgument(option + ": " + Quoted(text) +
                           " is no number of bytes; write for example 24GiB");
  }
  return budget->amount;
}

}  // namespace

Result<ConfigVerb::ModelSize> ConfigVerb::ReadModelSize() const {
  ModelSize size;
  const bool has_shape = n_layers_ > 0 || n_kv_heads_ > 0 || head_dim_ > 0;
  if (has_shape) {
    if (!model_.empty() || n_layers_ == 0 || n_kv_heads_ == 0 ||
        head_dim_ == 0 || head_dim_ % kPageTokens != 0) {
      return InvalidArgument(
          "config memory: name a model, or --layers, --kv-heads and --head-dim "
          "(a multiple of 16)");
    }
    size.shape = {.n_layers = n_layers_,
                  .n_kv_heads = n_kv_heads_,
                  .group = 1,
                  .head_dim = head_dim_};
  } else {
    const auto path = ChooseModel(model_);
    if (!path.ok()) return path.status();
    const auto file = GgufFile::Open(*path);
    if (!file.ok()) return file.status();
    const auto architecture = ReadArchitecture(**file);
    if (!architecture.ok()) return architecture.status();
    size.shape = architecture->kv_shape();
    size.weight_bytes = WeightBytes(**file, *architecture);
  }
  if (!weights_.empty()) {
    const auto n_bytes = ReadBytes("--weights", weights_);
    if (!n_bytes.ok()) return n_bytes.status();
    size.weight_bytes = *n_bytes;
  }
  return size;
}

void ConfigVerb::AddTo(CLI::App& app) {
  verb_ = app.add_subcommand("config", "Show, check and explain options");
  verb_->require_subcommand(1);
  verb_->footer(
      "Example:\n  lkv config show --config my.yaml --set budget=25%");

  CLI::App* show = verb_->add_subcommand(
      "show", "Print the effective value of every key and its origin");
  config_.AddTo(*show, ConfigArguments::Offer::kAll);
  show->add_flag("--json", json_, "Print one JSON document");
  show->footer("Example:\n  LKV_BUDGET=25% lkv config show --config my.yaml");

  CLI::App* check =
      verb_->add_subcommand("check", "Say whether a file would be accepted");
  check->add_option("file", file_, "YAML file")
      ->required()
      ->type_name("FILE")
      ->check(NamesSomething());
  check->add_flag("--json", json_, "Print one JSON document");
  check->footer("Example:\n  lkv config check my.yaml");

  CLI::App* explain = verb_->add_subcommand("explain", "Say what keys mean");
  explain->add_option("key", key_, "A key; default: all of them")
      ->type_name("KEY");
  explain->add_flag("--markdown", markdown_,
                    "Print the table of docs/configuration.md");
  explain->add_flag("--json", json_, "Print one JSON document");
  explain->footer("Example:\n  lkv config explain window_law");

  CLI::App* memory = verb_->add_subcommand(
      "memory", "What the KV cache of a long text takes, and whether it fits");
  memory->add_option("-m,--model", model_, "GGUF file whose shape counts")
      ->type_name("FILE");
  AddNumber(*memory, "--layers", &n_layers_, 0, 1024,
            "Layers of a model that is not at hand");
  AddNumber(*memory, "--kv-heads", &n_kv_heads_, 0, 1024, "Its KV heads");
  AddNumber(*memory, "--head-dim", &head_dim_, 0, kMaxHeadDim,
            "Elements of one of its heads");
  memory->add_option("--weights", weights_, "What its weights take")
      ->type_name("BYTES");
  AddNumber(*memory, "--context", &context_, 1, 1u << 24, "Tokens of the text");
  memory
      ->add_option("--memory", memory_,
                   "Fast memory, of a card or a machine [24GiB]")
      ->type_name("BYTES");
  memory->add_flag("--json", json_, "Print one JSON document");
  memory->footer(
      "Example:\n"
      "  lkv config memory -m model.gguf --context 32768\n"
      "  lkv config memory --layers 32 --kv-heads 32 --head-dim 128 \\\n"
      "      --weights 13GB --context 32768 --memory 24GiB");

  CLI::App* presets =
      verb_->add_subcommand("presets", "List the presets and what they set");
  presets->add_flag("--json", json_, "Print one JSON document");
  presets->footer(
      "Example:\n  lkv config presets\n  lkv run --set preset=code -f main.cc");
}

ExitCode ConfigVerb::Run(Output& out) const {
  if (verb_->got_subcommand("show")) return Show(out);
  if (verb_->got_subcommand("check")) return Check(out);
  if (verb_->got_subcommand("explain")) return Explain(out);
  if (verb_->got_subcommand("memory")) return Memory(out);
  return ListPresets(out);
}

ExitCode ConfigVerb::Show(Output& out) const {
  const auto configuration = config_.Load();
  if (!configuration.ok()) return out.Fail(configuration.status());
  if (json_) {
    Json values = Json::array();
    for (const EffectiveValue& value : configuration->values()) {
      values.push_back({{"key", value.key->name},
                        {"value", value.text},
                        {"unit", value.key->unit},
                        {"origin", value.origin}});
    }
    out.Write(DumpJson({{"values", values}}));
    return ExitCode::kDone;
  }
  TextTable table({{"key"}, {"value"}, {"unit"}, {"from"}});
  for (const EffectiveValue& value : configuration->values()) {
    table.AddRow({std::string(value.key->name), value.text,
                  std::string(value.key->unit), Printable(value.origin)});
  }
  out.Write(table.Print());
  return ExitCode::kDone;
}

ExitCode ConfigVerb::Check(Output& out) const {
  // Only the file: what the environment says is no property of it.
  ConfigurationLayers layers;
  layers.file = file_;
  const auto configuration = Configuration::Load(layers);
  if (!configuration.ok()) return out.Fail(configuration.status());
  int n_set = 0;
  for (const EffectiveValue& value : configuration->values()) {
    n_set += value.origin.starts_with(file_ + ":") ? 1 : 0;
  }
  if (json_) {
    out.Write(DumpJson({{"file", file_}, {"ok", true}, {"keys_set", n_set}}));
  } else {
    out.Write(Printable(file_) + ": ok, sets " + std::to_string(n_set) +
              (n_set == 1 ? " key\n" : " keys\n"));
  }
  return ExitCode::kDone;
}

ExitCode ConfigVerb::Explain(Output& out) const {
  if (markdown_) {
    out.Write(OptionTableMarkdown());
    return ExitCode::kDone;
  }
  if (key_.empty()) {
    if (json_) {
      Json keys = Json::array();
      for (const OptionKey& key : OptionTable()) keys.push_back(KeyAsJson(key));
      out.Write(DumpJson({{"keys", keys}}));
      return ExitCode::kDone;
    }
    TextTable table({{"key"}, {"default"}, {"meaning"}});
    for (const OptionKey& key : OptionTable()) {
      table.AddRow({std::string(key.name), FormatOption(key, CacheOptions()),
                    std::string(key.doc)});
    }
    out.Write(table.Print());
    return ExitCode::kDone;
  }
  const OptionKey* key = FindOption(key_);
  if (key == nullptr) {
    const auto names = OptionNames();
    const std::string_view nearest = NearestWord(key_, names);
    return out.Fail(InvalidArgument(
        "config explain: unknown key " + Quoted(key_) + "; " +
        (nearest.empty() ? "lkv config explain lists all keys"
                         : "did you mean '" + std::string(nearest) + "'?")));
  }
  out.Write(json_ ? DumpJson(KeyAsJson(*key)) : KeyAsText(*key));
  return ExitCode::kDone;
}

ExitCode ConfigVerb::Memory(Output& out) const {
  const auto model = ReadModelSize();
  if (!model.ok()) return out.Fail(model.status());
  const auto memory_bytes = ReadBytes("--memory", memory_);
  if (!memory_bytes.ok()) return out.Fail(memory_bytes.status());
  const auto rows = KvSizes(model->shape, context_);
  if (!rows.ok()) return out.Fail(rows.status());
  const uint64_t left_bytes =
      *memory_bytes - std::min(*memory_bytes, model->weight_bytes);
  const uint64_t full_bytes =
      uint64_t{context_} * model->shape.bytes_per_token(KvType::kF16);
  if (json_) {
    Json list = Json::array();
    for (const KvSizeRow& row : *rows) {
      list.push_back({{"what", row.what},
                      {"budget", BudgetAsJson(row.cache.budget)},
                      {"kv_type", KvTypeText(row.cache)},
                      {"tiers", row.cache.tiers},
                      {"fast_bytes", row.fast_bytes},
                      {"copy_bytes", row.copy_bytes},
                      {"fits", row.fast_bytes <= left_bytes}});
    }
    out.Write(DumpJson(
        {{"context_tokens", context_},
         {"weight_bytes", model->weight_bytes},
         {"memory_bytes", *memory_bytes},
         {"bytes_per_token", model->shape.bytes_per_token(KvType::kF16)},
         {"rows", list}}));
    return ExitCode::kDone;
  }
  TextTable table({{"kept of " + FormatCount(context_, "token")},
                   {"fast memory", Align::kRight},
                   {"copies in RAM", Align::kRight},
                   {"of f16", Align::kRight},
                   {"fits"},
                   {"longest that fits", Align::kRight}});
  for (const KvSizeRow& row : *rows) {
    const double per_token = static_cast<double>(row.fast_bytes) / context_;
    table.AddRow({row.what, FormatBytes(row.fast_bytes),
                  row.copy_bytes > 0 ? FormatBytes(row.copy_bytes) : "-",
                  FormatPercent(static_cast<double>(row.total_bytes()) /
                                static_cast<double>(full_bytes)),
                  row.fast_bytes <= left_bytes ? "yes" : "no",
                  FormatCount(static_cast<uint64_t>(
                      static_cast<double>(left_bytes) / per_token))});
  }
  out.Write(table.Print(TextTable::kNoWrap) + "\n" +
            FormatBytes(model->shape.bytes_per_token(KvType::kF16)) +
            " a token in f16; " + FormatBytes(left_bytes) + " of " +
            FormatBytes(*memory_bytes) + " are left beside " +
            FormatBytes(model->weight_bytes) +
            " of weights. Working memory is not counted.\n");
  return ExitCode::kDone;
}

ExitCode ConfigVerb::ListPresets(Output& out) const {
  if (json_) {
    Json presets = Json::array();
    for (const Preset& preset : Presets()) {
      Json values = Json::object();
      for (const PresetValue& value : preset.values) {
        values[std::string(value.key)] = value.text;
      }
      presets.push_back(
          {{"preset", preset.name}, {"why", preset.why}, {"values", values}});
    }
    out.Write(DumpJson({{"presets", presets}}));
    return ExitCode::kDone;
  }
  std::string text;
  for (const Preset& preset : Presets()) {
    text += std::string(preset.name) + "\n";
    for (const std::string& line : WrapText(std::string(preset.why), 76)) {
      text += "  " + line + "\n";
    }
    for (const PresetValue& value : preset.values) {
      text += "    " + std::string(value.key) + ": " + std::string(value.text) +
              "\n";
    }
  }
  out.Write(text);
  return ExitCode::kDone;
}

}  // namespace lkv::cli
