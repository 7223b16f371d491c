// The iteration space of a kernel call: which loops there are and how each buffer moves along them,
// before they are merged and fitted to the kernel's axes. Internal to rt.
#pragma once
#include "kernels.h"

namespace rl {

constexpr int kBuffers = kMaxInputs + kMaxOutputs;  // operands, then outputs

struct Loop {
  int64_t size;
  int64_t stride[kBuffers];  // elements
  int64_t counter;           // of the element counter
};

struct Space {
  // Groups never mix: 0 the outer loops, 1 a table's trailing dims (D), 2 the loops within a row.
  enum Group { kOuter = 0, kTrailing = 1, kRow = 2 };
  int nbuf;
  int count[3];
  Loop loops[3][kMaxDims];  // outermost first
  bool ordered;             // outer loops must keep their order
  bool row_is_range;        // the row loop only bounds indices: it is no work
};

// Fills `space` and `outs` (new references). Throws what PyTorch throws, with [op] and the shapes.
void make_space(const char* op, const Recipe&, Layout* const* inputs, Layout* const* given,
                const int64_t* sizes, int nsizes, Layout** outs, Space* space);

// PyTorch's order of dims: perm[0] becomes the fastest. Compares strides of the listed buffers in
// turn; strides 0 decide nothing, ties keep C order.
void order_loops(int count, const Loop* loops, int nbuffers, const int* buffers, int* perm);

}  // namespace rl
