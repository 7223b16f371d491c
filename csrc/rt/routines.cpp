// The registry of routines: filled as the library loads, read by name when a plan is made.
#include "routines.h"

#include <cstring>

namespace rl {
namespace {

const Routine*& first() {
  static const Routine* head = nullptr;
  return head;
}

}  // namespace

void routine_register(Routine* r) {
  r->next = first();
  first() = r;
}

const Routine* routine_find(const char* name) {
  for (const Routine* r = first(); r; r = r->next)
    if (!std::strcmp(r->name, name)) return r;
  return nullptr;
}

}  // namespace rl
