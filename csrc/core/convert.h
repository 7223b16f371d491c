// Borders: numbers, nested lists, numpy (without its headers), buffers and DLPack.
#pragma once
#include "tensor.h"

namespace core {

// tensor, from_numpy, from_buffer, empty, ...: for the module
extern PyMethodDef convert_functions[];
PyObject* to_dlpack(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* dlpack_device(PyObject* self, PyObject*);
PyObject* from_dlpack(PyObject*, PyObject* source);

// ints, a list or tuple of ints; throws TypeError naming `what`
void read_ints(const char* what, PyObject*, Small<int64_t, 8>& values);
int64_t read_int(const char* what, PyObject*);

}  // namespace core
