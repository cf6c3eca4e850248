// Continues a text with KV memory for no more than 512 tokens, and says what
// that saved and cost.
//   generate MODEL.gguf TEXT_FILE
#include <lookaheadkv/engine.h>

#include <cstdio>
#include <fstream>
#include <sstream>

// Prints why a call failed and returns main's answer to that.
static int Fail(const lkv::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return Fail(lkv::InvalidArgument("generate MODEL TEXT_FILE"));
  std::ifstream file(argv[2]);
  if (!file) return Fail(lkv::NotFound(std::string(argv[2]) + ": unreadable"));
  std::stringstream text;
  text << file.rdbuf();

  auto model = lkv::Model::Open(argv[1], {});
  if (!model.ok()) return Fail(model.status());

  // Text and reply may be as long as the model was trained for.
  lkv::SessionOptions options;
  options.cache.budget.kind = lkv::Budget::Kind::kTokens;
  options.cache.budget.amount = 512;
  auto session = model->NewSession(options);
  if (!session.ok()) return Fail(session.status());

  auto print = [](std::string_view part) {
    return std::fwrite(part.data(), 1, part.size(), stdout) == part.size();
  };
  auto reply = session->Generate(text.str(), {.max_new_tokens = 64}, print, {});
  if (!reply.ok()) return Fail(reply.status());

  auto hits = session->MeasureHitRates();
  if (!hits.ok()) return Fail(hits.status());
  lkv::SessionMemory memory = session->memory();
  std::printf(
      "\nKV %.1f MB, all of it would be %.1f MB; attention kept: %.1f %%\n",
      1e-6 * static_cast<double>(memory.resident_bytes_max),
      1e-6 * static_cast<double>(memory.full_bytes), 100 * hits->mass);
}
