// Activities of a GPU (rt/cupti.h) -> Python: turned on and off, and handed over as tuples.
// Invariant: an activity's owner is the id of a record (records.h), or 0.
#include "cuda.h"
#include "records.h"
#include "released.h"
#include "rt/cupti.h"

namespace core {
namespace {

using rl::cuda::Activity;

PyObject* activities(PyObject*, PyObject* on) {
  return guarded([&] {
    const int wanted = PyObject_IsTrue(on);
    if (wanted < 0) throw PythonError();
    std::string why;
    run_released(nullptr, 0, [&] {
      if (wanted)
        rl::cuda::activities_start(&why);
      else
        rl::cuda::activities_stop();
    });
    if (rl::cuda::activities_on()) RecordScope::own_activities();
    return check(PyUnicode_FromString(why.c_str()));
  });
}

const char* copy_text(int kind) {
  switch (kind) {
    case 1:
    case 3:
      return "host to device";
    case 2:
    case 4:
      return "device to host";
    case 9:
      return "host to host";
    case 10:
      return "device to device, across";
    default:
      return "device to device";
  }
}

Ref three(const int32_t* n) { return checked(Py_BuildValue("iii", n[0], n[1], n[2])); }

PyObject* one_activity(const Activity& a) {
  static const char* const kinds[] = {"kernel", "copy", "fill"};
  Ref grid = three(a.grid), block = three(a.block);
  const char* name = a.kind == Activity::Kernel ? a.name->c_str()
                     : a.kind == Activity::Copy ? copy_text(a.copy)
                                                : "";
  return check(Py_BuildValue("LssLLLIIIIKKiiiiOO", static_cast<long long>(a.owner), kinds[a.kind],
      name, static_cast<long long>(a.start), static_cast<long long>(a.end),
      static_cast<long long>(a.launched), a.device, a.stream, a.correlation, a.graph,
      static_cast<unsigned long long>(a.node), static_cast<unsigned long long>(a.bytes),
      a.registers, a.static_shared, a.dynamic_shared, a.local, grid.py(), block.py()));
}

PyObject* activities_take(PyObject*, PyObject* last) {
  return guarded([&] {
    const int whole = PyObject_IsTrue(last);
    if (whole < 0) throw PythonError();
    std::vector<Activity> taken;
    int64_t lost = 0;
    run_released(nullptr, 0, [&] { taken = rl::cuda::activities_take(whole, &lost); });
    Ref list = checked(PyList_New(static_cast<Py_ssize_t>(taken.size())));
    for (size_t i = 0; i < taken.size(); i++)
      PyList_SET_ITEM(list.py(), static_cast<Py_ssize_t>(i), one_activity(taken[i]));
    return check(Py_BuildValue("OL", list.py(), static_cast<long long>(lost)));
  });
}

}  // namespace

PyMethodDef cuda_activity_functions[] = {
    {"cuda_activities", activities, METH_O,
        "records what the GPUs do, by CUPTI, or ends that; why it cannot, in words; empty: it can"},
    {"cuda_take_activities", activities_take, METH_O,
        "(last) -> ([(owner, kind, name, start ns, end ns, launched ns, device, stream, correlation, graph, "
        "node, bytes, registers, static shared, dynamic shared, local, grid, block), ...], lost): "
        "waits for the devices first; last: no more will be asked for before the end"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
