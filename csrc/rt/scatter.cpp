// gather and scatter: one index an element, along one dim. The index may be smaller than the tensor in every other dim.
#include "typed.h"

namespace rl {
namespace {

// Where the index's elements meet the tensor's: offsets of the places before and behind `dim`.
struct Meeting {
  std::vector<int64_t> outer, inner;
  int64_t J = 1, stride = 1;             // the index's length along dim; the tensor's stride of it

  Meeting(const Layout* tensor, const Layout* index, int64_t dim) {   // every dim of the index fits the tensor's, but `dim`
    outer.assign(1, 0);
    inner.assign(1, 0);
    if (tensor->ndim == 0 || index->ndim == 0) {
      J = index->numel;
      return;
    }
    int64_t strides[kMaxDims], step = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
      strides[d] = step;
      step *= tensor->dims[d];
    }
    J = index->dims[dim];
    stride = strides[dim];
    for (int d = 0; d < index->ndim; d++) {
      if (d == dim) continue;
      std::vector<int64_t>& list = d < dim ? outer : inner;
      std::vector<int64_t> longer;
      longer.reserve(list.size() * index->dims[d]);
      for (int64_t base : list)
        for (int64_t j = 0; j < index->dims[d]; j++) longer.push_back(base + j * strides[d]);
      list.swap(longer);
    }
  }
  int64_t O() const { return static_cast<int64_t>(outer.size()); }
  int64_t I() const { return static_cast<int64_t>(inner.size()); }
};

int64_t size_along(const Layout* l, int64_t dim) { return l->ndim ? l->dims[dim] : 1; }

// gather(self, index; dim) -> out, of the index's shape
void run_gather(const RoutineCall& c) {
  const RoutineOperand &self = c.in[0], &index = c.in[1], &out = c.out[0];
  const int64_t dim = c.ints[0];
  if (index.layout->numel == 0) return;
  const int64_t *at = index.as<int64_t>(), size = size_along(self.layout, dim);
  const Meeting m(self.layout, index.layout, dim);
  const int64_t I = m.I(), J = m.J;
  const auto check = [&] { check_indices(c.op, ErrorKind::Runtime, at, index.layout->numel, size, dim, false); };
  if (I != 1) check();
  with_size(self.layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = self.as<T>();
    T* y = out.as<T>();
    if (I == 1) {                        // a row's indices are checked right before they are read again, from the first cache
      std::atomic<bool> wrong{false};
      parallel(m.O(), grain_of(J * 2), [&](int64_t a, int64_t b) {
        const int64_t stride = m.stride, step = 1024;
        for (int64_t o = a; o < b && !wrong; o++) {
          const T* base = x + m.outer[o];
          for (int64_t j = o * J, end = (o + 1) * J, stop; j < end; j = stop) {
            stop = std::min(end, j + step);
            if (!within(at + j, stop - j, 0, size)) {
              wrong = true;
              break;
            }
            if (stride == 1)
              for (int64_t k = j; k < stop; k++) y[k] = base[at[k]];
            else
              for (int64_t k = j; k < stop; k++) y[k] = base[at[k] * stride];
          }
        }
      });
      if (wrong) check();                // says which
      return;
    }
    parallel(m.O() * J, grain_of(I * 2), [&](int64_t a, int64_t b) {
      for (int64_t row = a; row < b; row++) {
        const T* base = x + m.outer[row / J];
        const int64_t* from = at + row * I;
        T* to = y + row * I;
        for (int64_t i = 0; i < I; i++) to[i] = base[from[i] * m.stride + m.inner[i]];
      }
    });
  });
}

// `from`: how the source lies where it is larger than the index; null: as the index. step 0: one value for all.
template <class T>
void scatter_all(const Meeting& m, const Meeting* from, Put how, bool boolean, T* y, const int64_t* at, const T* v, int64_t step) {
  const int64_t O = m.O(), I = m.I(), J = m.J;
  auto block = [&](int64_t o, int64_t first, int64_t last) {
    if (I == 1 && step && !from && !boolean && (how == Put::Assign || how == Put::Add)) {
      T* base = y + m.outer[o];
      const int64_t stride = m.stride;
      for (int64_t j = o * J; j < (o + 1) * J; j++) {
        T* to = base + at[j] * stride;
        if (how == Put::Assign) *to = v[j];
        else *to = plus(*to, v[j]);
      }
      return;
    }
    for (int64_t j = 0; j < J; j++) {
      const int64_t row = (o * J + j) * I;
      T* base = y + m.outer[o];
      const T* source = !step ? v : from ? v + from->outer[o] + j * from->stride : v + row;
      for (int64_t i = first; i < last; i++) {
        T* to = base + at[row + i] * m.stride + m.inner[i];
        const T value = source[!step ? 0 : from ? from->inner[i] : i];
        if (how == Put::Assign) *to = value;
        else if (how == Put::Add && !boolean) *to = plus(*to, value);
        else put(how, boolean, to, value);
      }
    }
  };
  if (O > 1)                             // rows of one dim never meet
    parallel(O, grain_of(I * J * 2), [&](int64_t a, int64_t b) {
      for (int64_t o = a; o < b; o++) block(o, 0, I);
    });
  else
    parallel(I, grain_of(J * 2), [&](int64_t a, int64_t b) { block(0, a, b); });
}

// scatter([self,] index, [src]; dim, how, flags; [number]) -> out
void run_scatter(const RoutineCall& c) {
  const int64_t dim = c.ints[0], flags = c.ints[2];
  const Put how = static_cast<Put>(c.ints[1]);
  const bool zeros = flags & kFromZeros, number = flags & kNumber;
  const RoutineOperand &out = c.out[0], &index = c.in[zeros ? 0 : 1], *source = &index + 1;
  const DType d = out.layout->dtype;
  const int64_t* at = index.as<int64_t>();
  const int64_t size = out.layout->numel;
  const bool boolean = d == DType::Bool;
  check_indices(c.op, ErrorKind::Runtime, at, index.layout->numel, size_along(out.layout, dim), dim, false);
  if (zeros) std::memset(out.data, 0, size * itemsize(d));
  if (index.layout->numel == 0) return;
  const Meeting m(out.layout, index.layout, dim);
  bool larger = false;
  for (int k = 0; !number && k < index.layout->ndim && k < source->layout->ndim; k++)
    larger |= source->layout->dims[k] != index.layout->dims[k];
  const Meeting places(larger ? source->layout : out.layout, index.layout, dim);
  const Meeting* from = larger ? &places : nullptr;
  if (how == Put::Assign && !number)
    return with_size(d, [&](auto unit) {
      typedef decltype(unit) T;
      scatter_all<T>(m, from, how, boolean, out.as<T>(), at, source->as<T>(), 1);
    });
  with_any(c.op, d, [&](auto unit) {
    typedef decltype(unit) T;
    T* y = out.as<T>();
    const T one = number ? number_as<T>(d, c.numbers[0]) : T();
    if (flags & kWithoutSelf) {
      const T start = identity<T>(how);
      scatter_all<T>(m, nullptr, Put::Assign, false, y, at, &start, 0);
    }
    scatter_all<T>(m, from, how, boolean, y, at, number ? &one : source->as<T>(), number ? 0 : 1);
    if (flags & kMean) {
      std::vector<int64_t> counts(size, flags & kWithoutSelf ? 0 : 1);
      const int64_t each = 1;
      scatter_all<int64_t>(m, nullptr, Put::Add, false, counts.data(), at, &each, 0);
      divide_by_counts(y, counts.data(), size);
    }
  });
}

// ---- masks

const uint8_t* bytes(const RoutineOperand& o) { return o.as<uint8_t>(); }

int64_t count_set(const uint8_t* mask, int64_t n) {
  std::atomic<int64_t> total{0};
  parallel(n, 65536, [&](int64_t a, int64_t b) {
    int64_t mine = 0;
    while (a < b) {                      // bytes of 0 and 1: sums of 255 fit a byte each, so that the loop runs in vectors
      const int64_t stop = std::min(b, a + 16320);
      uint32_t part = 0;
      for (; a < stop; a++) part += mask[a];
      mine += part;
    }
    total += mine;
  });
  return total;
}

// count_set(mask) -> [1]
void run_count(const RoutineCall& c) { *c.out[0].as<int64_t>() = count_set(bytes(c.in[0]), c.in[0].layout->numel); }

// f(k, position) for the k-th set element of a mask, blocks side by side on threads.
template <class F>
void each_set(const uint8_t* mask, int64_t n, F f) {
  const int64_t block = 65536, blocks = (n + block - 1) / block;
  std::vector<int64_t> starts(blocks + 1, 0);
  if (blocks > 1)
    parallel(blocks, 1, [&](int64_t a, int64_t b) {
      for (int64_t k = a; k < b; k++) {
        int64_t mine = 0;
        for (int64_t i = k * block; i < std::min(n, (k + 1) * block); i++) mine += mask[i];
        starts[k + 1] = mine;
      }
    });
  for (int64_t k = 0; k < blocks; k++) starts[k + 1] += starts[k];
  parallel(blocks, 1, [&](int64_t a, int64_t b) {
    for (int64_t k = a; k < b; k++) {
      int64_t at = starts[k];
      const int64_t stop = std::min(n, (k + 1) * block);
      int64_t i = k * block;
      for (; i + 8 <= stop; i += 8) {
        uint64_t eight;
        std::memcpy(&eight, mask + i, 8);
        if (!eight) continue;
        for (int64_t e = i; e < i + 8; e++)
          if (mask[e]) f(at++, e);
      }
      for (; i < stop; i++)
        if (mask[i]) f(at++, i);
    }
  });
}

void check_count(const RoutineCall& c, int64_t found, int64_t expected) {
  if (found != expected)
    fail(ErrorKind::Runtime, "[%s] the mask has %lld elements set, the call says %lld", c.op, static_cast<long long>(found),
         static_cast<long long>(expected));
}

// nonzero(mask; columns, count) -> [count, ndim], or [ndim, count] where `columns`
void run_nonzero(const RoutineCall& c) {
  const Layout* l = c.in[0].layout;
  const int rank = l->ndim;
  const bool columns = c.ints[0];
  const int64_t count = c.ints[1];
  check_count(c, count_set(bytes(c.in[0]), l->numel), count);
  if (rank == 0) return;
  int64_t* y = c.out[0].as<int64_t>();
  each_set(bytes(c.in[0]), l->numel, [&](int64_t k, int64_t at) {
    for (int d = rank - 1; d >= 0; d--) {
      const int64_t n = l->dims[d];
      (columns ? y[d * count + k] : y[k * rank + d]) = rank == 1 ? at : at % n;
      at /= n;
    }
  });
}

// masked_select(self, mask) -> [count]; both of one shape
void run_masked_select(const RoutineCall& c) {
  const int64_t n = c.in[1].layout->numel;
  check_count(c, count_set(bytes(c.in[1]), n), c.out[0].layout->numel);
  if (n == 0) return;
  with_size(c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = c.in[0].as<T>();
    T* y = c.out[0].as<T>();
    each_set(bytes(c.in[1]), n, [&](int64_t k, int64_t at) { y[k] = x[at]; });
  });
}

// masked_scatter([self,] mask, source; zeros) -> out
void run_masked_scatter(const RoutineCall& c) {
  const RoutineOperand &mask = c.in[c.ints[0] ? 0 : 1], &source = *(&mask + 1), &out = c.out[0];
  const int64_t n = mask.layout->numel, found = count_set(bytes(mask), n);
  if (found > source.layout->numel)
    fail(ErrorKind::Runtime, "[%s] the source has %lld elements for the %lld that the mask chooses",
         c.op, static_cast<long long>(source.layout->numel), static_cast<long long>(found));
  if (c.ints[0]) std::memset(out.data, 0, n * itemsize(out.layout->dtype));
  with_size(out.layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = source.as<T>();
    T* y = out.as<T>();
    each_set(bytes(mask), n, [&](int64_t k, int64_t at) { y[at] = x[k]; });
  });
}

// masked_taken(self, mask, like) -> self where the mask is set, in order; zeros for the rest of the output
void run_masked_taken(const RoutineCall& c) {
  const int64_t room = c.out[0].layout->numel;
  std::memset(c.out[0].data, 0, room * itemsize(c.out[0].layout->dtype));
  with_size(c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = c.in[0].as<T>();
    T* y = c.out[0].as<T>();
    each_set(bytes(c.in[1]), c.in[1].layout->numel, [&](int64_t k, int64_t at) {
      if (k < room) y[k] = x[at];
    });
  });
}

}  // namespace

RL_ROUTINE(masked_taken, run_masked_taken)
RL_ROUTINE(gather, run_gather)
RL_ROUTINE(scatter, run_scatter)
RL_ROUTINE(count_set, run_count)
RL_ROUTINE(nonzero, run_nonzero)
RL_ROUTINE(masked_select, run_masked_select)
RL_ROUTINE(masked_scatter, run_masked_scatter)

}  // namespace rl
