#include "engine/sessions.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/printable_text.h"
#include "base/stopwatch.h"
#include "cache/sequence_image.h"
#include "engine/admission.h"
#include "engine/engine_state.h"
#include "io/byte_fields.h"
#include "io/io_buffer.h"
#include "io/sha256.h"
#include "options/option_table.h"

namespace lkv {
namespace {

// Kinds of blocks, in the order in which a session has them.
enum BlockKind : uint32_t {
  kState = 1,
  kNote = 2,
  kPages = 3,
  kColdGroups = 4
};

constexpr size_t kBytesOfOneBlock = size_t{16} << 20;  // of state and note

// Options that change nothing about what a cache holds, or that the payload's
// fingerprint has.
bool IsOfNoConcern(const OptionKey& key) {
  return std::holds_alternative<std::monostate>(key.field) ||
         key.name.starts_with("sessions.") || key.name == "kv_type" ||
         key.name == "read";
}

std::string NetworkHash(const HistoryNetwork& network) {
  Sha256 hash;
  for (const std::vector<float>* numbers :
       {&network.inner, &network.hidden_bias, &network.outer, &network.direct,
        &network.bias}) {
    hash.Add({reinterpret_cast<const uint8_t*>(numbers->data()),
              numbers->size() * sizeof(float)});
  }
  return hash.Hex();
}

// What the state of a cache depends on, beyond its payload.
Fingerprint StateFingerprint(const CacheOptions& options,
                             const HistoryNetwork* network) {
  Fingerprint print;
  for (const OptionKey& key : OptionTable()) {
    if (IsOfNoConcern(key)) continue;
    print.Set(std::string(key.name), FormatOption(key, options));
  }
  if (network != nullptr)
    print.Set("predictor's network", NetworkHash(*network));
  return print;
}

Fingerprint PayloadFingerprint(const Fingerprint& engine,
                               const CacheOptions& options) {
  Fingerprint print = engine;
  print.Set("kv_type", FormatOption(*FindOption("kv_type"), options));
  return print;
}

// What stands in front of the cache's state.
struct StateHead {
  Fingerprint options;
  double read_us = 0;  // that reading a token took; 0: nobody knows

  std::vector<uint8_t> Encode() const {
    std::vector<uint8_t> bytes;
    AppendField(bytes, read_us);
    AppendField(bytes, static_cast<uint32_t>(options.axes().size()));
    for (const auto& [axis, value] : options.axes()) {
      AppendField(bytes, axis);
      AppendField(bytes, value);
    }
    return bytes;
  }
  static std::optional<StateHead> Decode(FieldReader& fields) {
    StateHead head;
    head.read_us = fields.Read<double>();
    const auto n_axes = fields.Read<uint32_t>();
    for (uint32_t i = 0; i < n_axes && fields.ok(); ++i) {
      std::string axis = fields.ReadText();
      head.options.Set(std::move(axis), fields.ReadText());
    }
    if (!fields.ok()) return std::nullopt;
    return head;
  }
};

Status CannotRead(std::string why) {
  return Corrupt("session: " + std::move(why) + "; read the text anew");
}

// The blocks of one kind, after each other.
Result<std::vector<uint8_t>> LoadAll(const SessionReader& session,
                                     BlockKind kind) {
  std::vector<uint8_t> bytes;
  IoBuffer buffer;
  for (uint32_t i = 0; i < session.blocks().size(); ++i) {
    const BlockEntry& block = session.blocks()[i];
    if (block.info.kind != kind) continue;
    const size_t n_bytes = session.BufferBytes(i);
    if (buffer.size() < n_bytes) buffer = IoBuffer(n_bytes);
    if (Status s = session.LoadBlock(i, buffer.span().first(n_bytes));
        !s.ok()) {
      return s;
    }
    bytes.insert(bytes.end(), buffer.data(),
                 buffer.data() + block.stored_bytes);
  }
  return bytes;
}

Status AppendAll(SessionSave& save, BlockKind kind,
                 std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kBytesOfOneBlock));
    BlockInfo info;
    info.kind = kind;
    info.n_bytes = piece.size();
    if (Status s = save.Append(info, piece); !s.ok()) return s;
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

BlockKind KindOf(const ImagePiece& piece) {
  return piece.kind == ImagePiece::Kind::kPages ? kPages : kColdGroups;
}

BlockInfo InfoOf(const KvShape& shape, const ImagePiece& piece) {
  BlockInfo info;
  info.kind = KindOf(piece);
  info.n_bytes = piece.n_bytes;
  info.lanes = {0, shape.n_lanes()};
  return info;
}

Durability DurabilityOf(SessionDurability durability) {
  switch (durability) {
    case SessionDurability::kNone:
      return Durability::kNone;
    case SessionDurability::kSession:
      return Durability::kSession;
    case SessionDurability::kAlways:
      return Durability::kAlways;
  }
  CHECK(false);
  return {};
}

Result<std::unique_ptr<Folder>> OpenFolder(const std::string& path) {
  if (path != "auto") return OpenLocalFolder(path);
  Result<std::string> standard = DefaultSessionsPath();
  if (!standard.ok()) return standard.status();
  std::error_code error;
  const auto parent = std::filesystem::path(*standard).parent_path();
  std::filesystem::create_directories(parent, error);
  if (error) {
    return NotFound(parent.string() + ": cannot be made (" + error.message() +
                    "); set sessions.path to a folder that can");
  }
  return OpenLocalFolder(*standard);
}

// Keys and values of a beginning come without the attention that they got, by
// which a policy judges them. So the last part of it is read once more: the
// queries there look at all of it. Cut down to a quarter behind 3,072 tokens,
// three texts have a KL of .0147 when all were read, .049 with one query to go
// by, .019 with 256, .018 with 512, .0156 with 1,024.
uint32_t TokensReadForEvidence(const CacheOptions& options, uint32_t n_tokens) {
  if (!options.enabled || options.policy == PolicyName::kFull ||
      options.budget.kind == Budget::Kind::kFull) {
    return 0;
  }
  constexpr uint32_t kMost = 1024;
  return std::min(kMost, n_tokens / 4);
}

std::string MissOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return "other_options";
    case StatusCode::kOutOfMemory:
      return "no_memory";
    case StatusCode::kCancelled:
      return "slower_than_reading";
    case StatusCode::kCorrupt:
      return std::string(Text(PrefixMiss::kDamaged));
    default:
      return std::string(Text(PrefixMiss::kUnavailable));
  }
}

}  // namespace

Result<std::string> DefaultSessionsPath() {
  constexpr const char* kFolder = "/lookaheadkv/sessions";
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + kFolder;
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') {
    return std::string(home) + "/.local/state" + kFolder;
  }
  return NotFound(
      "sessions.path: auto needs $HOME or $XDG_STATE_HOME; name a folder");
}

Sessions::Sessions(std::unique_ptr<Folder> folder, std::optional<SecretKey> key)
    : folder_(std::move(folder)), key_(std::move(key)) {
  // Without a key the texts lie open beside the hashes that a secret salt would
  // protect.
  constexpr std::string_view kOpen = "local";
  const std::vector<uint8_t> open(kOpen.begin(), kOpen.end());
  owner_ = key_ ? OwnerOf(key_->Derive(open, "lookaheadkv owner").bytes())
                : OwnerOf(open);
}

Result<std::unique_ptr<Sessions>> Sessions::Open(const CacheOptions& options) {
  std::optional<SecretKey> key;
  if (options.sessions_key_file != "none") {
    Result<SecretKey> loaded = SecretKey::Load(options.sessions_key_file);
    if (!loaded.ok()) return loaded.status();
    key = *std::move(loaded);
  }
  Result<std::unique_ptr<Folder>> folder = OpenFolder(options.sessions_path);
  if (!folder.ok()) return folder.status();
  std::unique_ptr<Sessions> sessions(
      new Sessions(*std::move(folder), std::move(key)));
  StoreOptions store;
  store.quota_bytes = options.sessions_bytes;
  store.keep_days = options.sessions_keep_days;
  store.durability = DurabilityOf(options.sessions_durability);
  store.master_key = sessions->key_;
  Result<std::unique_ptr<SessionStore>> opened =
      SessionStore::Open(*sessions->folder_, SystemClock(), store);
  if (!opened.ok()) return opened.status();
  sessions->store_ = *std::move(opened);
  return sessions;
}

Result<Sessions::Saved> Sessions::Save(Engine& engine, const Sequence& sequence,
                                       const std::string& name,
                                       std::string_view note) {
  return CatchRefusedMemory(
      "session", [&] { return SaveWhole(engine, sequence, name, note); });
}

Result<Sessions::Saved> Sessions::SaveWhole(Engine& engine,
                                            const Sequence& sequence,
                                            const std::string& name,
                                            std::string_view note) {
  const Stopwatch watch;
  const Sequence::State& state = *sequence.state_;
  Engine::State& of_engine = *engine.state_;
  CHECK(state.engine == &of_engine);
  if (Status s = state.CheckWhole(); !s.ok()) return s;
  if (state.tokens.empty() || state.cut.has_value()) {
    return InvalidArgument(
        "session: the sequence has not read its prompt; keep it afterwards");
  }
  const KvShape& shape = of_engine.cache->shape();
  const SequenceLayout layout = of_engine.cache->Layout(state.id);
  const std::vector<ImagePiece> pieces = PiecesOf(shape, layout);

  StateHead head;
  head.options = StateFingerprint(state.asked, state.network.get());
  const double rate = state.times.PrefillRate();
  head.read_us = rate > 0 ? 1e6 / rate : 0;
  std::vector<uint8_t> state_bytes = head.Encode();
  AppendBytes(state_bytes, of_engine.cache->SaveState(state.id));
  const std::span<const uint8_t> note_bytes(
      reinterpret_cast<const uint8_t*>(note.data()), note.size());

  Result<Fingerprint> print = of_engine.KvFingerprint();
  if (!print.ok()) return print.status();
  const SessionSpec spec = {
      .name = name,
      .owner = owner_,
      .fingerprint = PayloadFingerprint(*print, state.asked),
      .tokens = state.tokens,
      .complete_tokens = layout.complete_tokens};
  PayloadBound bound;
  bound.n_bytes = state_bytes.size() + note.size();
  bound.n_blocks = static_cast<uint32_t>(pieces.size() +
                                         bound.n_bytes / kBytesOfOneBlock + 2);
  uint64_t most_bytes = 0;
  for (const ImagePiece& piece : pieces) {
    bound.n_bytes += piece.n_bytes;
    most_bytes = std::max(most_bytes, piece.n_bytes);
  }
  if (Status s = CheckPinned(spec); !s.ok()) return s;
  const uint64_t n_made_room = store_->counters().made_room;
  Result<SessionSave> save = store_->BeginSave(spec, bound);
  if (!save.ok()) return save.status();
  if (Status s = AppendAll(*save, kState, state_bytes); !s.ok()) return s;
  if (Status s = AppendAll(*save, kNote, note_bytes); !s.ok()) return s;
  IoBuffer buffer(most_bytes);
  for (const ImagePiece& piece : pieces) {
    const auto bytes = buffer.span().first(piece.n_bytes);
    of_engine.cache->CopyPiece(state.id, piece, bytes);
    if (Status s = save->Append(InfoOf(shape, piece), bytes); !s.ok()) return s;
  }
  Result<std::string> id = store_->FinishSave(*std::move(save));
  if (!id.ok()) return id.status();
  return Saved{.id = *std::move(id),
               .n_tokens = static_cast<uint32_t>(state.tokens.size()),
               .n_bytes = bound.n_bytes,
               .seconds = watch.Seconds(),
               .n_made_room = store_->counters().made_room - n_made_room};
}

Status Sessions::CheckPinned(const SessionSpec& spec) {
  const std::string id = SessionId(owner_.tag, spec.name);
  const auto records = List();
  if (!records.ok()) return {};  // BeginSave says why
  for (const SessionRecord& record : *records) {
    if (record.id != id || !record.is_pinned) continue;
    const auto session =
        store_->OpenSession(id, {.owner = &owner_, .master_key = master_key()});
    if (!session.ok()) continue;
    const std::vector<int32_t>& tokens = (*session)->text().tokens;
    if (CommonTokens(tokens, spec.tokens) == tokens.size()) continue;
    return InvalidArgument("session " + Quoted(spec.name) +
                           ": is pinned, and this is another text; unpin it or "
                           "choose another name");
  }
  return {};
}

Result<std::vector<SessionRecord>> Sessions::List() {
  auto records = store_->List();
  if (!records.ok()) return records.status();
  for (SessionRecord& record : *records) {
    if (!record.name.empty() || !key_) continue;
    const auto session = store_->OpenSession(
        record.id, {.owner = &owner_, .master_key = master_key()});
    if (session.ok()) record.name = (*session)->text().name;
  }
  return records;
}

Status Sessions::CheckName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxSessionNameBytes) return {};
  return InvalidArgument("session: a name has 1 to " +
                         std::to_string(kMaxSessionNameBytes) + " bytes, not " +
                         std::to_string(name.size()) + "; choose another");
}

struct Sessions::Source {
  Source(const SessionReader& from, uint32_t n, uint32_t n_lanes)
      : session(&from), n_tokens(n), head(n_lanes) {}

  const SessionReader* session;
  uint32_t n_tokens;  // to be taken
  // Whether the sequence goes on with all that its cache knew. Else keys and
  // values of its beginning are taken, and `other` says why not more.
  bool is_whole = false;
  std::string other;
  double read_us = 0;
  std::vector<uint8_t> bytes;      // of all state blocks
  std::span<const uint8_t> state;  // the cache's part of them
  ImageHead head;
  std::vector<ImagePiece> pieces;  // that are needed, the first ones
  uint32_t first_block = 0;        // of the pieces
  uint64_t piece_bytes = 0;
  std::shared_ptr<const HistoryNetwork> network;
};

Result<Sessions::Source> Sessions::ReadSource(Engine& engine,
                                              const SequenceOptions& options,
                                              const PrefixMatch& match) {
  Engine::State& of_engine = *engine.state_;
  const KvShape& shape = of_engine.cache->shape();
  const SessionReader& session = *match.session;
  Source source(session, match.n_tokens, shape.n_lanes());
  Result<std::vector<uint8_t>> bytes = LoadAll(session, kState);
  if (!bytes.ok()) return bytes.status();
  source.bytes = *std::move(bytes);
  FieldReader fields(source.bytes);
  std::optional<StateHead> state_head = StateHead::Decode(fields);
  if (!state_head) return CannotRead("its state is not whole");
  source.read_us = state_head->read_us;
  source.state = std::span(source.bytes).last(fields.n_left());
  Result<ImageHead> head = ReadImageHead(shape, source.state);
  if (!head.ok()) return head.status();
  source.head = *std::move(head);
  if (source.head.n_tokens != session.n_tokens() ||
      source.head.layout.complete_tokens != session.complete_tokens()) {
    return CannotRead("its state belongs to another text");
  }

  if (options.cache.policy == PolicyName::kLookahead) {
    auto network = of_engine.predictors->Find(options.cache.predictor);
    if (!network.ok()) return network.status();
    source.network = *std::move(network);
  }
  const auto difference = state_head->options.DifferenceFrom(
      StateFingerprint(options.cache, source.network.get()));
  if (difference) source.other = difference->Text();
  source.is_whole = match.n_tokens == session.n_tokens() &&
                    source.head.has_rest && !difference;
  if (!source.is_whole) {
    source.n_tokens = std::min(match.n_tokens, session.complete_tokens());
    source.n_tokens -= TokensReadForEvidence(options.cache, source.n_tokens);
    if (source.n_tokens < kLinkTokens) {
      return InvalidArgument(source.other.empty()
                                 ? "its policy cannot be taken elsewhere"
                                 : source.other);
    }
  }

  source.pieces = PiecesOf(shape, source.head.layout);
  const auto& blocks = session.blocks();
  if (source.pieces.empty() || blocks.size() < source.pieces.size()) {
    return CannotRead("blocks are missing");
  }
  source.first_block =
      static_cast<uint32_t>(blocks.size() - source.pieces.size());
  for (size_t i = 0; i < source.pieces.size(); ++i) {
    const BlockInfo& info = blocks[source.first_block + i].info;
    if (info.kind != KindOf(source.pieces[i]) || info.codec != 0 ||
        info.n_bytes != source.pieces[i].n_bytes) {
      return CannotRead("a block is not what its state says");
    }
  }
  if (!source.is_whole) {
    std::erase_if(source.pieces, [&](const ImagePiece& piece) {
      return piece.kind != ImagePiece::Kind::kPages ||
             piece.first >= PagesOf(source.n_tokens);
    });
  }
  for (const ImagePiece& piece : source.pieces) {
    source.piece_bytes += piece.n_bytes;
  }
  return source;
}

Result<std::unique_ptr<Sequence>> Sessions::Admit(
    Engine& engine, const SequenceOptions& options, const Source& source) {
  Engine::State& of_engine = *engine.state_;
  auto state = std::make_unique<Sequence::State>();
  state->engine = &of_engine;
  state->asked = options.cache;
  if (source.is_whole) {
    SequenceOptions as_it_was = options;
    as_it_was.predictor = source.network;
    as_it_was.max_tokens = std::max(
        options.max_tokens, options.prompt_tokens + options.max_new_tokens);
    state->Begin(as_it_was);
    return Engine::Admit(std::move(state), [&] {
      return of_engine.cache->RestoreSequence(as_it_was, source.state);
    });
  }
  Result<Admission> admission = of_engine.Complete(options);
  if (!admission.ok()) return admission.status();
  state->Begin(admission->options);
  state->cut = std::move(admission->cut);
  return Engine::Admit(std::move(state), [&] {
    return of_engine.cache->RestoreBeginning(
        admission->options, source.head.layout, source.n_tokens);
  });
}

Status Sessions::Fill(Engine& engine, const Sequence& sequence,
                      const Source& source) {
  Engine::State& of_engine = *engine.state_;
  const SessionReader& session = *source.session;
  size_t most_bytes = 0;
  for (size_t i = 0; i < source.pieces.size(); ++i) {
    most_bytes = std::max(
        most_bytes,
        session.BufferBytes(source.first_block + static_cast<uint32_t>(i)));
  }
  std::vector<IoBuffer> buffers;
  for (uint32_t i = 0; i < of_engine.team->n_threads(); ++i) {
    buffers.emplace_back(most_bytes);
  }
  std::mutex mutex;
  Status failure;
  std::atomic<bool> has_failed = false;
  const auto fill = [&](uint32_t member, size_t i) {
    if (has_failed.load(std::memory_order_relaxed)) return;
    const auto block = source.first_block + static_cast<uint32_t>(i);
    const auto out = buffers[member].span().first(session.BufferBytes(block));
    Status s = CatchRefusedMemory(
        "session", [&] { return session.LoadBlock(block, out); });
    if (!s.ok()) {
      const std::lock_guard lock(mutex);
      failure = s;
      has_failed.store(true, std::memory_order_relaxed);
      return;
    }
    of_engine.cache->FillPiece(sequence.state_->id, source.head.layout,
                               source.pieces[i],
                               out.first(source.pieces[i].n_bytes));
  };
  // The first one tells how fast the disk is.
  const Stopwatch watch;
  fill(0, 0);
  const double us_per_byte =
      watch.Seconds() * 1e6 / static_cast<double>(source.pieces[0].n_bytes);
  const double load_us = us_per_byte * static_cast<double>(source.piece_bytes) /
                         of_engine.team->n_threads();
  if (source.read_us > 0 && load_us > source.read_us * source.n_tokens) {
    return Cancelled("session: loading it would take " +
                     std::to_string(static_cast<int64_t>(load_us / 1000)) +
                     " ms, longer than reading its text");
  }
  of_engine.team->Run([&](TeamMember& me) {
    me.ForEach(source.pieces.size() - 1,
               [&](size_t i) { fill(me.index(), i + 1); });
  });
  if (!failure.ok()) return failure;
  of_engine.cache->FinishRestoring(sequence.state_->id);
  return {};
}

Result<std::unique_ptr<Sequence>> Sessions::Restore(
    Engine& engine, const SequenceOptions& options, const PrefixMatch& match,
    std::span<const int32_t> text, uint64_t* read_bytes) {
  Result<Source> source = ReadSource(engine, options, match);
  if (!source.ok()) return source.status();
  Result<std::unique_ptr<Sequence>> sequence = Admit(engine, options, *source);
  if (!sequence.ok()) return sequence.status();
  if (Status s = Fill(engine, **sequence, *source); !s.ok()) return s;
  const auto taken = text.first(source->n_tokens);
  (*sequence)->state_->tokens.assign(taken.begin(), taken.end());
  *read_bytes = source->piece_bytes + source->bytes.size();
  return sequence;
}

PrefixMatch Sessions::FindSession(const PrefixQuery& query,
                                  const std::string& likely) {
  PrefixMatch longest = store_->FindPrefix(query);
  const std::string id = SessionId(owner_.tag, likely);
  auto session = store_->OpenSession(id, {.fingerprint = &query.fingerprint,
                                          .owner = &owner_,
                                          .master_key = master_key()});
  if (session.status().code() == StatusCode::kCorrupt &&
      longest.session == nullptr) {
    longest.miss = PrefixMiss::kDamaged;
    longest.detail = session.status().message();
  }
  if (!session.ok() || (*session)->n_tokens() <= longest.n_tokens ||
      std::find(query.except.begin(), query.except.end(), id) !=
          query.except.end()) {
    return longest;
  }
  const std::vector<int32_t>& tokens = (*session)->text().tokens;
  if (CommonTokens(tokens, query.tokens) < tokens.size()) return longest;
  PrefixMatch match;
  match.id = id;
  match.n_tokens = (*session)->n_tokens();
  match.session = *std::move(session);
  return match;
}

Result<Sessions::Beginning> Sessions::Begin(Engine& engine,
                                            const SequenceOptions& options,
                                            std::span<const int32_t> text,
                                            const std::string& likely) {
  CHECK(!text.empty());
  const Stopwatch watch;
  if (Status s = CheckLength(engine.architecture(), engine.state_->ctx_tokens,
                             options);
      !s.ok()) {
    return s;
  }
  if (Status s = engine.state_->CheckUsable(); !s.ok()) return s;
  Beginning beginning;
  Result<Fingerprint> print = engine.state_->KvFingerprint();
  if (!print.ok()) return print.status();
  *print = PayloadFingerprint(*print, options.cache);
  std::vector<std::string> except;
  // One that is of no use may hide others that are.
  constexpr size_t kMostTries = 4;
  while (except.size() < kMostTries) {
    PrefixMatch match = FindSession({.owner = owner_,
                                     .fingerprint = *print,
                                     .tokens = text.first(text.size() - 1),
                                     .except = except},
                                    likely);
    if (match.session == nullptr) {
      if (except.empty()) {
        beginning.miss = Text(match.miss);
        beginning.detail = match.detail;
      }
      break;
    }
    Result<std::unique_ptr<Sequence>> restored = CatchRefusedMemory(
        "session", [&]() -> Result<std::unique_ptr<Sequence>> {
          return Restore(engine, options, match, text, &beginning.read_bytes);
        });
    if (restored.ok()) {
      beginning.sequence = *std::move(restored);
      beginning.cached_tokens = beginning.sequence->n_tokens();
      beginning.session = match.session->text().name;
      beginning.seconds = watch.Seconds();
      beginning.miss.clear();
      beginning.detail.clear();
      // It is only less likely to stay.
      static_cast<void>(store_->CountHit(match.id));
      return beginning;
    }
    if (except.empty()) {
      beginning.miss = MissOf(restored.status());
      beginning.detail = restored.status().message();
    }
    except.push_back(match.id);
  }
  Result<std::unique_ptr<Sequence>> sequence = engine.Start(options);
  if (!sequence.ok()) return sequence.status();
  beginning.sequence = *std::move(sequence);
  return beginning;
}

Result<Sessions::Note> Sessions::ReadNote(const Engine& engine,
                                          const std::string& name) {
  return CatchRefusedMemory("session", [&]() -> Result<Note> {
    Result<std::unique_ptr<SessionReader>> session =
        store_->OpenSession(SessionId(owner_.tag, name),
                            {.owner = &owner_, .master_key = master_key()});
    if (!session.ok()) return session.status();
    Result<std::string> note = NoteOf(**session);
    if (!note.ok()) return note.status();
    Result<Fingerprint> print = engine.state_->KvFingerprint();
    if (!print.ok()) return print.status();
    const auto& own = print->axes();
    const auto& its = (*session)->fingerprint().axes();
    const auto weights = its.find("weights");
    return Note{.tokens = (*session)->text().tokens,
                .note = *std::move(note),
                .is_of_model = weights != its.end() &&
                               weights->second == own.at("weights"),
                .generation = (*session)->header().generation};
  });
}

Result<std::string> Sessions::NoteOf(const SessionReader& session) {
  Result<std::vector<uint8_t>> bytes = LoadAll(session, kNote);
  if (!bytes.ok()) return bytes.status();
  return std::string(bytes->begin(), bytes->end());
}

}  // namespace lkv
