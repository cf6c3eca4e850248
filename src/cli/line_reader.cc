#include "cli/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <utility>

#include "cli/output.h"
#include "cli/terminal_guard.h"

namespace lkv::cli {
namespace {

constexpr int kHistoryLines = 1000;

// libedit speaks wide characters, so it needs a locale that knows UTF-8.
void UseUtf8Characters() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

class LineReader::Editor {
 public:
  Editor(std::string prompt, const Interrupt& interrupt)
      : prompt_(std::move(prompt)), interrupt_(interrupt) {
    UseUtf8Characters();
    // Prompts and echo go to stderr: stdout holds the answers alone.
    editor_ = el_init("lkv", stdin, stderr, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(
        editor_, EL_PROMPT,
        +[](EditLine* e) { return Self(e)->prompt_.data(); });
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_GETCFN, &ReadCharacter);
    el_source(editor_, nullptr);  // the user's ~/.editrc
  }
  ~Editor() {
    history_end(history_);
    el_end(editor_);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  Event Next(std::string* line) {
    int n_bytes = 0;
    const char* text = el_gets(editor_, &n_bytes);
    if (interrupt_.Requested()) return Event::kInterrupted;
    if (text == nullptr || n_bytes <= 0) return Event::kEnd;
    line->assign(text, static_cast<size_t>(n_bytes));
    if (line->ends_with('\n')) line->pop_back();
    HistEvent event;
    if (!line->empty()) history(history_, &event, H_ENTER, line->c_str());
    return Event::kLine;
  }

 private:
  static Editor* Self(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<Editor*>(self);
  }

  // Returns when there is input, or false when Ctrl-C was pressed. One that
  // comes right before read() would not end it, so SIGINT is let through in
  // ppoll() only.
  static bool WaitForInput(const Interrupt& interrupt) {
    sigset_t ctrl_c;
    sigemptyset(&ctrl_c);
    sigaddset(&ctrl_c, SIGINT);
    sigset_t others;
    pthread_sigmask(SIG_BLOCK, &ctrl_c, &others);
    pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    while (!interrupt.Requested() && ppoll(&input, 1, nullptr, &others) < 0 &&
           errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &others, nullptr);
    return !interrupt.Requested();
  }

  // libedit's own reader retries after a signal, so that Ctrl-C would go
  // unnoticed until the next key.
  static int ReadCharacter(EditLine* editor, wchar_t* character) {
    std::mbstate_t state = {};
    for (;;) {
      if (!WaitForInput(Self(editor)->interrupt_)) return -1;
      char byte = 0;
      const ssize_t n = read(STDIN_FILENO, &byte, 1);
      if (n == 0) return 0;
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return -1;
      const size_t length = std::mbrtowc(character, &byte, 1, &state);
      if (length == static_cast<size_t>(-2)) continue;  // more bytes follow
      if (length == static_cast<size_t>(-1)) {          // no character: skip
        state = {};
        continue;
      }
      return 1;
    }
  }

  const TerminalGuard terminal_;  // first: remembers what libedit changes
  std::string prompt_;
  const Interrupt& interrupt_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
};

LineReader::LineReader(std::string prompt, const Interrupt& interrupt)
    : interrupt_(interrupt) {
  if (StdinIsTerminal()) {
    editor_ = std::make_unique<Editor>(std::move(prompt), interrupt);
  }
}

LineReader::~LineReader() = default;

LineReader::Event LineReader::Next(std::string* line) {
  const Event event = editor_ ? editor_->Next(line) : NextPlain(line);
  if (event == Event::kLine && line->ends_with('\r')) line->pop_back();
  return event;
}

bool LineReader::FillBlock() {
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, block_.data(), block_.size());
    if (n < 0 && errno == EINTR && !interrupt_.Requested()) continue;
    unread_ = {block_.data(), static_cast<size_t>(n > 0 ? n : 0)};
    return n > 0;
  }
}

LineReader::Event LineReader::NextPlain(std::string* line) {
  line->clear();
  size_t n_bytes = 0;
  for (;;) {
    if (unread_.empty() && !FillBlock()) {
      if (interrupt_.Requested()) return Event::kInterrupted;
      if (n_bytes == 0) return Event::kEnd;
      break;
    }
    if (interrupt_.Requested()) return Event::kInterrupted;
    const size_t end = unread_.find('\n');
    const std::string_view part = unread_.substr(0, end);
    n_bytes += part.size();
    if (n_bytes <= kLongestLine) *line += part;
    unread_.remove_prefix(part.size());
    if (end == std::string_view::npos) continue;
    unread_.remove_prefix(1);
    break;
  }
  return n_bytes > kLongestLine ? Event::kTooLong : Event::kLine;
}

}  // namespace lkv::cli
