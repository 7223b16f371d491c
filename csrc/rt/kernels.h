// Kernels and loops: the ABI that precompiled, compiled and exported kernels share.
//
// A kernel runs `axes` nested loops: first the outer axes, then the inner (row) axes. Its numbers `n` are
//   n[a]                        size of axis a
//   n[axes*(1+b) + a]           stride (elements) of buffer b along axis a; buffers: operands, then outputs
//   n[axes*(1+nbuf) + a]        stride of the element counter along axis a (logical position, for random numbers)
//   n[axes*(2+nbuf)]            its base
// It returns 0, or 1 + v where v is the first index value that was out of range (zigzag-coded: 2v or -2v-1).
#pragma once
#include <cstddef>
#include <cstdint>
#include "dtype.h"
#include "layout.h"

namespace rl {

typedef int64_t (*Kernel)(void* const* p, const int64_t* n, const Number* s);

struct KernelEntry {           // laid out as the emitter writes it: see rushlight/loops/library.py
  const char* key;             // "add.float32.TT": operator, storage dtypes, which operands are numbers or absent
  Kernel fn;
  int32_t outer, inner;        // loops
  int32_t inputs, outputs, numbers;
  int32_t serial;              // bit a: outer axis a must not be split over threads (scatter); bit 30: uses the element counter; 29: walks in tiles of its own
  int32_t cost;                // operations per element, for deciding about threads
  const char* origin;          // the declaration: "ops/pointwise.py:41"
};

// How threads share a single long row, where the kernel's fold allows it. `blocks` leaves the lanes of blocks begin..end, each
// of kBlock elements, in `kept` (`size` bytes a block); `join` adds up those of blocks 0..end in order, as the kernel itself
// does, and stores. For unit strides along the row; every other axis has one step.
constexpr int64_t kBlock = 4096;   // BLOCK of rushlight/loops/cpp.py
struct LongRow {
  typedef void (*Part)(void* const* p, const int64_t* n, const Number* s, char* kept, int64_t begin, int64_t end);
  const char* key;
  Part blocks, join;
  int64_t size;
};

// The same for any rows that a compiled graph's kernel folds over, its folds and its passes over elements in turn: phase i is
// shared out in blocks where bit i of `parallel` is set, and else run once. What phases hand on is in `kept`: `state` bytes
// of values of the row, then `size` bytes a block.
struct PhasedRow {
  typedef void (*Part)(void* const* p, const int64_t* n, const Number* s, char* kept, int64_t phase, int64_t begin, int64_t end);
  Part part;
  int64_t phases, parallel, state, size;
};

// Loads <folder>/libkernels_<isa>.so. RUSHLIGHT_ISA overrides the choice. Throws Runtime when it is missing.
void kernels_load(const char* folder);
const KernelEntry* kernel_find(const char* key);             // nullptr when not precompiled
const LongRow* long_row_of(const KernelEntry*);              // nullptr where there is none
int64_t kernel_count();
const KernelEntry* kernel_at(int64_t i);

// ---- a recipe: what is known of a kernel call before its sizes are. A plan: the same with sizes.

// PerRow: one number a row: row dims have size 1, or are all left out (as many dims as there are others); stride 0 there.
enum class Operand : uint8_t { Full, PerRow };
enum class Output : uint8_t {
  Same,          // full shape, dense in the order of dims of the full operands (PyTorch's rule; ambiguous: C order)
  Contiguous,    // full shape, C order
  KeepRow,       // one number a row, row dims kept as 1
  DropRow,       // one number a row, row dims dropped
};
enum class Rule : uint8_t {
  Broadcast,     // no row dims
  Rows,          // `rows` is a mask over the dims of the full shape
  Table,         // (weight [V, D], indices [*I]) -> [*I, D]; loops (*I, D | V)
  IntoTable,     // (values [*I, D], indices [*I]) -> zeros [size, D], added into; loops (*I, D | size)
  Sized,         // no tensor operand decides: the full shape is given
};

constexpr int kMaxInputs = 16, kMaxOutputs = 8;   // of one kernel

struct Recipe {
  const KernelEntry* kernel;
  Rule rule;
  uint32_t rows;               // mask of row dims in the full shape
  int ninputs, noutputs;
  Operand in[kMaxInputs];
  Output out[kMaxOutputs];
  DType out_dtype[kMaxOutputs];
  bool nonempty;               // rows of no elements have no result
  const PhasedRow* phased;     // how threads share a single long row; nullptr: not by phases
};

struct LoopPlan {
  const KernelEntry* kernel;
  int nbuf, axes;
  int64_t itemsize[kMaxInputs + kMaxOutputs];  // of each buffer
  int split;                   // axis to split over threads (axes + e: excess loop e), -1: none
  int64_t pieces;              // at most so many pieces
  bool release;                // predicted above 20 microseconds: the caller should release the GIL
  bool zero_out;               // the kernel adds into its outputs: the caller zeroes them first
  const LongRow* long_row;     // the single row is shared out in blocks; nullptr: not
  const PhasedRow* phased;     // likewise, by phases
  int tile[2];                 // two axes to run in square tiles (transposed copies), -1: none
  int count;                   // length of n
  int excess;                  // loops beyond the kernel's, around it: their numbers follow n, laid out as n is, no base
  bool empty;                  // the outputs have no element
  int64_t n[];
};

// The size of a plan with all its numbers, those of the excess loops too: what a copy takes.
inline std::size_t loop_bytes(const LoopPlan* p) {
  const int64_t numbers = p->count + static_cast<int64_t>(p->excess) * (2 + p->nbuf);
  return sizeof(LoopPlan) + sizeof(int64_t) * static_cast<std::size_t>(numbers);
}

// Operand layouts (and, for out= and in-place, given output layouts, else null) -> outputs' layouts (new references in
// `outs`) and the loops. `sizes` is the full shape for Sized, {size} for IntoTable. `op` names the operator in errors:
// "[add] x [2, 3] and y [4] do not broadcast". Free with free().
LoopPlan* loop_plan(const char* op, const Recipe&, Layout* const* inputs, Layout* const* given, const int64_t* sizes,
                    int nsizes, Layout** outs);

// Runs it: pointers already include offsets. Splits over threads where that pays. Returns the kernel's code.
int64_t loop_run(const LoopPlan*, void* const* pointers, const Number* numbers);

}  // namespace rl
