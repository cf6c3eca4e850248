// Continues a text with a quarter of the KV memory, and says what that saved
// and cost.
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
  if (argc != 3) return Fail(lkv::InvalidArgument("generate MODEL TEXT"));
  std::stringstream text;
  text << std::ifstream(argv[2]).rdbuf();

  auto model = lkv::Model::Open(argv[1], {});
  if (!model.ok()) return Fail(model.status());

  lkv::SessionOptions options;
  options.max_tokens = 2048;
  options.cache.budget.kind = lkv::Budget::Kind::kShare;
  options.cache.budget.share = 0.25;
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
  std::printf("\nKV %.1f MB of %.1f MB, attention kept: %.3f\n",
              1e-6 * static_cast<double>(memory.resident_bytes_max),
              1e-6 * static_cast<double>(memory.full_bytes), hits->mass);
}
