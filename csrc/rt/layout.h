// Layouts: shape, strides, dtype and device, interned, so that equal layouts are the same pointer.
// The element offset is not part of a layout: it belongs to the tensor. Call under the GIL (or one thread).
#pragma once
#include <cstdint>
#include "dtype.h"

namespace rl {

constexpr int kMaxDims = 16;

struct Layout {
  int64_t refs;
  uint64_t hash;
  DType dtype;
  Device device;
  uint8_t ndim;
  bool contiguous;        // C order, dims of size 1 ignored; true for empty tensors
  bool dense;             // a permutation of a contiguous layout: no gaps, no overlap
  int64_t numel;
  Layout* next;           // hash chain
  const int64_t* strides() const { return dims + ndim; }
  const int64_t* shape() const { return dims; }
  int64_t dims[];         // shape[ndim], then strides[ndim] (elements)
};

// A new reference. Throws rl::Error (error.h) where numel or the byte size overflows int64.
Layout* layout_intern(DType, Device, int ndim, const int64_t* shape, const int64_t* strides);
Layout* layout_dense(DType, Device, int ndim, const int64_t* shape);                 // C order
Layout* layout_like(const Layout* model, DType);                                     // same dims, other dtype
inline void incref(Layout* x) { ++x->refs; }
void layout_free(Layout*);
inline void decref(Layout* x) { if (--x->refs == 0) layout_free(x); }
int64_t layout_count();                                                              // live layouts

// First and last element reached, relative to the offset; [0, 0) when empty.
void layout_extent(const Layout*, int64_t* low, int64_t* high);

}  // namespace rl
