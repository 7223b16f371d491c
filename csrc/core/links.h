// Links: what an instruction of a program remembers of its latest call (links.cpp).
#pragma once
#include "program.h"

namespace core {

bool link_possible(const Instruction&);
// False: nothing was done, the call takes the long way.
bool link_run(const Instruction&, PyObject* const* args, Ref* result);
void link_learn(Instruction&, PyObject* const* args, PyObject* result);
void link_free(Link*);

}  // namespace core
