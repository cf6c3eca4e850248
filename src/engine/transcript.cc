#include "engine/transcript.h"

#include <span>

#include "io/byte_fields.h"

namespace lkv {
namespace {

// So that a note of another kind is none.
constexpr std::string_view kMagic = "lkv transcript 1";

}  // namespace

std::string WriteTranscript(const Transcript& transcript) {
  std::vector<uint8_t> bytes;
  AppendField(bytes, kMagic);
  AppendField(bytes, transcript.system);
  AppendField(bytes, static_cast<uint32_t>(transcript.messages.size()));
  for (const ChatMessage& message : transcript.messages) {
    AppendField(bytes, message.role);
    AppendField(bytes, message.content);
  }
  AppendField(bytes, static_cast<uint32_t>(transcript.uncached.size()));
  for (const int32_t token : transcript.uncached) AppendField(bytes, token);
  AppendField(bytes, static_cast<uint32_t>(transcript.turns.size()));
  for (const Transcript::TurnLength& turn : transcript.turns) {
    AppendField(bytes, turn.n_read);
    AppendField(bytes, turn.n_generated);
  }
  return {bytes.begin(), bytes.end()};
}

std::optional<Transcript> ReadTranscript(std::string_view note) {
  FieldReader fields(
      {reinterpret_cast<const uint8_t*>(note.data()), note.size()});
  if (fields.ReadText() != kMagic) return std::nullopt;
  Transcript transcript;
  transcript.system = fields.ReadText();
  // A number beyond what is there ends the loop: fields are not ok() then.
  const auto n_messages = fields.Read<uint32_t>();
  for (uint32_t i = 0; i < n_messages && fields.ok(); ++i) {
    ChatMessage message;
    message.role = fields.ReadText();
    message.content = fields.ReadText();
    transcript.messages.push_back(std::move(message));
  }
  const auto n_uncached = fields.Read<uint32_t>();
  for (uint32_t i = 0; i < n_uncached && fields.ok(); ++i) {
    transcript.uncached.push_back(fields.Read<int32_t>());
  }
  const auto n_turns = fields.Read<uint32_t>();
  for (uint32_t i = 0; i < n_turns && fields.ok(); ++i) {
    Transcript::TurnLength turn;
    turn.n_read = fields.Read<uint32_t>();
    turn.n_generated = fields.Read<uint32_t>();
    transcript.turns.push_back(turn);
  }
  if (!fields.ok() || fields.n_left() > 0) return std::nullopt;
  return transcript;
}

}  // namespace lkv
