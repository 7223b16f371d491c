// Routines: what no loop body describes (convolution, sorting, scans, gathers). One call shape for all, found by name.
//
// A routine reads its operands and writes all of its outputs. Operands come as the call's tensors in order (absent ones are
// left out: `ints` says which), outputs in the layouts that the declaration's rule gave; all are contiguous in C order, dtypes
// as the declaration's promotion left them. An output that starts as a copy of an operand (`writes`) already holds it.
// Routines run without the GIL and may run at the same time; they throw rl::Error, and where an index is wrong, before
// anything is written.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>

#include "dtype.h"
#include "layout.h"

namespace rl {

struct RoutineOperand {
  void* data;
  const Layout* layout;
  template <class T>
  T* as() const { return static_cast<T*>(data); }
};

// What a routine keeps with a plan from call to call: a library's primitive. Empty at first.
struct RoutineMemo {
  std::mutex lock;
  std::shared_ptr<void> value;
};

struct RoutineCall {
  const char* op;                        // names the operator in errors
  const RoutineOperand *in, *out;
  int nin, nout;
  const int64_t* ints;                   // what the declaration's body returned: dims, flags, paddings
  int nints;
  const Number* numbers;                 // run-time numbers, in order of parameters
  int nnumbers;
  RoutineMemo* memo;
};

typedef void (*RoutineFunction)(const RoutineCall&);
struct Routine {
  const char* name;
  RoutineFunction run;
  const Routine* next;
};
const Routine* routine_find(const char* name);     // nullptr: there is none
void routine_register(Routine*);

// RL_ROUTINE(sort, run_sort) in the file that defines it.
#define RL_ROUTINE(name, function)                                             \
  static ::rl::Routine routine_##name = {#name, function, nullptr};            \
  static const bool registered_##name = (::rl::routine_register(&routine_##name), true);

}  // namespace rl
