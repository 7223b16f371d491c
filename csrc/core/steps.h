// Steps: what a plan's program comes to for the operands of that plan (steps.cpp).
#pragma once
#include "operator.h"
#include "plan.h"
#include "program.h"

namespace core {

// Watches one run of a program and writes down its steps.
class StepsLearner {
 public:
  explicit StepsLearner(const Program*);
  ~StepsLearner();
  StepsLearner(const StepsLearner&) = delete;
  void instruction(const Instruction&, PyObject* const* args, PyObject* result);
  Steps* finish();                                    // owned, or null: this program has none

 private:
  Steps* made_;
  const Program* program_;
};

// False: nothing was done, the program runs by its instructions.
bool steps_run(Plan*, Call&, Ref* result);
void steps_drop(Steps*);

}  // namespace core
