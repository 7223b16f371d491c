// A recipe and operand layouts -> output layouts and the iteration space. The native form of the
// layout rules.
// Invariant: every buffer's strides stand in the full shape; 0 where it is broadcast or has one
// number a row.
#include "space.h"

#include <algorithm>

#include "error.h"

namespace rl {
namespace {

typedef long long Int;

struct Builder {
  const char* op;
  const Recipe& recipe;
  Layout* const* inputs;
  Layout* const* given;
  Layout** outs;
  int ndim = 0;
  int64_t shape[kMaxDims] = {};
  Loop dims[kMaxDims] = {};  // one for each dim of the full shape, all buffers
  uint32_t rows = 0;

  std::string shapes() const {
    std::string text;
    for (int i = 0; i < recipe.ninputs; ++i)
      text += (i ? " and " : "") + shape_text(inputs[i]->ndim, inputs[i]->shape());
    return text;
  }

  Device device() const { return recipe.ninputs ? inputs[0]->device : Device::CPU; }

  bool per_row(int i) const { return recipe.in[i] == Operand::PerRow && rows; }

  // Right-aligned broadcast of operand i into `shape`, which grows only where `decides`.
  void broadcast(int i) {
    const Layout* x = inputs[i];
    const int shift = ndim - x->ndim;
    for (int d = 0; d < x->ndim; ++d) {
      int64_t& size = shape[d + shift];
      const int64_t have = x->shape()[d];
      if (have == size || have == 1) continue;
      if (size != 1)
        fail(ErrorKind::Runtime,
             "[%s] shapes %s do not broadcast: dim %d has size %lld and %lld", op,
             shapes().c_str(), d + shift, Int(size), Int(have));
      size = have;
    }
  }

  void stride_operand(int i) {
    const Layout* x = inputs[i];
    const int nrows = __builtin_popcount(rows);
    if (per_row(i) && x->ndim == ndim - nrows) {  // row dims left out
      for (int d = 0, from = 0; d < ndim; ++d)
        if (!(rows >> d & 1)) stride_dim(i, d, x->shape()[from], x->strides()[from]), ++from;
      return;
    }
    const int shift = ndim - x->ndim;
    for (int d = 0; d < x->ndim; ++d) {
      if (per_row(i) && (rows >> (d + shift) & 1) && x->shape()[d] != 1)
        fail(ErrorKind::Runtime,
             "[%s] expected one number a row, got size %lld in row dimension %d: shapes %s", op,
             Int(x->shape()[d]), d + shift, shapes().c_str());
      stride_dim(i, d + shift, x->shape()[d], x->strides()[d]);
    }
  }

  void stride_dim(int i, int d, int64_t size, int64_t stride) {
    if (size != shape[d] && size != 1)
      fail(ErrorKind::Runtime, "[%s] expected size %lld in dimension %d, got %lld: shapes %s", op,
           Int(shape[d]), d, Int(size), shapes().c_str());
    dims[d].stride[i] = size == shape[d] ? stride : 0;
  }

  // Strides of Output::Same. Operands that agree on a dense layout hand it on as it is; else dims
  // are ordered.
  void same_strides(int64_t* strides) const {
    int full[kBuffers], n = 0;
    const Layout* first = nullptr;
    bool alike = true, contiguous = true;
    for (int i = 0; i < recipe.ninputs; ++i) {
      if (per_row(i)) continue;
      full[n++] = i;
      const Layout* x = inputs[i];
      if (!first) first = x;
      alike = alike && x->dense && x->ndim == ndim && std::equal(shape, shape + ndim, x->shape()) &&
              std::equal(x->strides(), x->strides() + ndim, first->strides());
      contiguous = contiguous && x->contiguous && x->ndim == ndim &&
                   std::equal(shape, shape + ndim, x->shape());
    }
    int perm[kMaxDims];
    for (int d = 0; d < ndim; ++d) perm[d] = ndim - 1 - d;
    if (n && alike && !contiguous) {
      std::copy(first->strides(), first->strides() + ndim, strides);
      return;
    }
    if (!contiguous) order_loops(ndim, dims, n, full, perm);
    int64_t step = 1;
    for (int d = 0; d < ndim; ++d) {
      strides[perm[d]] = step;
      step *= std::max<int64_t>(shape[perm[d]], 1);
    }
  }

  // Takes over a given output, or interns a new one.
  void output(int o, DType dtype, int nd, const int64_t* sh, const int64_t* strides) {
    Layout* g = given ? given[o] : nullptr;
    if (!g) {
      outs[o] = strides ? layout_intern(dtype, device(), nd, sh, strides)
                        : layout_dense(dtype, device(), nd, sh);
      return;
    }
    if (g->ndim != nd || !std::equal(sh, sh + nd, g->shape()))
      fail(ErrorKind::Runtime, "[%s] the output has shape %s, the operands broadcast to %s", op,
           shape_text(g->ndim, g->shape()).c_str(), shape_text(nd, sh).c_str());
    if (g->dtype != dtype)
      fail(ErrorKind::Runtime, "[%s] expected an output of %s, got %s", op, dtype_name(dtype),
           dtype_name(g->dtype));
    incref(g);
    outs[o] = g;
  }

  void broadcast_output(int o) {
    const int b = recipe.ninputs + o;
    const DType dtype = recipe.out_dtype[o];
    const Output kind = recipe.out[o];
    const uint32_t reduced = kind == Output::KeepRow || kind == Output::DropRow ? rows : 0;
    int64_t sh[kMaxDims], strides[kMaxDims];
    int at[kMaxDims], nd = 0;  // dims of the output -> dims of the full shape
    for (int d = 0; d < ndim; ++d) {
      const bool row = reduced >> d & 1;
      if (row && kind == Output::DropRow) continue;
      at[nd] = d;
      sh[nd++] = row ? 1 : shape[d];
    }
    const bool same = kind == Output::Same && recipe.rule != Rule::Sized;
    if (same) same_strides(strides);
    output(o, dtype, nd, sh, same ? strides : nullptr);
    for (int d = 0; d < nd; ++d)
      dims[at[d]].stride[b] = reduced >> at[d] & 1 ? 0 : outs[o]->strides()[d];
  }

  // Broadcast, Rows and Sized: every dim of the full shape is a loop, of the row group where `rows`
  // says so.
  void build(const int64_t* sizes, int nsizes, Space* space) {
    if (recipe.rule == Rule::Sized) ndim = nsizes;
    for (int i = 0; i < recipe.ninputs; ++i)
      if (recipe.in[i] == Operand::Full || !recipe.rows)
        ndim = std::max<int>(ndim, inputs[i]->ndim);
    if (recipe.rule == Rule::Sized && ndim != nsizes)
      fail(ErrorKind::Runtime, "[%s] shapes %s do not fit the size %s", op, shapes().c_str(),
           shape_text(nsizes, sizes).c_str());
    for (int i = 0; i < recipe.ninputs; ++i)
      if (inputs[i]->ndim > ndim)
        fail(ErrorKind::Runtime, "[%s] a number a row has at most %d dims: shapes %s", op, ndim,
             shapes().c_str());
    rows = recipe.rule == Rule::Rows ? recipe.rows & ((1u << ndim) - 1) : 0;
    std::fill(shape, shape + ndim, int64_t{1});
    if (recipe.rule == Rule::Sized) std::copy(sizes, sizes + nsizes, shape);
    // Row dims left out of a per-row operand would align wrongly: such operands are only checked,
    // below.
    for (int i = 0; i < recipe.ninputs; ++i)
      if (!per_row(i)) broadcast(i);
    if (recipe.rule == Rule::Sized && !std::equal(sizes, sizes + nsizes, shape))
      fail(ErrorKind::Runtime, "[%s] shapes %s do not fit the size %s", op, shapes().c_str(),
           shape_text(nsizes, sizes).c_str());
    int64_t position = 1;
    for (int d = ndim - 1; d >= 0; --d) {
      dims[d].size = shape[d];
      dims[d].counter = position;
      position *= std::max<int64_t>(shape[d], 1);
    }
    for (int i = 0; i < recipe.ninputs; ++i) stride_operand(i);
    for (int o = 0; o < recipe.noutputs; ++o) broadcast_output(o);
    for (int d = 0; d < ndim; ++d) {
      const int group = rows >> d & 1 ? Space::kRow : Space::kOuter;
      space->loops[group][space->count[group]++] = dims[d];
    }
  }

  // One loop of a table space: the indexed operand (weight, or the output added into), the indices,
  // the rows.
  static void table_loop(Space* space, int group, int64_t size, int table, int64_t table_stride,
                         int64_t index_stride, int rows, int64_t rows_stride, int64_t counter) {
    Loop& loop = space->loops[group][space->count[group]++];
    loop = Loop{};
    loop.size = size;
    loop.stride[table] = table_stride;
    loop.stride[1] = index_stride;  // indices are the second operand in both rules
    loop.stride[rows] = rows_stride;
    loop.counter = counter;
  }

  // Table: buffers weight, indices, out. IntoTable: buffers values, indices, out.
  void build_table(const int64_t* sizes, int nsizes, Space* space) {
    const bool into = recipe.rule == Rule::IntoTable;
    if (recipe.ninputs != 2 || recipe.noutputs != 1 || (into && nsizes != 1))
      fail(ErrorKind::Runtime, "[%s] a table kernel takes two operands and makes one output", op);
    const Layout* data = inputs[0];
    const Layout* index = inputs[1];
    const int ni = index->ndim, lead = into ? ni : 1;
    if (data->ndim < lead ||
        (into && !std::equal(index->shape(), index->shape() + ni, data->shape())))
      fail(ErrorKind::Runtime,
           into ? "[%s] expected values of shape [indices..., D], got %s"
                : "[%s] expected a table of at least one dimension, got %s",
           op, shapes().c_str());
    const int nd = data->ndim - lead;  // trailing dims, D
    const int64_t* trailing = data->shape() + lead;
    int64_t sh[2 * kMaxDims];
    int n = 0;
    if (into)
      sh[n++] = sizes[0];
    else
      for (int d = 0; d < ni; ++d) sh[n++] = index->shape()[d];
    for (int d = 0; d < nd; ++d) sh[n++] = trailing[d];
    output(0, recipe.out_dtype[0], n, sh, nullptr);
    const Layout* out = outs[0];

    // `table` is what the indices point into; its axis 0 is the range. `moved` is laid out [*I, D].
    const Layout* table = into ? out : data;
    const Layout* moved = into ? data : out;
    const int tb = into ? 2 : 0, mb = into ? 0 : 2;
    int64_t counter[2 * kMaxDims], position = 1;
    for (int d = ni + nd - 1; d >= 0; --d) {
      counter[d] = position;
      position *= std::max<int64_t>(moved->shape()[d], 1);
    }
    for (int d = 0; d < ni; ++d)
      table_loop(space, Space::kOuter, index->shape()[d], tb, 0, index->strides()[d], mb,
                 moved->strides()[d], counter[d]);
    for (int d = 0; d < nd; ++d)
      table_loop(space, Space::kTrailing, trailing[d], tb, table->strides()[1 + d], 0, mb,
                 moved->strides()[ni + d], counter[ni + d]);
    table_loop(space, Space::kRow, table->shape()[0], tb, table->strides()[0], 0, mb, 0, 0);
    space->row_is_range = true;
    space->ordered = true;
  }
};

}  // namespace

void order_loops(int count, const Loop* loops, int nbuffers, const int* buffers, int* perm) {
  for (int d = 0; d < count; ++d) perm[d] = count - 1 - d;
  // 1: the first should come after the second; -1: it should not; 0: they cannot be compared.
  const auto compare = [&](int first, int second) {
    for (int i = 0; i < nbuffers; ++i) {
      const int64_t a = std::abs(loops[first].stride[buffers[i]]),
                    b = std::abs(loops[second].stride[buffers[i]]);
      if (a == 0 || b == 0) continue;
      if (a != b) return a < b ? -1 : 1;
      if (loops[first].size > loops[second].size) return 1;
    }
    return 0;
  };
  // Insertion that walks past what cannot be compared: the relation is not transitive, so no
  // library sort.
  for (int i = 1; i < count; ++i) {
    int at = i;
    for (int j = i - 1; j >= 0; --j) {
      const int order = compare(perm[j], perm[at]);
      if (order < 0) break;
      if (order > 0) {
        std::swap(perm[j], perm[at]);
        at = j;
      }
    }
  }
}

void make_space(const char* op, const Recipe& recipe, Layout* const* inputs, Layout* const* given,
                const int64_t* sizes, int nsizes, Layout** outs, Space* space) {
  space->nbuf = recipe.ninputs + recipe.noutputs;
  space->count[0] = space->count[1] = space->count[2] = 0;
  space->ordered = space->row_is_range = false;
  std::fill(outs, outs + recipe.noutputs, nullptr);
  Builder builder{op, recipe, inputs, given, outs};
  try {
    if (recipe.rule == Rule::Table || recipe.rule == Rule::IntoTable)
      builder.build_table(sizes, nsizes, space);
    else
      builder.build(sizes, nsizes, space);
  } catch (...) {
    for (int o = 0; o < recipe.noutputs; ++o)
      if (outs[o]) decref(outs[o]), outs[o] = nullptr;
    throw;
  }
}

}  // namespace rl
