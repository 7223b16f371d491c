// Records: what each call did, kept natively while the mode bit is on.
#pragma once
#include "core.h"
#include "operator.h"
#include "plan.h"

namespace core {

// One call being recorded; nests. Made only when the mode word says so.
class RecordScope {
 public:
  RecordScope(const Operator*, const char* kind);
  ~RecordScope();
  RecordScope(const RecordScope&) = delete;
  void inputs(const Call&);
  void outputs(PyObject* result);
  void ran(const std::string& what, bool hit);
  static RecordScope* current();
 private:
  RecordScope* outer_;
  int64_t id_, outer_id_;
};

extern PyMethodDef record_functions[];

}  // namespace core
