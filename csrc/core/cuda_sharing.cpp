// Work on another library's stream, with results in its memory. Takes the stream's handle and a
// function that makes memory; between `cuda_enter` and `cuda_leave` everything that this thread
// queues goes there.
// Invariant: the thread's context, stream and devices are afterwards what they were; memory of the
// other library's is held by its owner object for as long as a storage of ours points into it.
#include <string>

#include "convert.h"
#include "cuda.h"
#include "rt/cuda_queue.h"
#include "tensor.h"

namespace core {
namespace {

namespace cuda = rl::cuda;

struct Sharing {
  int device, device_before;
  Device creation_before;
  cuda::Stream stream_before;
  cuda::Context context_before;
  PyObject* make;    // owned: (bytes, how many came before) -> (address, owner); null: ours alone
  PyObject* wanted;  // owned bytes: not 0 where such an allocation is the other's; null: all are
  Py_ssize_t count;
};
__thread Sharing* sharing __attribute__((tls_model("initial-exec"))) = nullptr;

struct Lent {
  PyObject* owner;  // owned
  Py_ssize_t number;
};
void give_back(void* context) {
  auto* lent = static_cast<Lent*>(context);
  Py_DECREF(lent->owner);
  delete lent;
}
const Lent* lent_of(PyObject* o) {
  if (!is_tensor(o)) return nullptr;
  const Storage* s = tensor_of(o)->storage;
  return s->deleter == give_back ? static_cast<const Lent*>(s->context) : nullptr;
}

void leave() {
  Sharing* s = std::exchange(sharing, nullptr);
  Py_XDECREF(s->make);
  Py_XDECREF(s->wanted);
  creation_device = s->creation_before;
  cuda::set_stream(s->device, s->stream_before);
  cuda::set_device(s->device_before);
  cuda::context_return(s->context_before);
  delete s;
}

PyObject* enter(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    unsigned long long stream;
    PyObject *make = Py_None, *wanted = Py_None;
    if (!PyArg_ParseTuple(args, "iK|OO", &device, &stream, &make, &wanted)) throw PythonError();
    if (sharing) raise(PyExc_RuntimeError, "[cuda_enter] this thread works for another library already");
    if (wanted != Py_None && !PyBytes_Check(wanted))
      raise(PyExc_TypeError, "[cuda_enter] expected bytes or None, got %s", Py_TYPE(wanted)->tp_name);
    cuda::check_device(device);
    cuda::queue_close();  // the other's work and ours must not wait in two places
    cuda::kernel_errors_seen(device);
    auto* s = new Sharing{device, cuda::current_device(), creation_device, cuda::current_stream(device),
        cuda::context_borrow(device), make == Py_None ? nullptr : Py_NewRef(make),
        wanted == Py_None ? nullptr : Py_NewRef(wanted), 0};
    cuda::set_device(device);
    cuda::set_stream(device, reinterpret_cast<cuda::Stream>(static_cast<uintptr_t>(stream)));
    creation_device = rl::make_device(rl::DeviceType::CUDA, device);
    sharing = s;
    return Py_NewRef(Py_None);
  });
}

PyObject* leave_with(PyObject*, PyObject* results) {
  return guarded([&] {
    if (!sharing) raise(PyExc_RuntimeError, "[cuda_leave] without cuda_enter");
    leave();
    Ref list = checked(PySequence_Tuple(results));
    const Py_ssize_t n = PyTuple_GET_SIZE(list.py());
    Ref owners = checked(PyTuple_New(n));
    for (Py_ssize_t i = 0; i < n; i++) {
      const Lent* lent = lent_of(PyTuple_GET_ITEM(list.py(), i));
      PyTuple_SET_ITEM(owners.py(), i, Py_NewRef(lent ? lent->owner : Py_None));
    }
    return owners.release();
  });
}

PyObject* lent_number(PyObject*, PyObject* o) {
  const Lent* lent = lent_of(o);
  return PyLong_FromSsize_t(lent ? lent->number : -1);
}

}  // namespace

Storage* cuda_shared_alloc(Device device, int64_t nbytes) {
  Sharing* s = sharing;
  if (!s || !s->make || s->device != rl::device_index(device) || !nbytes) return nullptr;
  const Py_ssize_t number = s->count++;
  if (s->wanted &&
      (number >= PyBytes_GET_SIZE(s->wanted) || !PyBytes_AS_STRING(s->wanted)[number]))
    return nullptr;
  Ref make = Ref::borrow(s->make);
  const ModeScope plain(mode & ~(kDispatch | kRecords));
  Ref made = checked(PyObject_CallFunction(make.py(), "Ln", static_cast<long long>(nbytes), number));
  unsigned long long address;
  PyObject* owner;
  if (!PyTuple_Check(made.py()) || !PyArg_ParseTuple(made.py(), "KO", &address, &owner))
    throw PythonError();
  auto* lent = new Lent{Py_NewRef(owner), number};
  Storage* storage = rl::storage_external(
      reinterpret_cast<void*>(static_cast<uintptr_t>(address)), nbytes, give_back, lent);
  storage->device = device;
  return storage;
}

PyMethodDef cuda_sharing_functions[] = {
    {"cuda_enter", enter, METH_VARARGS,
        "(device, stream, make=None, wanted=None): this thread works on another library's stream; "
        "make(bytes, number) -> (address, owner) gives memory for the allocations whose byte in "
        "`wanted` is not 0 (None: all)"},
    {"cuda_leave", leave_with, METH_O, "(results) -> the owner of each one's memory, or None"},
    {"cuda_lent_number", lent_number, METH_O,
        "which allocation a tensor's memory was, counted from cuda_enter; -1: it is not the other's"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
