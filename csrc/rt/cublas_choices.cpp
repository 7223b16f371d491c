// Choices of cuBLASLt's algorithms, by device.
// Invariant: a device holds at most kMost; later ones are made, and not kept.
#include "cublas_choices.h"

#include <cstring>
#include <map>

#include "cuda_device.h"

namespace rl::cuda {
namespace {

constexpr size_t kMost = 4096;
constexpr size_t kBytes = sizeof(Question) + sizeof(Choice);
static_assert(sizeof(Question) == kQuestionWords * 8 && sizeof(Choice) == 72);

struct Choices {
  std::map<Question, Choice> all;
  int64_t asked = 0;
};
Choices& choices(int device) {
  static auto* devices = new Choices[kMaxDevices];  // never destroyed
  return devices[device];
}

}  // namespace

const Choice* choice_known(int device, const Question& q) {
  const auto& all = choices(device).all;
  const auto at = all.find(q);
  return at == all.end() ? nullptr : &at->second;
}

void choice_made(int device, const Question& q, const Choice& c) {
  Choices& known = choices(device);
  ++known.asked;
  if (known.all.size() < kMost) known.all[q] = c;
}

std::string choices_told(int device) {
  std::string bytes;
  for (const auto& [question, choice] : choices(device).all) {
    bytes.append(reinterpret_cast<const char*>(&question), sizeof question);
    bytes.append(reinterpret_cast<const char*>(&choice), sizeof choice);
  }
  return bytes;
}

bool choices_learn(int device, const void* bytes, size_t size) {
  if (size % kBytes) return false;
  auto& all = choices(device).all;
  const char* at = static_cast<const char*>(bytes);
  for (const char* end = at + size; at < end && all.size() < kMost; at += kBytes) {
    Question q;
    Choice c;
    std::memcpy(&q, at, sizeof q);
    std::memcpy(&c, at + sizeof q, sizeof c);
    all.emplace(q, c);
  }
  return true;
}

int64_t choices_asked(int device) { return choices(device).asked; }

}  // namespace rl::cuda
