// Affine views: a layout and run-time integers -> a layout and an offset. The native form of the view rules;
// rushlight/ops/views.py holds the declarations, and a test compares the two.
#pragma once
#include <cstdint>
#include "layout.h"

namespace rl {

// Each returns a new layout and adds to *offset (elements). `op` names the operator in errors.
Layout* view_select(const char* op, Layout*, int64_t dim, int64_t index, int64_t* offset);       // Index out of range
Layout* view_slice(const char* op, Layout*, int64_t dim, bool has_start, int64_t start, bool has_end, int64_t end,
                   int64_t step, int64_t* offset);                                                 // clamps as Python does
Layout* view_permute(const char* op, Layout*, int n, const int64_t* dims);
Layout* view_transpose(const char* op, Layout*, int64_t d0, int64_t d1);
Layout* view_reshape(const char* op, Layout*, int n, const int64_t* shape, bool* possible);      // -1 inferred; *possible false, null: needs a copy
Layout* view_expand(const char* op, Layout*, int n, const int64_t* shape);                        // -1 keeps
Layout* view_unsqueeze(const char* op, Layout*, int64_t dim);
Layout* view_squeeze(const char* op, Layout*, bool has_dim, int64_t dim);
// start + length within the dim, negative starts from its end
Layout* view_narrow(const char* op, Layout*, int64_t dim, int64_t start, int64_t length, int64_t* offset);
// the diagonal of dims d0 and d1 becomes the last dim
Layout* view_diagonal(const char* op, Layout*, int64_t diagonal, int64_t d0, int64_t d1, int64_t* offset);
// windows of `size` elements, `step` apart: their elements become the last dim
Layout* view_unfold(const char* op, Layout*, int64_t dim, int64_t size, int64_t step);
Layout* view_as_strided(const char* op, Layout*, int n, const int64_t* shape, const int64_t* strides);

int64_t wrap_dim(const char* op, int64_t dim, int ndim);     // negative dims; throws Index as PyTorch words it

}  // namespace rl
