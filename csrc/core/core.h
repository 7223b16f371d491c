// What every file of core shares: owned references, errors as C++ exceptions, the mode word, the
// hooks and the slots.
// Invariant: inside core an error is a C++ exception (rl::Error, or PythonError when a Python
// exception is set); every function that CPython calls catches it at its edge with `guarded`.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "rt/dtype.h"
#include "rt/error.h"
#include "rt/kernels.h"
#include "rt/layout.h"
#include "rt/storage.h"
#include "rt/threads.h"

namespace core {

using rl::Device;
using rl::DType;
using rl::ErrorKind;
using rl::fail;
using rl::Layout;
using rl::Number;
using rl::Storage;

struct Tensor;
struct Node;
struct Operator;

#ifdef RUSHLIGHT_NO_FREELISTS                          // sanitizers see every object's end
constexpr bool kFreeLists = false;
#else
constexpr bool kFreeLists = true;
#endif

// ---- errors

struct PythonError {};                                   // a Python exception is set
[[noreturn]] void raise(PyObject* type, const char* format, ...);   // as PyErr_Format, then throws
void translate() noexcept;  // in a catch block: the C++ exception becomes Python's
void note_user_line() noexcept;  // add_note("at file.py:12 in f") to the exception that is set
std::string user_line();  // "file.py:12 in f", the innermost frame outside the package

inline PyObject* check(PyObject* p) { if (!p) throw PythonError(); return p; }
inline int check(int r) { if (r < 0) throw PythonError(); return r; }

// The interpreter ends while a daemon thread is in here: Python unwinds that thread by force, which
// no frame of C++ may stop. It sleeps until the process has gone.
[[noreturn]] void wait_for_exit() noexcept;

template <class F> PyObject* guarded(F&& body) noexcept {
  try { return body(); } catch (...) { translate(); return nullptr; }
}
template <class F> PyObject* noted(F&& body) noexcept {  // and tells the user's line
  PyObject* made = guarded(body);
  if (!made) note_user_line();
  return made;
}
template <class F> int guarded_int(F&& body) noexcept {
  try { return body(); } catch (...) { translate(); return -1; }
}

// C code that may come round to itself without a Python frame in between: counted, so that it ends
// in a RecursionError.
class Recursion {
 public:
  explicit Recursion(const char* where) { if (Py_EnterRecursiveCall(where)) throw PythonError(); }
  ~Recursion() { Py_LeaveRecursiveCall(); }
  Recursion(const Recursion&) = delete;
};

// ---- owned references to Python objects (T starts with PyObject_HEAD)

template <class T> class Own {
 public:
  Own() : p_(nullptr) {}
  explicit Own(T* stolen) : p_(stolen) {}
  Own(Own&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
  Own(const Own& o) : p_(o.p_) { Py_XINCREF(object(p_)); }
  Own& operator=(Own o) noexcept { std::swap(p_, o.p_); return *this; }
  ~Own() { Py_XDECREF(object(p_)); }
  static Own borrow(T* p) { Py_XINCREF(object(p)); return Own(p); }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  T* release() { T* p = p_; p_ = nullptr; return p; }
  PyObject* release_object() { return object(release()); }
  PyObject* py() const { return object(p_); }
 private:
  static PyObject* object(T* p) { return reinterpret_cast<PyObject*>(p); }
  T* p_;
};
using Ref = Own<PyObject>;
inline Ref checked(PyObject* p) { return Ref(check(p)); }

// The last reference to a node or a view's base may free a chain of a million more: such references
// are dropped through a queue, never by recursion.
void drop_later(PyObject* stolen);

// A vector of plain values with room for N inside.
template <class T, int N> class Small {
 public:
  Small() : data_(inside_), size_(0), room_(N) {}
  Small(const Small&) = delete;
  Small& operator=(const Small&) = delete;
  ~Small() { if (data_ != inside_) std::free(data_); }
  void push(T v) { if (size_ == room_) grow(room_ * 2); data_[size_++] = v; }
  void resize(int n) { if (n > room_) grow(n); size_ = n; }
  T& operator[](int i) { return data_[i]; }
  const T& operator[](int i) const { return data_[i]; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  int size() const { return size_; }
  void clear() { size_ = 0; }
 private:
  void grow(int n) {
    T* bigger = static_cast<T*>(std::malloc(sizeof(T) * n));
    std::memcpy(static_cast<void*>(bigger), data_, sizeof(T) * size_);
    if (data_ != inside_) std::free(data_);
    data_ = bigger;
    room_ = n;
  }
  T* data_;
  int size_, room_;
  T inside_[N];
};

// ---- mode word: one a thread, a part of every plan key except for the bits that do not change
// plans

enum Mode : uint32_t {
  kGrad = 1,
  kAutocast = 2,
  kRecords = 4,
  kDispatch = 8,
  kInference = 16,
  kAutocastHalf = 32,  // with kAutocast: to float16, not bfloat16
};
constexpr uint32_t kCasting = kAutocast | kAutocastHalf;
constexpr uint32_t kElsewhere = 64;  // of `mode_word` alone: new tensors do not go to the CPU
extern __thread uint32_t mode __attribute__((tls_model("initial-exec")));
uint32_t mode_word();  // what Python and guards see
inline bool grad_mode() { return (mode & (kGrad | kInference)) == kGrad; }

class ModeScope {
 public:
  explicit ModeScope(uint32_t word) : saved_(mode) { mode = word; }
  ~ModeScope() { mode = saved_; }
  ModeScope(const ModeScope&) = delete;
 private:
  uint32_t saved_;
};

// ---- what Python registers

struct Hooks {
  PyObject *make_plan, *make_backward, *make_part, *dispatch, *index, *format, *device, *open_device,
      *size, *out_of_memory, *linear_algebra;
};
extern Hooks hooks;

enum Slot {
  kAdd, kSub, kMul, kTrueDiv, kFloorDiv, kMod, kPow, kMatMul, kNeg, kPos, kAbs, kAnd, kOr, kXor, kInvert,
  kLShift, kRShift,
  kEq, kNe, kLt, kLe, kGt, kGe,
  kIAdd, kISub, kIMul, kITrueDiv, kIFloorDiv, kIMod, kIPow, kIMatMul, kIAnd, kIOr, kIXor,
  kILShift, kIRShift,
  kCopy,  // copy_: what assignment and in-place gradients use where the tape must know
  kIndex,  // x[indices], the commonest index that is no view
  kSlots,
};
extern const char* const slot_names[kSlots];
extern Operator* slots[kSlots];
extern PyObject* value_name;             // "__rushlight_value__", interned

// Python numbers and those of other libraries: ints, floats, complex ones, numpy's scalars; not
// arrays or tensors.
bool is_number(PyObject*);
// Type attributes of objects that are neither tensors nor numbers: is this a Value of Python's
// dispatcher?
bool is_value(PyObject*);

extern PyObject* module;                 // the module itself, borrowed
extern PyMethodDef attribute_functions[];  // attributes.cpp
extern PyObject* attribute_tables[3];    // names of a module's tables, in the order of look-up
bool keeps_tables(PyTypeObject*);        // instances look attributes up there
void add_type(PyObject* module, const char* name, PyTypeObject* type);

}  // namespace core
