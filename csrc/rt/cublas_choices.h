// Which algorithm cuBLASLt's heuristics choose for a product: asked once a process, and handed on to
// other processes.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace rl::cuda {

// All that the heuristics are told, and the version of the library that is told it. Choices of
// another version answer nothing.
constexpr int kQuestionWords = 31;
typedef std::array<int64_t, kQuestionWords> Question;
struct Choice {
  uint64_t algorithm[8];  // cublasLtMatmulAlgo_t: plain bytes, by the library's manual
  uint64_t workspace;
};

// Whoever calls these holds the GIL.
const Choice* choice_known(int device, const Question&);  // null: the library must be asked
void choice_made(int device, const Question&, const Choice&);
// All of a device as bytes that `choices_learn` takes, on a machine like this one.
std::string choices_told(int device);
// False: these are no such bytes. What is known stays as it is.
bool choices_learn(int device, const void* bytes, size_t size);
int64_t choices_asked(int device);  // made by this process

}  // namespace rl::cuda
