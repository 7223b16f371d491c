// A layout and run-time integers -> the layout of a view of the same storage.
// Invariant: a view reaches no element outside its base (as_strided excepted: the caller checks the
// storage).
#include "views.h"

#include "error.h"

namespace rl {
namespace {

typedef long long Int;  // for printf

struct Dims {
  int ndim;
  int64_t shape[kMaxDims], strides[kMaxDims];

  explicit Dims(const Layout* x) : ndim(x->ndim) {
    for (int d = 0; d < ndim; ++d) {
      shape[d] = x->shape()[d];
      strides[d] = x->strides()[d];
    }
  }
  void erase(int64_t dim) {
    --ndim;
    for (int64_t d = dim; d < ndim; ++d) {
      shape[d] = shape[d + 1];
      strides[d] = strides[d + 1];
    }
  }
  Layout* intern(const Layout* like) const {
    return layout_intern(like->dtype, like->device, ndim, shape, strides);
  }
};

void check_ndim(const char* op, int n) {
  if (n < 0 || n > kMaxDims)
    fail(ErrorKind::Runtime, "[%s] tensors have at most %d dimensions, got %d", op, kMaxDims, n);
}

}  // namespace

int64_t wrap_dim(const char* op, int64_t dim, int ndim) {
  const int64_t range = ndim ? ndim : 1;  // a 0-dim tensor takes 0 and -1
  if (dim < -range || dim >= range)
    fail(ErrorKind::Index,
         "[%s] dim %lld is out of range: %lld to %lld", op, Int(dim), Int(-range), Int(range - 1));
  return dim < 0 ? dim + range : dim;
}

Layout* view_select(const char* op, Layout* x, int64_t dim, int64_t index, int64_t* offset) {
  if (x->ndim == 0)
    fail(ErrorKind::Index, "[%s] a tensor of no dimensions has no elements to choose from", op);
  dim = wrap_dim(op, dim, x->ndim);
  const int64_t size = x->shape()[dim];
  if (index < -size || index >= size)
    fail(ErrorKind::Index, "[%s] index %lld is out of range for dim %lld of shape %s", op,
         Int(index), Int(dim), shape_text(x->ndim, x->shape()).c_str());
  *offset += (index < 0 ? index + size : index) * x->strides()[dim];
  Dims v(x);
  v.erase(dim);
  return v.intern(x);
}

Layout* view_slice(const char* op, Layout* x, int64_t dim, bool has_start, int64_t start,
                   bool has_end, int64_t end, int64_t step, int64_t* offset) {
  if (x->ndim == 0) fail(ErrorKind::Index, "[%s] a tensor of no dimensions cannot be sliced", op);
  dim = wrap_dim(op, dim, x->ndim);
  if (step <= 0) fail(ErrorKind::Runtime, "[%s] slice step must be positive", op);
  const int64_t size = x->shape()[dim];
  if (!has_start) start = 0;
  if (!has_end) end = size;
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = start < 0 ? 0 : start > size ? size : start;
  end = end < start ? start : end > size ? size : end;
  Dims v(x);
  v.shape[dim] = (end - start) / step + ((end - start) % step != 0);
  *offset += start * x->strides()[dim];
  // A stride is used only where there are two elements; so a huge step cannot overflow.
  int64_t stride;
  if (__builtin_mul_overflow(x->strides()[dim], step, &stride)) stride = x->strides()[dim];
  v.strides[dim] = stride;
  return v.intern(x);
}

Layout* view_permute(const char* op, Layout* x, int n, const int64_t* dims) {
  if (n != x->ndim)
    fail(ErrorKind::Runtime,
         "[%s] the tensor has %d dims, the order %d",
         op, x->ndim, n);
  Dims v(x);
  uint32_t seen = 0;
  for (int d = 0; d < n; ++d) {
    const int64_t from = wrap_dim(op, dims[d], n);
    if (seen >> from & 1)
      fail(ErrorKind::Runtime, "[%s] a dim is given twice", op);
    seen |= 1u << from;
    v.shape[d] = x->shape()[from];
    v.strides[d] = x->strides()[from];
  }
  return v.intern(x);
}

Layout* view_transpose(const char* op, Layout* x, int64_t d0, int64_t d1) {
  d0 = wrap_dim(op, d0, x->ndim);
  d1 = wrap_dim(op, d1, x->ndim);
  Dims v(x);
  if (x->ndim) {
    v.shape[d0] = x->shape()[d1];
    v.shape[d1] = x->shape()[d0];
    v.strides[d0] = x->strides()[d1];
    v.strides[d1] = x->strides()[d0];
  }
  return v.intern(x);
}

Layout* view_reshape(const char* op, Layout* x, int n, const int64_t* shape, bool* possible) {
  check_ndim(op, n);
  int64_t full[kMaxDims], strides[kMaxDims], numel = 1;
  int inferred = -1;
  for (int d = 0; d < n; ++d) {
    full[d] = shape[d];
    if (shape[d] == -1) {
      if (inferred >= 0) fail(ErrorKind::Runtime, "[%s] -1 stands twice in shape %s", op,
             shape_text(n, shape).c_str());
      inferred = d;
    } else if (shape[d] < 0) {
      fail(ErrorKind::Runtime, "[%s] invalid shape dimension %lld at index %d of shape %s", op,
           Int(shape[d]), d, shape_text(n, shape).c_str());
    } else if (__builtin_mul_overflow(numel, shape[d], &numel)) {
      numel = -1;  // matches nothing
      break;
    }
  }
  if (inferred >= 0 && numel == 0 && x->numel == 0)
    fail(ErrorKind::Runtime,
         "[%s] -1 is ambiguous in shape %s: of no elements any size would do",
         op, shape_text(n, shape).c_str());
  if (inferred >= 0 ? numel <= 0 || x->numel % numel : numel != x->numel)
    fail(ErrorKind::Runtime, "[%s] %lld elements do not have the shape %s", op, Int(x->numel),
         shape_text(n, shape).c_str());
  if (inferred >= 0) full[inferred] = x->numel / numel;
  *possible = true;

  if (x->numel == 0) {
    if (n == x->ndim) {
      bool same = true;
      for (int d = 0; d < n; ++d) same = same && full[d] == x->shape()[d];
      if (same) return incref(x), x;
    }
    return layout_dense(x->dtype, x->device, n, full);
  }

  // From the last dim on: gather old dims while they continue one another; that run must be cut up
  // exactly by new dims.
  int to = n - 1;
  int64_t run = 1, base = x->ndim ? x->strides()[x->ndim - 1] : 1;
  for (int d = x->ndim - 1; d >= 0; --d) {
    run *= x->shape()[d];
    if (d > 0 && (x->shape()[d - 1] == 1 || x->strides()[d - 1] == run * base)) continue;
    int64_t made = 1;
    while (to >= 0 && (made < run || full[to] == 1)) {
      strides[to] = made * base;
      made *= full[to--];
    }
    if (made != run) {
      *possible = false;
      return nullptr;
    }
    if (d > 0) {
      base = x->strides()[d - 1];
      run = 1;
    }
  }
  for (; to >= 0; --to)
    strides[to] = to + 1 < n ? strides[to + 1] * full[to + 1] : 1;  // leading ones
  return layout_intern(x->dtype, x->device, n, full, strides);
}

Layout* view_expand(const char* op, Layout* x, int n, const int64_t* shape) {
  check_ndim(op, n);
  const int extra = n - x->ndim;
  if (extra < 0)
    fail(ErrorKind::Runtime,
         "[%s] a tensor of shape %s cannot become %s: %d sizes for %d dims",
         op, shape_text(x->ndim, x->shape()).c_str(), shape_text(n, shape).c_str(), n, x->ndim);
  Dims v(x);
  v.ndim = n;
  for (int d = 0; d < n; ++d) {
    const int64_t have = d < extra ? 1 : x->shape()[d - extra];
    int64_t want = shape[d];
    if (want == -1 && d < extra)
      fail(ErrorKind::Runtime,
           "[%s] -1 keeps a size, and there is none yet in the new dim %d",
           op, d);
    if (want == -1) want = have;
    if (want < 0 || (want != have && have != 1))
      fail(ErrorKind::Runtime,
           "[%s] dim %d has size %lld, which cannot become %lld: %s to %s", op, d, Int(have),
           Int(want), shape_text(x->ndim, x->shape()).c_str(), shape_text(n, shape).c_str());
    v.shape[d] = want;
    v.strides[d] = d >= extra && want == have ? x->strides()[d - extra] : 0;
  }
  // As in PyTorch, a new leading dim of size 1 gets the stride it would have in C order (but a
  // 0-dim tensor's get 0).
  for (int d = x->ndim ? extra - 1 : -1; d >= 0; --d)
    if (v.shape[d] == 1) v.strides[d] = v.shape[d + 1] * v.strides[d + 1];
  return v.intern(x);
}

Layout* view_unsqueeze(const char* op, Layout* x, int64_t dim) {
  check_ndim(op, x->ndim + 1);
  dim = wrap_dim(op, dim, x->ndim + 1);
  Dims v(x);
  for (int64_t d = v.ndim; d > dim; --d) {
    v.shape[d] = v.shape[d - 1];
    v.strides[d] = v.strides[d - 1];
  }
  v.shape[dim] = 1;
  v.strides[dim] = dim < x->ndim ? x->shape()[dim] * x->strides()[dim] : 1;
  ++v.ndim;
  return v.intern(x);
}

Layout* view_squeeze(const char* op, Layout* x, bool has_dim, int64_t dim) {
  Dims v(x);
  if (has_dim) {
    dim = wrap_dim(op, dim, x->ndim);
    if (x->ndim && v.shape[dim] == 1) v.erase(dim);
  } else {
    for (int d = v.ndim - 1; d >= 0; --d)
      if (v.shape[d] == 1) v.erase(d);
  }
  return v.intern(x);
}

Layout* view_narrow(const char* op, Layout* x, int64_t dim, int64_t start, int64_t length,
                    int64_t* offset) {
  if (x->ndim == 0) fail(ErrorKind::Runtime, "[%s] a tensor of no dimensions has nothing to cut "
                                             "from", op);
  dim = wrap_dim(op, dim, x->ndim);
  const int64_t size = x->shape()[dim];
  if (length < 0) fail(ErrorKind::Runtime, "[%s] length must be non-negative, got %lld", op, Int(length));
  if (start < -size || start > size)
    fail(ErrorKind::Index,
         "[%s] start %lld is out of range: %lld to %lld", op, Int(start), Int(-size), Int(size));
  if (start < 0) start += size;
  if (start > size - length)
    fail(ErrorKind::Runtime, "[%s] start %lld and length %lld exceed the size %lld", op,
         Int(start), Int(length), Int(size));
  return view_slice(op, x, dim, true, start, true, start + length, 1, offset);
}

Layout* view_diagonal(const char* op, Layout* x, int64_t diagonal, int64_t d0, int64_t d1,
                      int64_t* offset) {
  d0 = wrap_dim(op, d0, x->ndim);
  d1 = wrap_dim(op, d1, x->ndim);
  if (d0 == d1)
    fail(ErrorKind::Runtime, "[%s] diagonal dimensions cannot be identical %lld, %lld", op, Int(d0),
         Int(d1));
  Dims v(x);
  const int64_t rows = v.shape[d0] + (diagonal < 0 ? diagonal : 0),
                columns = v.shape[d1] - (diagonal > 0 ? diagonal : 0);
  int64_t size = rows < columns ? rows : columns;
  if (size < 0) size = 0;
  if (size) *offset += diagonal < 0 ? -diagonal * v.strides[d0] : diagonal * v.strides[d1];
  const int64_t stride = v.strides[d0] + v.strides[d1];
  v.erase(d0 > d1 ? d0 : d1);
  v.erase(d0 > d1 ? d1 : d0);
  v.shape[v.ndim] = size;
  v.strides[v.ndim++] = stride;
  return v.intern(x);
}

Layout* view_unfold(const char* op, Layout* x, int64_t dim, int64_t size, int64_t step) {
  check_ndim(op, x->ndim + 1);
  dim = wrap_dim(op, dim, x->ndim);
  Dims v(x);
  const int64_t length = x->ndim ? x->shape()[dim] : 1, stride = x->ndim ? x->strides()[dim] : 1;
  if (size < 0) fail(ErrorKind::Runtime, "[%s] size is %lld but must be >= 0", op, Int(size));
  if (size > length)
    fail(ErrorKind::Runtime,
         "[%s] pieces of %lld do not fit dim %lld, which has size %lld", op, Int(size), Int(dim),
         Int(length));
  if (step <= 0) fail(ErrorKind::Runtime, "[%s] step is %lld but must be > 0", op, Int(step));
  if (x->ndim) {
    v.shape[dim] = (length - size) / step + 1;
    v.strides[dim] = stride * step;
  }
  v.shape[v.ndim] = size;
  v.strides[v.ndim++] = stride;
  return v.intern(x);
}

Layout* view_as_strided(const char* op, Layout* x, int n, const int64_t* shape,
                        const int64_t* strides) {
  check_ndim(op, n);
  for (int d = 0; d < n; ++d)
    if (strides[d] < 0)
      fail(ErrorKind::Runtime,
           "[%s] a tensor cannot run backwards, got strides %s", op,
           shape_text(n, strides).c_str());
  return layout_intern(x->dtype, x->device, n, shape, strides);
}

}  // namespace rl
