// Native affine views. Takes a bound call of an operator with a view rule; gives a tensor on the
// same memory.
// Invariant: no plan, no key and no Python unless a gradient must be recorded; run-time indices
// leave memory flat.
#include <algorithm>
#include "convert.h"
#include "dtype.h"
#include "operator.h"
#include "tape.h"
#include "rt/views.h"

namespace core {
namespace {

bool any_value(const Call& call) {
  for (int i = 0; i < call.op->nparams; i++) {
    PyObject* o = call.values[i];
    if (Py_TYPE(o) == TensorType || PyLong_CheckExact(o) || o == Py_None || PyBool_Check(o))
      continue;
    if (PyTuple_Check(o) || PyList_Check(o)) {
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); k++) {
        PyObject* e = PySequence_Fast_GET_ITEM(o, k);
        if (!PyLong_CheckExact(e) && is_value(e)) return true;
      }
    } else if (is_value(o)) {
      return true;
    }
  }
  return false;
}

// Elements spanned by (shape, strides) from `offset` must lie inside the storage.
void check_bounds(const char* op, const Tensor* t, const Layout* l, int64_t offset) {
  int64_t low, high, size = rl::itemsize(l->dtype);
  rl::layout_extent(l, &low, &high);
  if (l->numel && (offset + low < 0 || (offset + high) * size > t->storage->nbytes))
    fail(ErrorKind::Runtime,
        "[%s] sizes %s with offset %lld reach outside the storage of %lld bytes", op,
        rl::shape_text(l->ndim, l->dims).c_str(), static_cast<long long>(offset),
        static_cast<long long>(t->storage->nbytes));
}

// x.view(dtype): the same bytes as elements of another size; the last dim shrinks or grows.
Layout* reinterpreted(const char* op, const Tensor* t, DType dtype, int64_t* offset) {
  const Layout* l = t->layout;
  const int64_t from = rl::itemsize(l->dtype), to = rl::itemsize(dtype);
  if (grad_mode() && needs_grad(t))
    fail(ErrorKind::Runtime, "[%s] a view of another dtype has no derivative: detach() first", op);
  int64_t shape[rl::kMaxDims], strides[rl::kMaxDims];
  std::copy(l->dims, l->dims + l->ndim, shape);
  std::copy(l->strides(), l->strides() + l->ndim, strides);
  if (from == to) return rl::layout_intern(dtype, l->device, l->ndim, shape, strides);
  const int last = l->ndim - 1;
  if (last < 0 || strides[last] != 1)
    fail(ErrorKind::Runtime,
        "[%s] %s can be seen as %s, of another size, where elements lie side by side in the last "
        "dim (stride 1): got %s with strides %s",
        op, rl::dtype_name(l->dtype), rl::dtype_name(dtype),
        rl::shape_text(l->ndim, l->dims).c_str(), rl::shape_text(l->ndim, l->strides()).c_str());
  for (int d = 0; d <= last; d++) {
    int64_t& n = d == last ? shape[d] : strides[d];
    if (n * from % to)
      fail(ErrorKind::Runtime, "[%s] sizes %s with strides %s do not divide into elements of %s", op,
          rl::shape_text(l->ndim, l->dims).c_str(), rl::shape_text(l->ndim, l->strides()).c_str(),
          rl::dtype_name(dtype));
    n = n * from / to;
  }
  if (*offset * from % to)
    fail(ErrorKind::Runtime, "[%s] the offset of %lld elements does not divide into elements of %s",
        op, static_cast<long long>(*offset), rl::dtype_name(dtype));
  *offset = *offset * from / to;
  return rl::layout_intern(dtype, l->device, l->ndim, shape, strides);
}

// A complex tensor as its parts, [..., 2], and the way back.
Layout* as_real(const char* op, const Layout* l, int64_t* offset) {
  if (!rl::is_complex(l->dtype))
    fail(ErrorKind::Runtime, "[%s] %s is only supported for complex tensors, got %s", op, op,
        rl::dtype_name(l->dtype));
  int64_t shape[rl::kMaxDims + 1], strides[rl::kMaxDims + 1];
  for (int d = 0; d < l->ndim; d++) {
    shape[d] = l->dims[d];
    strides[d] = 2 * l->strides()[d];
  }
  shape[l->ndim] = 2;
  strides[l->ndim] = 1;
  *offset *= 2;
  return rl::layout_intern(rl::real_of(l->dtype), l->device, l->ndim + 1, shape, strides);
}
Layout* as_complex(const char* op, const Layout* l, int64_t* offset) {
  if (l->dtype != DType::Float32 && l->dtype != DType::Float64)
    fail(ErrorKind::Runtime,
        "[%s] %s is only supported for float32 and float64 tensors, but got a tensor of %s", op, op,
        rl::dtype_name(l->dtype));
  const int last = l->ndim - 1;
  if (last < 0)
    fail(ErrorKind::Runtime, "[%s] a tensor of no dimensions holds no pairs", op);
  if (l->dims[last] != 2)
    fail(ErrorKind::Runtime, "[%s] pairs are needed, a last dim of size 2, got shape %s", op,
        rl::shape_text(l->ndim, l->dims).c_str());
  if (l->strides()[last] != 1)
    fail(ErrorKind::Runtime, "[%s] a pair lies side by side, stride 1 in the last dim, got "
                             "strides %s",
        op, rl::shape_text(l->ndim, l->strides()).c_str());
  int64_t strides[rl::kMaxDims];
  for (int d = 0; d < last; d++) {
    if (l->strides()[d] % 2)
      fail(ErrorKind::Runtime,
          "[%s] whole pairs are stepped over: strides divisible by 2 but for the last, got %s",
          op, rl::shape_text(l->ndim, l->strides()).c_str());
    strides[d] = l->strides()[d] / 2;
  }
  if (*offset % 2)
    fail(ErrorKind::Runtime, "[%s] the first pair begins at an even storage offset, got %lld", op,
        static_cast<long long>(*offset));
  *offset /= 2;
  return rl::layout_intern(l->dtype == DType::Float32 ? DType::Complex64 : DType::Complex128,
      l->device, last, l->dims, strides);
}

// The rule itself: a new layout, the offset moved.
Layout* apply_rule(Call& call, Tensor* t, int64_t* offset) {
  const char* op = call.op->text;
  PyObject** v = call.values;
  Layout* l = t->layout;
  auto integer = [&](int i) { return read_int(op, v[i]); };
  Small<int64_t, 8> a, b;
  switch (call.op->view) {
    case ViewKind::Select: return select_layout(op, l, integer(1), integer(2), offset);
    case ViewKind::Slice: {
      bool start = v[2] != Py_None, end = v[3] != Py_None;
      return rl::view_slice(op, l, integer(1), start, start ? integer(2) : 0, end,
          end ? integer(3) : 0, integer(4), offset);
    }
    case ViewKind::Permute:
      read_ints(op, v[1], a);
      return rl::view_permute(op, l, a.size(), a.data());
    case ViewKind::Transpose: return rl::view_transpose(op, l, integer(1), integer(2));
    case ViewKind::Reshape:
    case ViewKind::View: {
      if (is_dtype(v[1])) return reinterpreted(op, t, dtype_from(v[1]), offset);
      read_ints(op, v[1], a);
      bool possible = true;
      Layout* made = rl::view_reshape(op, l, a.size(), a.data(), &possible);
      if (!made && call.op->view == ViewKind::View)
        fail(ErrorKind::Runtime,
            "[%s] shape %s with strides %s has dims that do not lie side by side in memory, so they "
            "cannot be seen as one: .reshape(...) copies",
            op, rl::shape_text(l->ndim, l->dims).c_str(),
            rl::shape_text(l->ndim, l->strides()).c_str());
      return made;
    }
    case ViewKind::Expand:
      read_ints(op, v[1], a);
      return rl::view_expand(op, l, a.size(), a.data());
    case ViewKind::Unsqueeze: return rl::view_unsqueeze(op, l, integer(1));
    case ViewKind::Squeeze: {
      if (call.op->nparams < 2 || v[1] == Py_None) return rl::view_squeeze(op, l, false, 0);
      if (PyLong_Check(v[1])) return rl::view_squeeze(op, l, true, integer(1));
      read_ints(op, v[1], a);
      uint32_t drop = 0;
      for (int i = 0; i < a.size(); i++) drop |= 1u << rl::wrap_dim(op, a[i], l->ndim);
      int64_t shape[rl::kMaxDims], strides[rl::kMaxDims];
      int n = 0;
      for (int d = 0; d < l->ndim; d++)
        if (!(drop >> d & 1) || l->dims[d] != 1) {
          shape[n] = l->dims[d];
          strides[n++] = l->strides()[d];
        }
      return rl::layout_intern(l->dtype, l->device, n, shape, strides);
    }
    case ViewKind::AsStrided: {
      read_ints(op, v[1], a);
      read_ints(op, v[2], b);
      if (a.size() != b.size())
        fail(ErrorKind::Value, "[%s] %d sizes and %d strides", op, a.size(), b.size());
      if (call.op->nparams > 3 && v[3] != Py_None) *offset = integer(3);
      Layout* made = rl::view_as_strided(op, l, a.size(), a.data(), b.data());
      try {
        check_bounds(op, t, made, *offset);
      } catch (...) {
        rl::decref(made);
        throw;
      }
      return made;
    }
    case ViewKind::Narrow:
      return rl::view_narrow(op, l, integer(1), integer(2), integer(3), offset);
    case ViewKind::Diagonal:
      return rl::view_diagonal(op, l, integer(1), integer(2), integer(3), offset);
    case ViewKind::AsReal: return as_real(op, l, offset);
    case ViewKind::AsComplex: return as_complex(op, l, offset);
    case ViewKind::Unfold: return rl::view_unfold(op, l, integer(1), integer(2), integer(3));
    default: rl::incref(l); return l;
  }
}

// Results of select by (layout, dim): the index only moves the offset.
struct SelectEntry {
  Layout* from;
  int64_t dim;
  Layout* to;
};
constexpr int kSelectEntries = 256;
SelectEntry select_cache[kSelectEntries];

}  // namespace

Layout* select_layout(const char* op, Layout* l, int64_t dim, int64_t index, int64_t* offset) {
  SelectEntry& e =
      select_cache[((reinterpret_cast<uintptr_t>(l) >> 4) * 31 + static_cast<uint64_t>(dim)) %
                   kSelectEntries];
  if (e.from == l && e.dim == dim) {
    int64_t d = dim < 0 ? dim + l->ndim : dim, size = l->dims[d],
            i = index < 0 ? index + size : index;
    if (i >= 0 && i < size) {
      *offset += i * l->strides()[d];
      rl::incref(e.to);
      return e.to;
    }
  }
  Layout* made = rl::view_select(op, l, dim, index, offset);
  rl::incref(l);
  rl::incref(made);
  if (e.from) {
    rl::decref(e.from);
    rl::decref(e.to);
  }
  e = {l, dim, made};
  return made;
}

Own<Tensor> view_make(Tensor* t, Layout* layout, int64_t offset) {
  rl::incref(t->storage);
  Own<Tensor> view = tensor_make(t->storage, layout, offset);
  view->counter = counter_of(t);
  view->counter->refs++;
  if (!rl::is_differentiable(layout->dtype) || (mode & kInference)) return view;
  view->base = t->base ? t->base : t;
  Py_INCREF(py(view->base));
  view->base_version = view->counter->value;
  view->no_grad_view = !(mode & kGrad) || t->no_grad_view;
  track(view.get());
  return view;
}

Ref view_call(Call& call) {
  PyObject* self = call.values[0];
  if ((mode & kDispatch) || any_value(call)) return dispatch_value(call.op, call.values, nullptr);
  if (!is_tensor(self))
    raise(PyExc_TypeError, "%s(): argument 'self' (position 1) must be Tensor, not %s",
        call.op->text, Py_TYPE(self)->tp_name);
  Tensor* t = tensor_of(self);
  int64_t offset = t->offset;
  Layout* layout = apply_rule(call, t, &offset);
  if (!layout) {  // reshape that needs a copy
    Own<Tensor> dense = copied(
        t, rl::layout_dense(t->layout->dtype, t->layout->device, t->layout->ndim, t->layout->dims));
    call.keep(Ref::borrow(dense.py()));
    call.values[0] = dense.py();
    return view_call(call);
  }
  Own<Tensor> view = view_make(t, layout, offset);
  if (grad_mode() && call.op->differentiable && needs_grad(t)) record_view(call, view.get());
  return Ref(view.release_object());
}

}  // namespace core
