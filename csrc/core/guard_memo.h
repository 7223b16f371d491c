// What guards remember: checks on what hangs on modules (attributes, tables, parameters) need not
// be made again while nothing there has changed.
// Takes a set of guards that just held, and the values they read. Gives the steps that are still to
// be made, under the condition that the stamps stand. Invariant: stamps that stand imply that every
// remembered check would hold, and that every remembered pointer is alive.
#pragma once
#include "guards.h"

namespace core {

// A dict as it was: of an object's fields (`slot` is where the object keeps it) or a table.
struct DictStamp {
  PyObject* anchor;            // owned weak reference to the object; null: an earlier one holds it
  PyObject* object;            // borrowed: what the anchor refers to
  PyObject** slot;             // null for a table
  PyObject* dict;              // borrowed, and read only where its holder is as it was
  PyObject* kept;              // owned: a table that only a class holds
  uint64_t version;
};

struct TypeStamp {
  PyObject* weak;              // owned
  PyTypeObject* type;          // borrowed
  unsigned version;
};

struct GuardMemo {
  int64_t refs;
  uint64_t clock;              // the change clock when all stamps were last seen to stand
  std::vector<DictStamp> dicts;        // outer objects before what they hold
  std::vector<TypeStamp> types;
  std::vector<int> tensors;            // checks made again when any watched tensor changed
  std::vector<PyObject*> values;       // by source: borrowed, held by what is stamped; else null
  std::vector<PyObject*> expected;     // by source: what an anchor must be, else null
  std::vector<int> ready;              // sources that need not be read: their value is in `values`
  std::vector<int> steps;              // as Guards::steps
};

bool memo_stands(GuardMemo*, const Guards*);             // is all that is stamped as it was?
// New, one reference; null where nothing could be remembered.
GuardMemo* memo_make(const Guards*, PyObject* const* values);
void memo_drop(GuardMemo*);

}  // namespace core
