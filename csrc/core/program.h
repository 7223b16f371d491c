// Program: operator calls on registers, run natively.
// Invariant: instructions only read registers that are inputs or written before; a register is
// freed after its last use.
#pragma once
#include "core.h"

namespace core {

struct Argument {
  enum Kind : uint8_t { Register, Item, List, Constant } kind;
  int index, item;                                    // register, element
  PyObject* object;                                   // owned constant
  std::vector<Argument> entries;                      // of a list
};

struct Link;
class StepsLearner;

struct Instruction {
  enum Callee : uint8_t { Operator, Kernel, Callable } how;
  PyObject* callee;                                   // owned
  std::vector<Argument> arguments;
  std::vector<int> outs;                              // -1: dropped
  std::vector<int> last;                              // registers to free afterwards
  bool linkable = false;                              // an operator whose plan may be remembered
  bool repeated = false;                              // it ran before: what runs once holds nothing
  Link* link = nullptr;                               // owned: the latest one
};

struct Program {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  int ninputs, nregisters;
  bool single;                                        // one value instead of a tuple
  bool transparent;                                   // parts record themselves on the tape
  bool settled;                                       // runs without autocast
  bool ranks;  // holds for every layout of the same dtypes and ranks
  std::vector<Instruction>* instructions;
  std::vector<Argument>* outputs;
  PyObject *names, *given;                            // provenance; the instructions as given
  PyObject* label;                                    // owned str of a compiled graph, or null
};
extern PyTypeObject* ProgramType;

// Takes over the references in `inputs` (each is freed after its last use); `outputs` gets new
// references.
void program_run(Program*, PyObject** inputs, int n, std::vector<Ref>& outputs);
// a value or a tuple
Ref program_value(Program*, PyObject** inputs, int n, StepsLearner* = nullptr);

void program_init(PyObject* module);
void workspace_init(PyObject* module);

}  // namespace core
