// Records: what each call did, kept natively while the mode bit is on.
#pragma once
#include "core.h"
#include "operator.h"
#include "plan.h"

namespace core {

// core.cpp: "optim/each.py:73 in counted", where the innermost frame is one of the package's
std::string package_line();

// One call being recorded; nests. Made only when the mode word says so. Kinds that are no
// operator's: "compiled" (a call of a compiled function), "graph" (a labelled program), "fused" (a
// kernel of one).
class RecordScope {
 public:
  RecordScope(PyObject* name, const char* kind);
  RecordScope(const Operator* op, const char* kind) : RecordScope(op->name, kind) {}
  ~RecordScope();
  RecordScope(const RecordScope&) = delete;
  void inputs(const Call&);
  void inputs(PyObject* const* values, int n);
  void outputs(PyObject* result);
  void ran(const std::string& what, bool hit);
  static RecordScope* current();
  // What this thread's open calls launch from here on is theirs (rt/cupti.h).
  static void own_activities() { if (current()) current()->push_owner(true); }
 private:
  void push_owner(bool outer_first);
  RecordScope* outer_;
  int64_t id_, outer_id_;
  bool outer_compiled_;
  int (*popped_by_)() = nullptr;  // of the range that was pushed
  bool owns_ = false;             // its id was pushed for activities of a GPU
};

extern PyMethodDef record_functions[];

}  // namespace core
