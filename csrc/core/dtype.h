// The dtype objects: one a DType, compared by identity, pickled by name.
#pragma once
#include "core.h"

namespace core {

struct DTypeObject {
  PyObject_HEAD
  DType id;
  PyObject* name;
};
extern PyTypeObject* DTypeType;

PyObject* dtype_object(DType);                        // borrowed
inline bool is_dtype(PyObject* o) { return Py_TYPE(o) == DTypeType; }
bool names_dtype(PyObject*);                         // a dtype, or Python's float, int or bool
DType dtype_from(PyObject*);                          // throws TypeError for anything else
using rl::dtype_name;                                 // "float32"
const char* dtype_legacy_name(DType);                 // "Float", as PyTorch's messages say
extern DType default_dtype;                           // what Python floats become

enum class Category : uint8_t { Bool, Int, Float, Complex };
inline Category category(DType d) {
  return d == DType::Bool      ? Category::Bool
         : rl::is_complex(d)  ? Category::Complex
         : rl::is_floating(d) ? Category::Float
                              : Category::Int;
}
inline bool can_cast(DType from, DType to) { return category(from) <= category(to); }

void dtype_init(PyObject* module);

}  // namespace core
