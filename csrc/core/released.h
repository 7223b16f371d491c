// Long work without the GIL. Other threads may run meanwhile and drop or reassign the operands: their storages are held.
#pragma once
#include <exception>

#include "core.h"

namespace core {

// work() throws rl::Error; it touches no Python object.
template <class Work>
void run_released(Storage* const* storages, int n, Work&& work) {
  for (int i = 0; i < n; i++)
    if (storages[i]) rl::incref(storages[i]);
  PyThreadState* state = PyEval_SaveThread();
  std::string failed;
  ErrorKind kind = ErrorKind::Runtime;
  bool threw = true;
  try {
    work();
    threw = false;
  } catch (const rl::Error& e) {
    failed = e.what();
    kind = e.kind;
  } catch (const std::exception& e) { failed = e.what(); }
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    wait_for_exit();
  }
  for (int i = 0; i < n; i++)
    if (storages[i]) rl::decref(storages[i]);
  if (threw) throw rl::Error(kind, failed);
}

}  // namespace core
