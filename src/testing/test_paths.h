// Where tests find the model and put their files.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lkv {

// SmolLM2-135M-Instruct Q4_1, or the file named by LKV_TEST_MODEL.
inline std::string TestModelPath() {
  if (const char* path = std::getenv("LKV_TEST_MODEL")) return path;
  return LKV_SOURCE_DIR "/.deps/model/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// A folder that is gone with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string path =
        (std::filesystem::temp_directory_path() / "lkv-test-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~TempFolder() {
    std::error_code ignored;  // a leftover in /tmp fails no test
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string File(const std::string& name) const {
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lkv
