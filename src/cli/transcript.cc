#include "cli/transcript.h"

#include "cli/json_document.h"

namespace lkv::cli {
namespace {

// JSON holds UTF-8 only; a model may have said any bytes. As the numbers of
// their bytes they come back as they were.
Json BytesAsJson(std::string_view text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  return bytes;
}

Json TextAsJson(const std::string& text) {
  const Json as_text = text;
  try {
    static_cast<void>(as_text.dump());
  } catch (const Json::exception&) {
    return BytesAsJson(text);
  }
  return as_text;
}

std::string TextOf(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  const auto bytes = json.get<std::vector<uint8_t>>();
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::string WriteTranscript(const Transcript& transcript) {
  Json messages = Json::array();
  for (const ChatMessage& message : transcript.messages) {
    messages.push_back(
        {{"role", message.role}, {"content", TextAsJson(message.content)}});
  }
  return DumpJson({{"system", TextAsJson(transcript.system)},
                   {"messages", messages},
                   {"uncached", transcript.uncached}});
}

std::optional<Transcript> ReadTranscript(std::string_view text) {
  try {
    const Json document = Json::parse(text);
    Transcript transcript;
    transcript.system = TextOf(document.at("system"));
    for (const Json& message : document.at("messages")) {
      transcript.messages.push_back({message.at("role").get<std::string>(),
                                     TextOf(message.at("content"))});
    }
    transcript.uncached = document.at("uncached").get<std::vector<int32_t>>();
    return transcript;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace lkv::cli
