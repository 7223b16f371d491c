// Shared state and errors: hooks, slots, the mode word, translation of C++ exceptions, the user's
// line.
// Invariant: `drop_later` never nests: however long a chain of owners is, freeing it uses constant
// stack.
#include "core.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include <new>

#include "devices.h"
#include "dtype.h"
#include "records.h"
#include "tensor.h"

namespace core {

__thread uint32_t mode __attribute__((tls_model("initial-exec"))) = kGrad;
Hooks hooks;
Operator* slots[kSlots];
PyObject* value_name;
PyObject* module;

const char* const slot_names[kSlots] = {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow",
    "matmul", "neg", "pos", "abs", "and", "or", "xor", "invert", "lshift", "rshift", "eq", "ne", "lt",
    "le", "gt", "ge", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul",
    "iand", "ior", "ixor", "ilshift", "irshift", "copy_", "index"};

void raise(PyObject* type, const char* format, ...) {
  va_list args;
  va_start(args, format);
  PyErr_FormatV(type, format, args);
  va_end(args);
  throw PythonError();
}

void wait_for_exit() noexcept {
  for (;;) pause();
}

void translate() noexcept {
  try {
    throw;
  } catch (const abi::__forced_unwind&) {
    wait_for_exit();
  } catch (const PythonError&) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_SystemError, "rushlight._core: an error without an exception");
  } catch (const rl::Error& e) {
    PyObject* type = PyExc_RuntimeError;
    switch (e.kind) {
      case ErrorKind::Value: type = PyExc_ValueError; break;
      case ErrorKind::Type: type = PyExc_TypeError; break;
      case ErrorKind::Index: type = PyExc_IndexError; break;
      case ErrorKind::Memory:
        type = hooks.out_of_memory && !std::strncmp(e.what(), "CUDA", 4) ? hooks.out_of_memory
                                                                          : PyExc_MemoryError;
        break;
      case ErrorKind::LinearAlgebra:
        if (hooks.linear_algebra) type = hooks.linear_algebra;
        break;
      case ErrorKind::NotImplemented: type = PyExc_NotImplementedError; break;
      default: break;
    }
    PyErr_SetString(type, e.what());
  } catch (const std::bad_alloc&) { PyErr_NoMemory(); } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) { PyErr_SetString(PyExc_SystemError, "rushlight._core: an unknown C++ exception"); }
}

namespace {

// The package's folder: frames of files inside it are not the user's.
const std::string& package_folder() {
  static const std::string folder = [] {
    Dl_info info;
    std::string path = dladdr(reinterpret_cast<void*>(&package_folder), &info) && info.dli_fname
                           ? info.dli_fname
                           : "";
    char* real = realpath(path.c_str(), nullptr);
    if (real) {
      path = real;
      std::free(real);
    }
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
  }();
  return folder;
}

std::vector<PyObject*>& pending() {
  static std::vector<PyObject*>* p = new std::vector<PyObject*>;
  return *p;
}
bool draining = false;

// Where the standard library lies: who called it is the user.
const std::string& library_folder() {
  static const std::string folder = [] {
    Ref module(PyImport_ImportModule("os"));
    Ref file(module ? PyObject_GetAttrString(module.py(), "__file__") : nullptr);
    const char* text = file ? PyUnicode_AsUTF8(file.py()) : nullptr;
    std::string path(text ? text : "");
    PyErr_Clear();
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
  }();
  return folder;
}

bool in_folder(const char* file, const std::string& folder) {
  return !folder.empty() && !std::strncmp(file, folder.c_str(), folder.size());
}
bool of_library(const char* file) {
  return in_folder(file, library_folder()) || std::strstr(file, "/site-packages/") ||
         std::strstr(file, "/dist-packages/") || !std::strncmp(file, "<frozen ", 8);
}

std::string place_text(PyFrameObject* frame, const char* file, const char* name) {
  return std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(frame)) + " in " + name;
}

}  // namespace

std::string user_line() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  std::string text, library;  // the second: where nobody else is there
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const char* name = PyUnicode_AsUTF8(code->co_qualname);
    const bool inside = !file || !name || in_folder(file, package_folder()) ||
                        !std::strncmp(file, "<graph ", 7);
    if (!inside && of_library(file)) {
      if (library.empty()) library = place_text(frame, file, name);
    } else if (!inside) {
      text = place_text(frame, file, name);
    }
    Py_DECREF(code);
    PyFrameObject* back = text.empty() ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  return text.empty() ? library : text;
}

std::string package_line() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  if (!frame) return "";
  PyCodeObject* code = PyFrame_GetCode(frame);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const char* name = PyUnicode_AsUTF8(code->co_name);
  std::string text;
  if (file && name && in_folder(file, package_folder()))
    text = place_text(frame, file + package_folder().size(), name);
  PyErr_Clear();
  Py_DECREF(code);
  Py_DECREF(frame);
  return text;
}

void note_user_line() noexcept {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value) {
    PyObject* notes = PyObject_GetAttrString(value, "__notes__");
    PyErr_Clear();
    std::string line = notes ? std::string() : user_line();
    PyErr_Clear();
    Py_XDECREF(notes);
    if (!line.empty()) {
      PyObject* done = PyObject_CallMethod(value, "add_note", "s", ("at " + line).c_str());
      if (!done) PyErr_Clear();
      Py_XDECREF(done);
    }
  }
  PyErr_Restore(type, value, traceback);
}

void drop_later(PyObject* o) {
  if (Py_REFCNT(o) > 1) {
    Py_DECREF(o);
    return;
  }
  pending().push_back(o);
  if (draining) return;
  draining = true;
  while (!pending().empty()) {
    PyObject* next = pending().back();
    pending().pop_back();
    Py_DECREF(next);
  }
  draining = false;
}

bool is_number(PyObject* o) {
  if (PyFloat_Check(o) || PyLong_Check(o)) return true;
  return PyNumber_Check(o) && !PySequence_Check(o) && !is_tensor(o);
}

bool is_value(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (type == TensorType || type == &PyFloat_Type || type == &PyLong_Type ||
      type == &PyTuple_Type || type == &PyList_Type)
    return false;
  return _PyType_Lookup(type, value_name) != nullptr;
}

void add_type(PyObject* m, const char* name, PyTypeObject* type) {
  check(PyModule_AddObjectRef(m, name, reinterpret_cast<PyObject*>(type)));
}

}  // namespace core
