// What a process that multiplies matrices on a GPU pays for once, on a thread of its own: cuBLASLt
// is opened (a library of half a gigabyte) and its handle made.
//
// Nobody asks for it who might not need it: a process that fails there hears of it from its first
// product, which tries again.
#pragma once
#include <string>

namespace rl::cuda {

// Returns at once; at most one thread a device. Nothing happens where RUSHLIGHT_CUDA_AHEAD=0, or
// where the process has one processor: there is nobody to do it beside.
void ahead_begin(int device);

struct AheadState {
  bool begun, over;
  std::string refusal;  // what went wrong, in words
};
AheadState ahead_state(int device, bool wait);

// Before the process ends: nothing more is begun, and what is under way inside a library is waited
// for (it would meet that library's destructors), for some seconds at most.
void ahead_end();

}  // namespace rl::cuda
