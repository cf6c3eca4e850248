#include "eval/recall_tasks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/seeded_shuffle.h"
#include "base/types.h"

namespace lkv {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::array<std::pair<RecallTask, std::string_view>, 6> kNames = {{
    {RecallTask::kNeedle, "needle"},
    {RecallTask::kMultikey, "multikey"},
    {RecallTask::kVariable, "variable"},
    {RecallTask::kFacts, "facts"},
    {RecallTask::kRepetition, "repetition"},
    {RecallTask::kDialogue, "dialogue"},
}};

constexpr std::array<std::string_view, 24> kAdjectives = {
    "amber",  "brave",  "copper", "distant", "early",  "famous",
    "gentle", "hidden", "ivory",  "jolly",   "kind",   "lonely",
    "marble", "narrow", "olive",  "patient", "quiet",  "rusty",
    "silver", "tall",   "upper",  "violet",  "wooden", "yellow"};
constexpr std::array<std::string_view, 32> kThings = {
    "anchor",  "basket", "candle",  "drum",   "engine", "feather", "garden",
    "hammer",  "island", "jacket",  "kettle", "ladder", "mirror",  "needle",
    "orchard", "pencil", "quarry",  "river",  "saddle", "tower",   "umbrella",
    "valley",  "window", "barrel",  "bridge", "castle", "forest",  "lantern",
    "market",  "piano",  "station", "village"};
constexpr std::array<std::string_view, 16> kWorkers = {
    "baker",  "carpenter", "doctor", "farmer", "gardener", "judge",
    "miller", "painter",   "pilot",  "sailor", "singer",   "smith",
    "tailor", "teacher",   "weaver", "writer"};
constexpr std::array<std::string_view, 12> kDeeds = {
    "carried", "cleaned", "described", "drew",   "found", "mended",
    "moved",   "painted", "praised",   "showed", "sold",  "watched"};
constexpr std::array<std::string_view, 12> kPlaces = {
    "behind the mill",     "near the harbour",  "at the old school",
    "in the market hall",  "under the bridge",  "by the north gate",
    "on the way home",     "beside the church", "in the town garden",
    "at the edge of town", "across the square", "outside the inn"};
constexpr std::array<std::string_view, 10> kTimes = {
    "In the morning", "After lunch",   "Before sunset", "On Monday",
    "That evening",   "Late at night", "Last winter",   "In early spring",
    "Once a year",    "On a wet day"};
constexpr std::array<std::string_view, 24> kTowns = {
    "Ashford", "Brampton", "Carlow", "Denby",   "Elmore", "Farley",
    "Gorton",  "Hexham",   "Ilkley", "Jarrow",  "Kelso",  "Ludlow",
    "Marlow",  "Norwick",  "Oakham", "Penrith", "Quorn",  "Ripley",
    "Selby",   "Thirsk",   "Upton",  "Ventnor", "Whitby", "Yarm"};
constexpr std::array<std::string_view, 24> kPeople = {
    "Alice",   "Bruno", "Clara", "David", "Emma",   "Felix",  "Grace", "Henry",
    "Irene",   "Jacob", "Karen", "Louis", "Maria",  "Nigel",  "Olga",  "Peter",
    "Quentin", "Rosa",  "Simon", "Tanya", "Ursula", "Victor", "Wanda", "Zoe"};

// Draws by remainder, because std's distributions differ between libraries.
// One draw for each statement: compilers choose the order within one.
class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}

  uint32_t Number(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random_() % (high - low + 1));
  }
  std::string Pick(Words words) {
    return std::string(words[random_() % words.size()]);
  }
  template <typename T>
  void Shuffle(std::vector<T>& things) {
    SeededShuffle(things, random_);
  }
  // `n` different words.
  std::vector<std::string> Several(Words words, size_t n) {
    CHECK(n <= words.size());
    std::vector<std::string> some(words.begin(), words.end());
    Shuffle(some);
    some.resize(n);
    return some;
  }
  // Three digits, which most vocabularies read one by one.
  std::string Digits() { return std::to_string(Number(100, 999)); }

  std::string Sentence() {
    std::string text = Pick(kTimes);
    text.append(" the ").append(Pick(kWorkers));
    text.append(" ").append(Pick(kDeeds));
    text.append(" the ").append(Pick(kThings));
    text.append(" ").append(Pick(kPlaces)).append(".\n");
    return text;
  }

 private:
  std::mt19937_64 random_;
};

// What a sentence and a turn have at least, on average over a few.
constexpr uint32_t kSentenceTokens = 12, kTurnTokens = 30;

// Sentences stand in front of what is asked for: 28 tokens, more than the page
// of 16 that holds the sinks and never leaves.
constexpr uint32_t kFirstPlace = 2;
// In percent of the sentences: behind this part nothing is stated.
constexpr uint32_t kLastPlace = 85;

// Filler with `lines` among it, in their order, a random place in each of as
// many equal stretches of the first part of the text.
std::string Scatter(Chance& chance, const std::vector<std::string>& lines,
                    uint32_t n_filler) {
  const uint32_t begin = std::max(kFirstPlace, n_filler * 5 / 100);
  const uint32_t span = n_filler * kLastPlace / 100 - begin;
  std::vector<uint32_t> places;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto low = static_cast<uint32_t>(span * i / lines.size());
    const auto high = static_cast<uint32_t>(span * (i + 1) / lines.size());
    places.push_back(begin + chance.Number(low, std::max(low + 1, high) - 1));
  }
  std::string text;
  size_t next = 0;
  for (uint32_t i = 0; i < n_filler; ++i) {
    for (; next < lines.size() && places[next] <= i; ++next) {
      text += lines[next];
    }
    text += chance.Sentence();
  }
  for (; next < lines.size(); ++next) text += lines[next];
  return text;
}

RecallExample Needle(Chance& chance, uint32_t n_filler) {
  std::string line = "The secret number of the " + chance.Pick(kAdjectives);
  line.append(" ").append(chance.Pick(kThings)).append(" is");
  const std::string number = chance.Digits();
  return {Scatter(chance, {line + " " + number + ".\n"}, n_filler),
          {{line, number}}};
}

// The number stands right behind its key, whose words stand in no sentence:
// otherwise small models take any number.
RecallExample Multikey(Chance& chance, uint32_t n_filler) {
  constexpr size_t kKeys = 4;
  const auto people = chance.Several(kPeople, kKeys);
  const auto adjectives = chance.Several(kAdjectives, kKeys);
  std::vector<std::string> lines;
  RecallExample example;
  for (size_t i = 0; i < kKeys; ++i) {
    const std::string line = "Note: " + people[i] + " " + adjectives[i];
    const std::string number = chance.Digits();
    lines.push_back(line + " " + number + "\n");
    example.questions.push_back({line, number});
  }
  example.context = Scatter(chance, lines, n_filler);
  return example;
}

RecallExample Variables(Chance& chance, uint32_t n_filler) {
  constexpr size_t kChains = 4, kShown = 2;
  const auto names = chance.Several(kPeople, kChains + kShown);
  const auto values = chance.Several(kAdjectives, kChains + kShown);
  std::string form;
  for (size_t i = kChains; i < kChains + kShown; ++i) {
    form +=
        "Chain: " + names[i] + " " + values[i] + " " + chance.Digits() + "\n";
  }
  std::vector<std::string> lines(2 * kChains);
  RecallExample example;
  for (size_t i = 0; i < kChains; ++i) {
    const std::string number = chance.Digits();
    lines[i] = "Link: " + names[i] + " " + values[i] + "\n";
    lines[kChains + i] = "Link: " + values[i] + " " + number + "\n";
    example.questions.push_back(
        {form + "Chain: " + names[i], values[i] + " " + number});
  }
  example.context = Scatter(chance, lines, n_filler);
  return example;
}

RecallExample Facts(Chance& chance, uint32_t n_filler) {
  struct Relation {
    std::string_view question;
    std::string_view statement;  // and then the answer
    Words answers;
  };
  static const std::array<Relation, 8> kRelations = {{
      {"Where was the painter born?", "The painter was born in", kTowns},
      {"Who built the first bridge?", "The first bridge was built by", kPeople},
      {"What did the thief steal?", "The thief stole a", kThings},
      {"Who is the new mayor?", "The new mayor is called", kPeople},
      {"Who won the race?", "The race was won by", kPeople},
      {"Where does the train end?", "The last stop of the train is", kTowns},
      {"What did the pilot forget?", "The pilot forgot his", kThings},
      {"Who keeps the key?", "The key is kept by", kPeople},
  }};
  constexpr size_t kQuestions = 4;
  std::string form =
      "Question: Who wrote the letter?\nAnswer: The letter was written by " +
      chance.Pick(kPeople) + ".\n";
  form +=
      "Question: Where was the ship built?\nAnswer: The ship was built in " +
      chance.Pick(kTowns) + ".\n";
  const auto ask = [&](const Relation& relation) {
    return form + "Question: " + std::string(relation.question) +
           "\nAnswer: " + std::string(relation.statement);
  };
  std::vector<std::string> lines;
  RecallExample example;
  for (const Relation& relation : kRelations) {
    const std::string answer = chance.Pick(relation.answers);
    lines.push_back(std::string(relation.statement) + " " + answer + ".\n");
    example.questions.push_back({ask(relation), answer});
  }
  chance.Shuffle(example.questions);
  example.questions.resize(kQuestions);
  chance.Shuffle(lines);
  example.context = Scatter(chance, lines, n_filler);
  return example;
}

RecallExample Repetition(Chance& chance, uint32_t n_filler) {
  constexpr size_t kBlocks = 3, kWordsOfBlock = 16, kGiven = 10, kAsked = 2;
  // None of these words stands in a sentence.
  std::vector<std::string_view> all(kAdjectives.begin(), kAdjectives.end());
  all.insert(all.end(), kPeople.begin(), kPeople.end());
  const auto words = chance.Several(all, kBlocks * kWordsOfBlock);
  // Words [first, first + n) with spaces between them.
  const auto join = [&](size_t first, size_t n) {
    std::string text = words[first];
    for (size_t i = 1; i < n; ++i) text += " " + words[first + i];
    return text;
  };
  std::vector<std::string> lines;
  RecallExample example;
  for (size_t i = 0; i < kBlocks; ++i) {
    const size_t first = i * kWordsOfBlock;
    lines.push_back(join(first, kWordsOfBlock) + "\n");
    example.questions.push_back(
        {join(first, kGiven), join(first + kGiven, kAsked)});
  }
  example.context = Scatter(chance, lines, n_filler);
  return example;
}

RecallExample Dialogue(Chance& chance, uint32_t n_turns) {
  const std::string name = chance.Pick(kPeople);
  const std::string town = chance.Pick(kTowns);
  const std::string locker = chance.Digits();
  const std::string thing = chance.Pick(kThings);
  RecallExample example;
  // The first page of 16 tokens, which holds the sinks, never leaves.
  example.context =
      "This is what a user, who needs help, and an assistant, who gives it, "
      "said to each other one day.\nUser: Hello, my name is " +
      name + ". My home town is " + town + ", my locker number is " + locker +
      ", and I lost my " + thing +
      ".\nAssistant: Hello, thank you for telling me. What can I "
      "do for you today?\n";
  for (uint32_t i = 0; i < n_turns; ++i) {
    const std::string worker = chance.Pick(kWorkers);
    const std::string place = chance.Pick(kPlaces);
    example.context += "User: What did the " + worker + " do " + place +
                       "?\nAssistant: " + chance.Sentence();
  }
  example.questions = {
      {"User: What is my name?\nAssistant: Your name is", name},
      {"User: What is my home town?\nAssistant: Your home town is", town},
      {"User: What is my locker number?\nAssistant: Your locker number is",
       locker},
      {"User: What did I lose?\nAssistant: You lost your", thing}};
  return example;
}

bool GoesOnWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

std::span<const RecallTask> AllRecallTasks() {
  static constexpr std::array<RecallTask, kNames.size()> kAll = {
      RecallTask::kNeedle, RecallTask::kMultikey,   RecallTask::kVariable,
      RecallTask::kFacts,  RecallTask::kRepetition, RecallTask::kDialogue};
  return kAll;
}

std::string_view NameOf(RecallTask task) {
  for (const auto& [known, name] : kNames) {
    if (known == task) return name;
  }
  CHECK(false);
  return {};
}

std::optional<RecallTask> FindRecallTask(std::string_view name) {
  for (const auto& [task, known] : kNames) {
    if (known == name) return task;
  }
  return std::nullopt;
}

RecallExample MakeRecallExample(RecallTask task, uint64_t seed,
                                uint32_t n_filler) {
  CHECK(n_filler >= kLeastFiller);
  Chance chance(seed);
  switch (task) {
    case RecallTask::kNeedle:
      return Needle(chance, n_filler);
    case RecallTask::kMultikey:
      return Multikey(chance, n_filler);
    case RecallTask::kVariable:
      return Variables(chance, n_filler);
    case RecallTask::kFacts:
      return Facts(chance, n_filler);
    case RecallTask::kRepetition:
      return Repetition(chance, n_filler);
    case RecallTask::kDialogue:
      return Dialogue(chance, n_filler);
  }
  CHECK(false);
  return {};
}

uint32_t LeastFiller(RecallTask task, uint32_t recent_tokens) {
  const uint32_t n_behind =
      task == RecallTask::kDialogue
          ? CeilDiv(recent_tokens, kTurnTokens)
          : CeilDiv(100 * CeilDiv(recent_tokens, kSentenceTokens),
                    100 - kLastPlace);
  return std::max(kLeastFiller, n_behind);
}

bool AnswersExactly(std::string_view reply, std::string_view answer) {
  const size_t begin = std::min(reply.find_first_not_of(' '), reply.size());
  reply.remove_prefix(begin);
  if (!reply.starts_with(answer)) return false;
  return reply.size() == answer.size() || !GoesOnWord(reply[answer.size()]);
}

}  // namespace lkv
