// Recipes and plans: what a call does, found by its key. Takes a Call; gives a Plan, made by Python
// on first sight.
// Invariant: a plan holds references to everything whose address stands in its key, so that no
// address is used again.
#pragma once
#include "core.h"
#include "devices.h"
#include "operator.h"
#include "rt/gemm.h"
#include "rt/routines.h"

namespace core {

struct Program;
struct Steps;

constexpr int kNumbers = 16;                          // run-time numbers of one kernel, at most
struct NumberSlot { int param; char how; };          // 'f' or 'i'

// A leaf: one kernel under one layout rule. Called directly (FusedKernel in programs) it takes
// tensors, then numbers.
struct RecipeObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  rl::Recipe recipe;
  rl::KernelEntry own;                               // FusedKernel: the entry itself
  rl::PhasedRow phased;                              // FusedKernel: where recipe.phased points
  PyObject *key, *origin, *owner;
  NumberSlot* numbers;
  int nnumbers, sizes;
  struct Memo {
    Layout *in[rl::kMaxInputs], *given[rl::kMaxOutputs];  // given: null where allocated
    Layout* outs[rl::kMaxOutputs];
    rl::LoopPlan* loop;
  };
  Memo* memo;  // loops of a fused kernel by operand layouts, the latest few
  int memo_count, memo_next;
};
struct GemmRecipeObject {
  PyObject_HEAD
  int x, y, bias, alpha, beta;                       // parameter indices, -1: absent
  int out_dtype;                                     // -1: that of x
};
// A routine of rt, or a kernel of a GPU that takes whole operands, for one set of operand layouts.
struct RoutineRecipeObject {
  PyObject_HEAD
  const rl::Routine* routine;                        // null: only a kernel
  PyObject* kernel;                                  // owned: a DeviceKernel, or null
  int nouts, writes;                                 // writes: the operand that output 0 begins as, -1
  bool strided;                                      // it takes operands as they lie
  Layout* outs[4];                                   // owned
  std::vector<int64_t>* ints;
  std::vector<NumberSlot>* numbers;
};
// An output put together, for one set of operand layouts: pieces in the order they are written.
struct AssemblyPiece {
  int operand;                                       // -1: the number
  PyObject* number;                                  // owned
  Layout* place;                                     // owned
  int64_t offset;
};
struct AssemblyRecipeObject {
  PyObject_HEAD
  Layout* out;                                       // owned
  std::vector<AssemblyPiece>* pieces;
};
extern PyTypeObject *RecipeType, *FusedKernelType, *GemmRecipeType, *RoutineRecipeType,
    *AssemblyRecipeType;

// What the derivative needs, shared by all nodes of one plan.
struct Backward {
  int64_t refs;
  Program* program;                                  // owned
  std::vector<int> operands, outs, params;           // what is saved
  bool undefined;  // the program takes None for an undefined gradient
  // of select and slice: the call's arguments but for those in `params`, so that the engine can open
  // the same window on a gradient; owned
  std::vector<PyObject*> window;
  // for some of the operands only: bits of these -> the program; owned
  std::vector<std::pair<uint64_t, Program*>> parts;
};
void backward_drop(Backward*);
constexpr uint64_t kEvery = ~uint64_t{0};
Program* backward_part(Backward*, uint64_t wanted);  // borrowed

// Device: not the CPU; its runtime made the plan
enum class PlanKind : uint8_t { Leaf, Sized, Gemm, Routine, Assembly, Program, Write, View, Device };

struct Plan {
  int64_t refs;
  uint64_t hash, stamp;
  Operator* op;
  PlanKind kind;
  bool backward_known;
  bool dropped;                                      // evicted: whoever still holds it looks up anew
  int nouts;
  int busy;                                          // runs that have released the GIL
  rl::LoopPlan* loop;  // Leaf; Write: with given outputs, null: by a temporary; Sized: the latest
  Layout* outs[rl::kMaxOutputs];
  RecipeObject* recipe;                              // owned
  Program* program;                                  // owned
  rl::GemmPlan* gemm;
  GemmRecipeObject* gemm_recipe;                     // owned
  bool gemm_copies[3];                               // operands that must be made contiguous first
  RoutineRecipeObject* routine;                      // owned
  AssemblyRecipeObject* assembly;                    // owned
  rl::RoutineMemo* memo;                             // owned
  std::shared_ptr<DevicePlan> device;  // Device; Write: with given outputs, null: by a temporary
  bool direct;                                       // Write of a Routine: it takes the given outputs
  // Leaf whose operands no loop takes, Routine with odd strides: into which layouts they go first; owned
  std::vector<Layout*> copies;
  Plan* functional;                                  // Write: the plan of the plain call
  Backward* backward;
  std::vector<int64_t> sizes;                        // Sized: for which `loop` is right
  std::vector<PyObject*> held;  // owned: objects whose addresses are in the key
  std::vector<Layout*> layouts;                      // owned
  std::vector<uint64_t> key;
  Steps* steps;                                      // owned: what the program comes to, once known
  int learned;                                       // how often it was asked
};
inline void incref(Plan* p) { ++p->refs; }
void plan_free(Plan*);
inline void decref(Plan* p) { if (--p->refs == 0) plan_free(p); }

class PlanHold {                                     // keeps a plan while a call runs on it
 public:
  explicit PlanHold(Plan* p) : plan(p) { incref(p); }
  ~PlanHold() { decref(plan); }
  PlanHold(const PlanHold&) = delete;
  Plan* const plan;
};

// The plan of the encoded call; on a miss Python's make_plan decides. `hit` says which.
Plan* plan_find(Call&, bool* hit);
Plan* plan_seen(const Call&);                        // if it is there; not counted
void plan_used(Plan*);                               // counted as found
extern uint64_t plan_epoch;                          // another number after every plan_clear
Plan* plan_find_write(Call&, Tensor* const* outs, int nouts, bool* hit);
Plan* plan_find_view(Call&);
// null: not differentiable
Backward* plan_backward(Plan*, Call&, PyObject* const* outs, int nouts);
void plan_check_rows(const rl::Recipe&, const char* op, const Layout* full);
void plan_copy_targets(const rl::Recipe&, const Call&, std::vector<Layout*>& copies);   // owned
std::string plan_text(const Plan*);                  // kernel key, library routine, "program"

// execute.cpp
Ref plan_execute(Plan*, Call&);  // a Tensor, a tuple, or what the program returns
void plan_write(Plan*, Call&, Tensor* const* outs, int nouts);            // Write with a loop
Number number_from(PyObject*, char how);

// routine.cpp
// a new reference, from what a recipe was given
Layout* layout_read(const char* what, PyObject* shape, PyObject* strides, DType,
    Device = Device::CPU);
void routine_build(Plan*, const Call&);
Ref routine_execute(Plan*, Call&);
void routine_run(Plan*, Call&, Tensor* const* outs);  // of the layouts that the plan states
void routine_init(PyObject* module);

PyObject* recipe_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names);

// assembly.cpp
void assembly_build(Plan*, const Call&);
Ref assembly_execute(Plan*, Call&);
void assembly_init(PyObject* module);

extern PyMethodDef plan_functions[];
void plan_init(PyObject* module);

}  // namespace core
