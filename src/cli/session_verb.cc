#include "cli/session_verb.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <string_view>

#include "base/byte_text.h"
#include "base/printable_text.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "engine/transcript.h"
#include "io/file_system.h"
#include "session/session_transfer.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

// "2026-11-30 14:05", in the time of this place.
std::string TimeText(int64_t unix_s) {
  const auto time = static_cast<time_t>(unix_s);
  std::tm parts = {};
  localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts);
  return text;
}

// Text of several lines, harmless to a terminal.
std::string PrintableLines(std::string_view text) {
  std::string out;
  for (size_t end; (end = text.find('\n')) != text.npos;
       text.remove_prefix(end + 1)) {
    out += Printable(text.substr(0, end)) + "\n";
  }
  return out + Printable(text);
}

std::string NameText(const SessionRecord& record) {
  return record.name.empty() ? "(sealed)" : Printable(record.name);
}

Json RecordAsJson(const SessionRecord& record) {
  return {{"id", record.id},
          {"name", record.name.empty() ? Json() : Json(Printable(record.name))},
          {"tokens", record.n_tokens},
          {"complete_tokens", record.complete_tokens},
          {"bytes", record.n_bytes},
          {"created_unix_s", record.created_unix_s},
          {"last_use_unix_s", record.last_use_unix_s},
          {"hits", record.n_hits},
          {"generation", record.generation},
          {"pinned", record.is_pinned}};
}

// The session of a name or an id.
Result<SessionRecord> Find(Sessions& sessions, const std::string& name) {
  auto records = sessions.List();
  if (!records.ok()) return records.status();
  // A name may look like the id of another one.
  for (const std::string& id : {SessionId(sessions.owner().tag, name), name}) {
    for (SessionRecord& record : *records) {
      if (record.id == id) return std::move(record);
    }
  }
  // What is damaged has no record, but can be verified and deleted.
  for (const std::string& id : {SessionId(sessions.owner().tag, name), name}) {
    for (const std::string& fault : sessions.store().opened().damaged) {
      SessionRecord record;
      record.id = id;
      record.name = name;
      if (fault.find("session " + id + ":") != fault.npos) return record;
    }
  }
  return NotFound("session " + Quoted(name) + ": is not in " +
                  Quoted(sessions.folder().path()) +
                  "; `lkv session list` shows what is");
}

}  // namespace

void SessionVerb::AddTo(CLI::App& app) {
  verb_ = app.add_subcommand("session",
                             "List, check, move and remove kept sessions");
  verb_->require_subcommand(1);
  verb_->footer(
      "Where they are kept, how much of the disk they may take and how long\n"
      "they stay: lkv config explain sessions.path, sessions.bytes, ...\n\n"
      "Example:\n  lkv session list");
  const auto add = [&](const char* name, const char* what,
                       const char* example) {
    CLI::App* verb = verb_->add_subcommand(name, what);
    config_.AddTo(*verb, ConfigArguments::Offer::kFileOnly);
    verb->add_flag("--json", json_, "Print one JSON document");
    verb->footer(std::string("Example:\n  lkv session ") + example);
    return verb;
  };
  const auto add_names = [&](CLI::App* verb) {
    verb->add_option("names", names_, "Their names, or ids")->type_name("NAME");
    verb->add_flag("--all", all_, "All sessions of the folder");
  };
  const auto add_name = [&](CLI::App* verb) {
    verb->add_option("name", name_, "Its name, or id")
        ->type_name("NAME")
        ->required()
        ->check(NamesSomething());
  };
  const auto add_file = [&](CLI::App* verb) {
    verb->add_option("file", file_, "The file")
        ->type_name("FILE")
        ->required()
        ->check(NamesSomething());
  };
  add("list", "List all sessions, the one used last first", "list");
  add_name(
      add("show", "Show one session, and what was said in it", "show work"));
  add_names(add("verify", "Read sessions whole and check every checksum",
                "verify --all"));
  CLI::App* to_file =
      add("export", "Copy a session to a file", "export work work.session");
  add_name(to_file);
  add_file(to_file);
  add_file(add("import", "Take a session from a file, under its own name",
               "import work.session"));
  add_names(add("delete", "Remove sessions for good", "delete work"));
  add_name(add("pin", "Keep a session until it is deleted", "pin work"));
  add_name(add("unpin", "Let a pinned session make room again", "unpin work"));
  add("gc",
      "Remove what is damaged, left over or kept too long, and set the "
      "catalogue right",
      "gc");
}

ExitCode SessionVerb::Run(Output& out) const {
  const auto configuration = config_.Load();
  if (!configuration.ok()) return out.Fail(configuration.status());
  const auto opened = Sessions::Open(configuration->cache());
  if (!opened.ok()) return out.Fail(opened.status());
  Sessions& sessions = **opened;
  const auto got = [&](const char* name) {
    return verb_->got_subcommand(name);
  };
  if (got("list")) return List(sessions, out);
  if (got("show")) return Show(sessions, out);
  if (got("verify")) return Verify(sessions, out);
  if (got("export")) return Export(sessions, out);
  if (got("import")) return Import(sessions, out);
  if (got("delete")) return Delete(sessions, out);
  if (got("pin")) return Pin(sessions, Protection::kProtected, out);
  if (got("unpin")) return Pin(sessions, Protection::kNone, out);
  return Collect(sessions, out);
}

ExitCode SessionVerb::List(Sessions& sessions, Output& out) const {
  auto records = sessions.List();
  if (!records.ok()) return out.Fail(records.status());
  std::reverse(records->begin(), records->end());
  const auto used_bytes = sessions.store().UsedBytes();
  if (!used_bytes.ok()) return out.Fail(used_bytes.status());
  if (json_) {
    Json list = Json::array();
    for (const SessionRecord& record : *records) {
      list.push_back(RecordAsJson(record));
    }
    out.Write(DumpJson({{"path", Printable(sessions.folder().path())},
                        {"used_bytes", *used_bytes},
                        {"sessions", list}}));
    return ExitCode::kDone;
  }
  if (!records->empty()) {
    TextTable table({{"name"},
                     {"tokens", Align::kRight},
                     {"size", Align::kRight},
                     {"last used"},
                     {"hits", Align::kRight},
                     {"id"}});
    for (const SessionRecord& record : *records) {
      table.AddRow({NameText(record) + (record.is_pinned ? " (pinned)" : ""),
                    FormatCount(record.n_tokens), FormatBytes(record.n_bytes),
                    TimeText(record.last_use_unix_s),
                    FormatCount(record.n_hits), record.id});
    }
    out.Write(table.Print(TextTable::kNoWrap) + "\n");
  }
  for (const std::string& fault : sessions.store().opened().damaged) {
    PrintError(Printable(fault));
  }
  out.Write(FormatCount(records->size(), "session") + " in " +
            Printable(sessions.folder().path()) + ", " +
            FormatBytes(*used_bytes) + " on the disk\n");
  return ExitCode::kDone;
}

ExitCode SessionVerb::Show(Sessions& sessions, Output& out) const {
  const auto record = Find(sessions, name_);
  if (!record.ok()) return out.Fail(record.status());
  const auto session = sessions.store().OpenSession(
      record->id, {.master_key = sessions.master_key()});
  if (!session.ok()) return out.Fail(session.status());
  std::optional<Transcript> transcript;
  if (!(*session)->is_locked()) {
    const auto note = Sessions::NoteOf(**session);
    if (!note.ok()) return out.Fail(note.status());
    transcript = ReadTranscript(*note);
  }
  if (json_) {
    Json document = RecordAsJson(*record);
    Json axes = Json::object();
    for (const auto& [axis, value] : (*session)->fingerprint().axes()) {
      axes[axis] = value;
    }
    document["fingerprint"] = axes;
    document["sealed"] = (*session)->header().is_sealed();
    document["blocks"] = (*session)->blocks().size();
    Json messages;
    if (transcript) {
      messages = Json::array();
      for (const ChatMessage& message : transcript->messages) {
        messages.push_back(
            {{"role", message.role}, {"content", message.content}});
      }
    }
    document["messages"] = messages;
    out.Write(DumpJson(document));
    return ExitCode::kDone;
  }
  std::string text = NameText(*record) + "\n";
  const auto add = [&](std::string label, const std::string& value) {
    label.resize(14, ' ');
    text += "  " + label + Printable(value) + "\n";
  };
  add("id", record->id);
  add("tokens", FormatCount(record->n_tokens) + ", the first " +
                    FormatCount(record->complete_tokens) + " of them whole");
  add("size", FormatBytes(record->n_bytes) +
                  ((*session)->header().is_sealed() ? ", sealed" : ""));
  add("saved", TimeText(record->created_unix_s) + ", " +
                   FormatCount(record->generation, "time"));
  add("last used", TimeText(record->last_use_unix_s) + ", " +
                       FormatCount(record->n_hits, "hit"));
  if (record->is_pinned) add("pinned", "leaves by `lkv session delete` only");
  for (const auto& [axis, value] : (*session)->fingerprint().axes()) {
    add(axis, value);
  }
  out.Write(text);
  if (transcript) {
    for (const ChatMessage& message : transcript->messages) {
      out.Write("\n" + Printable(message.role) + ": " +
                PrintableLines(message.content) + "\n");
    }
  }
  return ExitCode::kDone;
}

Result<std::vector<SessionRecord>> SessionVerb::Named(
    Sessions& sessions) const {
  if (all_ != names_.empty()) {
    return InvalidArgument(
        "session: needs either names or --all; lkv session list shows all");
  }
  if (all_) return sessions.List();
  std::vector<SessionRecord> records;
  for (const std::string& name : names_) {
    auto record = Find(sessions, name);
    if (!record.ok()) return record.status();
    const bool is_new = std::none_of(
        records.begin(), records.end(),
        [&](const SessionRecord& other) { return other.id == record->id; });
    if (is_new) records.push_back(*std::move(record));
  }
  return records;
}

ExitCode SessionVerb::Verify(Sessions& sessions, Output& out) const {
  const auto records = Named(sessions);
  if (!records.ok()) return out.Fail(records.status());
  Progress progress("checking");
  Json list = Json::array();
  std::string text;
  bool all_sound = true;
  for (size_t i = 0; i < records->size(); ++i) {
    progress.Show(i, records->size());
    const SessionRecord& record = (*records)[i];
    const Status status = sessions.store().Verify(record.id);
    all_sound = all_sound && status.ok();
    list.push_back(
        {{"id", record.id},
         {"name", Printable(record.name)},
         {"sound", status.ok()},
         {"fault",
          status.ok() ? Json() : Json(std::string(status.message()))}});
    text += NameText(record) + ": ";
    text += status.ok() ? "sound" : status.message();
    text += "\n";
  }
  progress.Erase();
  // These have no names any more.
  for (const std::string& fault :
       all_ ? sessions.store().opened().damaged : std::vector<std::string>()) {
    all_sound = false;
    list.push_back({{"id", Json()},
                    {"name", Json()},
                    {"sound", false},
                    {"fault", Printable(fault)}});
    text += Printable(fault) + "\n";
  }
  out.Write(json_ ? DumpJson({{"sessions", list}}) : text);
  return all_sound ? ExitCode::kDone : ExitCode::kFailed;
}

ExitCode SessionVerb::Export(Sessions& sessions, Output& out) const {
  const auto record = Find(sessions, name_);
  if (!record.ok()) return out.Fail(record.status());
  Status status =
      ExportSession(sessions.store(), record->id, LocalFileSystem(), file_);
  if (!status.ok()) return out.Fail(status);
  out.Write(json_ ? DumpJson({{"id", record->id},
                              {"file", Printable(file_)},
                              {"bytes", record->n_bytes}})
                  : Quoted(NameText(*record)) + " is in " + Quoted(file_) +
                        ", " + FormatBytes(record->n_bytes) + "\n");
  return ExitCode::kDone;
}

ExitCode SessionVerb::Import(Sessions& sessions, Output& out) const {
  const auto id = ImportSession(sessions.store(), LocalFileSystem(), file_,
                                sessions.owner(), sessions.master_key());
  if (!id.ok()) return out.Fail(id.status());
  const auto record = Find(sessions, *id);
  if (!record.ok()) return out.Fail(record.status());
  out.Write(json_ ? DumpJson(RecordAsJson(*record))
                  : Quoted(NameText(*record)) + " is here, " +
                        FormatCount(record->n_tokens, "token") + "\n");
  return ExitCode::kDone;
}

ExitCode SessionVerb::Delete(Sessions& sessions, Output& out) const {
  const auto records = Named(sessions);
  if (!records.ok()) return out.Fail(records.status());
  Json ids = Json::array();
  std::string text;
  for (const SessionRecord& record : *records) {
    Status status = sessions.store().Remove(record.id);
    if (!status.ok()) {
      // What is gone is gone.
      if (!json_) out.Write(text);
      return out.Fail(status);
    }
    ids.push_back(record.id);
    text += Quoted(NameText(record)) + " is deleted\n";
  }
  out.Write(json_ ? DumpJson({{"deleted", ids}}) : text);
  return ExitCode::kDone;
}

ExitCode SessionVerb::Pin(Sessions& sessions, Protection protection,
                          Output& out) const {
  const auto record = Find(sessions, name_);
  if (!record.ok()) return out.Fail(record.status());
  Status status = sessions.store().Pin(record->id, protection);
  if (!status.ok()) return out.Fail(status);
  const bool is_pinned = protection == Protection::kProtected;
  out.Write(json_ ? DumpJson({{"id", record->id}, {"pinned", is_pinned}})
                  : Quoted(NameText(*record)) +
                        (is_pinned ? " is pinned\n" : " is not pinned\n"));
  return ExitCode::kDone;
}

ExitCode SessionVerb::Collect(Sessions& sessions, Output& out) const {
  const auto report = sessions.store().Collect();
  if (!report.ok()) return out.Fail(report.status());
  const std::pair<const char*, const std::vector<std::string>*> kinds[] = {
      {"drafts", &report->drafts},
      {"damaged", &report->damaged},
      {"expired", &report->expired},
      {"left", &report->left}};
  if (json_) {
    Json document = {{"freed_bytes", report->freed_bytes}};
    for (const auto& [kind, names] : kinds) {
      document[kind] = Json::array();
      for (const std::string& name : *names) {
        document[kind].push_back(Printable(name));
      }
    }
    out.Write(DumpJson(document));
    return ExitCode::kDone;
  }
  std::string text;
  for (const auto& [kind, names] : kinds) {
    for (const std::string& name : *names) {
      text += std::string(kind) + ": " + Printable(name) + "\n";
    }
  }
  out.Write(text + FormatBytes(report->freed_bytes) + " freed\n");
  return ExitCode::kDone;
}

}  // namespace lkv::cli
