// Shape, strides, dtype and device -> the one Layout that stands for them.
// Invariant: two live layouts with equal contents are the same pointer; numel and the byte size fit
// int64.
#include "layout.h"

#include <cstdlib>
#include <cstring>

#include "error.h"

namespace rl {
namespace {

// Chained hash table. Never destroyed: layouts may outlive static destructors.
struct Table {
  Layout** buckets;
  uint64_t mask;
  int64_t count;
};

Table& table() {
  static Table t = {static_cast<Layout**>(std::calloc(1024, sizeof(Layout*))), 1023, 0};
  return t;
}

void grow(Table& t) {
  const uint64_t mask = t.mask * 2 + 1;
  Layout** buckets = static_cast<Layout**>(std::calloc(mask + 1, sizeof(Layout*)));
  if (!buckets) return;  // longer chains are slow, not wrong
  for (uint64_t i = 0; i <= t.mask; ++i) {
    for (Layout* x = t.buckets[i]; x;) {
      Layout* next = x->next;
      x->next = buckets[x->hash & mask];
      buckets[x->hash & mask] = x;
      x = next;
    }
  }
  std::free(t.buckets);
  t.buckets = buckets;
  t.mask = mask;
}

uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

[[noreturn]] void overflow(int ndim, const int64_t* shape) {
  fail(ErrorKind::Runtime, "a tensor of shape %s has overflowed int64",
       shape_text(ndim, shape).c_str());
}

bool is_contiguous(int ndim, const int64_t* shape, const int64_t* strides) {
  int64_t want = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    if (strides[d] != want) return false;
    want *= shape[d];
  }
  return true;
}

// Whether the dims, ordered by stride, tile one block: each step finds the dim whose stride is
// next.
bool is_dense(int ndim, const int64_t* shape, const int64_t* strides) {
  int64_t want = 1;
  uint32_t left = 0;
  for (int d = 0; d < ndim; ++d) left |= shape[d] != 1 ? 1u << d : 0u;
  while (left) {
    int found = -1;
    for (int d = 0; d < ndim && found < 0; ++d)
      if ((left >> d & 1) && strides[d] == want) found = d;
    if (found < 0) return false;
    want *= shape[found];
    left &= ~(1u << found);
  }
  return true;
}

}  // namespace

Layout* layout_intern(DType dtype, Device device, int ndim, const int64_t* shape,
                      const int64_t* strides) {
  if (ndim < 0 || ndim > kMaxDims)
    fail(ErrorKind::Runtime, "tensors have at most %d dimensions, got %d", kMaxDims, ndim);
  uint64_t hash = mix(static_cast<uint64_t>(dtype) << 24 | static_cast<uint64_t>(device) << 8,
                      static_cast<uint64_t>(ndim));
  for (int d = 0; d < ndim; ++d)
    hash = mix(mix(hash, static_cast<uint64_t>(shape[d])), static_cast<uint64_t>(strides[d]));

  Table& t = table();
  const size_t bytes = sizeof(int64_t) * static_cast<size_t>(ndim);
  for (Layout* x = t.buckets[hash & t.mask]; x; x = x->next) {
    if (x->hash == hash && x->dtype == dtype && x->device == device && x->ndim == ndim &&
        (ndim == 0 ||
         (!std::memcmp(x->dims, shape, bytes) && !std::memcmp(x->dims + ndim, strides, bytes)))) {
      ++x->refs;
      return x;
    }
  }

  int64_t numel = 1;
  for (int d = 0; d < ndim; ++d) {
    if (shape[d] < 0)
      fail(ErrorKind::Runtime, "Trying to create tensor with negative dimension %lld: %s",
           static_cast<long long>(shape[d]), shape_text(ndim, shape).c_str());
    if (shape[d] == 0) numel = 0;
  }
  // The bytes counted are those reached, so that an expanded layout may be larger than memory.
  int64_t reach = itemsize(dtype);
  for (int d = 0; d < ndim && numel; ++d) {
    int64_t step;
    const int64_t stride = strides[d] < 0 ? -strides[d] : strides[d];
    if (__builtin_mul_overflow(numel, shape[d], &numel) ||
        __builtin_mul_overflow(shape[d] - 1, int64_t{itemsize(dtype)}, &step) ||
        __builtin_mul_overflow(stride, step, &step) || __builtin_add_overflow(reach, step, &reach))
      overflow(ndim, shape);
  }

  Layout* x = static_cast<Layout*>(std::malloc(sizeof(Layout) + 2 * bytes));
  if (!x) fail(ErrorKind::Memory, "no memory for a tensor layout");
  x->refs = 1;
  x->hash = hash;
  x->dtype = dtype;
  x->device = device;
  x->ndim = static_cast<uint8_t>(ndim);
  x->numel = numel;
  if (ndim) {
    std::memcpy(x->dims, shape, bytes);
    std::memcpy(x->dims + ndim, strides, bytes);
  }
  x->contiguous = numel == 0 || is_contiguous(ndim, shape, strides);
  x->dense = x->contiguous || is_dense(ndim, shape, strides);
  if (t.count > static_cast<int64_t>(t.mask)) grow(t);
  x->next = t.buckets[hash & t.mask];
  t.buckets[hash & t.mask] = x;
  ++t.count;
  return x;
}

Layout* layout_dense(DType dtype, Device device, int ndim, const int64_t* shape) {
  if (ndim < 0 || ndim > kMaxDims)
    fail(ErrorKind::Runtime, "tensors have at most %d dimensions, got %d", kMaxDims, ndim);
  int64_t strides[kMaxDims];
  int64_t step = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    strides[d] = step;
    // Dims of size 0 count as 1, as in PyTorch: an empty tensor still has strides.
    if (shape[d] > 1 && __builtin_mul_overflow(step, shape[d], &step)) overflow(ndim, shape);
  }
  return layout_intern(dtype, device, ndim, shape, strides);
}

Layout* layout_like(const Layout* model, DType dtype) {
  return layout_intern(dtype, model->device, model->ndim, model->shape(), model->strides());
}

void layout_free(Layout* x) {
  Table& t = table();
  Layout** link = &t.buckets[x->hash & t.mask];
  while (*link != x) link = &(*link)->next;
  *link = x->next;
  --t.count;
  std::free(x);
}

int64_t layout_count() { return table().count; }

void layout_extent(const Layout* x, int64_t* low, int64_t* high) {
  *low = 0;
  *high = 0;
  if (x->numel == 0) return;
  *high = 1;
  for (int d = 0; d < x->ndim; ++d) {
    const int64_t far = x->strides()[d] * (x->shape()[d] - 1);
    (far < 0 ? *low : *high) += far;
  }
}

}  // namespace rl
