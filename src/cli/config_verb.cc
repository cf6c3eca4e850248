#include "cli/config_verb.h"

#include "base/printable_text.h"
#include "cli/json_document.h"
#include "cli/text_table.h"
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

}  // namespace

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
