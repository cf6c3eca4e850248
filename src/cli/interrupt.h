// Ctrl-C, as the verbs see it; SIGTERM, with which a time limit ends a process,
// is the same to them. One instance per process at a time, because
// signal handlers are.
//
// Thread rule: Requested() from any thread.
#pragma once

#include <string>

namespace lkv::cli {

class Interrupt {
 public:
  // What stderr says when Ctrl-C ends the process.
  static constexpr char kMessage[] = "interrupted; nothing was finished";

  // Takes over SIGINT and SIGTERM until destroyed, and ignores SIGPIPE, so that
  // a closed pipe is an error of write() and not the end of the process.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // While nothing is worth reporting (a model is being loaded), Ctrl-C ends
  // the process at once with one line on stderr and exit code 130.
  void EndAtOnce();
  // From now on the first Ctrl-C only sets a flag that long work asks for; the
  // second one ends the process at once.
  void SetFlag();

  // What stdout shall hold when Ctrl-C ends the process, until dropped.
  void SetLastWords(std::string words);
  void DropLastWords();

  bool Requested() const;
  // Forgets a Ctrl-C that has been dealt with.
  void Clear();

 private:
  std::string words_;
};

}  // namespace lkv::cli
