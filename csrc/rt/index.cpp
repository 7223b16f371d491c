// Index tensors: x[index, ...] read (`index`) and written (`index_put`), and the index_* operators along one dim.
//
// The indexed dims `dims` take index tensors that broadcast to one shape of P positions. What other dims stand before the last
// indexed one are R "rest" places, what stands behind it is one contiguous run. With neighbouring indexed dims the output is
// [rest][positions][run], else [positions][rest][run]: PyTorch's placement rule.
#include "typed.h"

namespace rl {
namespace {

struct Places {
  std::vector<int64_t> position, rest;   // element offsets into the indexed tensor
  int64_t run = 1;
  bool adjacent = true;

  int64_t P() const { return static_cast<int64_t>(position.size()); }
  int64_t R() const { return static_cast<int64_t>(rest.size()); }
  int64_t at(int64_t p, int64_t r) const { return adjacent ? r * P() + p : p * R() + r; }
};

// `l`: the indexed tensor's C-ordered layout; one operand of int64 for each of `dims`.
Places places_of(const char* op, ErrorKind kind, const Layout* l, const RoutineOperand* index, const int64_t* dims,
                 int count, bool negative) {
  Places out;
  if (l->ndim == 0) {                                // a tensor without dims is one place
    check_indices(op, kind, index->as<int64_t>(), index->layout->numel, 1, 0, negative);
    out.position.assign(index->layout->numel, 0);
    out.rest.assign(1, 0);
    return out;
  }
  int64_t strides[kMaxDims], step = 1;
  for (int d = l->ndim - 1; d >= 0; d--) {
    strides[d] = step;
    step *= l->dims[d];
  }
  bool indexed[kMaxDims] = {};
  for (int i = 0; i < count; i++) {
    indexed[dims[i]] = true;
    if (i && dims[i] != dims[i - 1] + 1) out.adjacent = false;
  }
  const int last = static_cast<int>(dims[count - 1]);
  for (int d = last + 1; d < l->ndim; d++) out.run *= l->dims[d];

  // The common shape of the indices.
  int rank = 0;
  int64_t shape[kMaxDims];
  for (int i = 0; i < count; i++) rank = std::max<int>(rank, index[i].layout->ndim);
  int64_t positions = 1;
  for (int d = 0; d < rank; d++) {
    shape[d] = 1;
    for (int i = 0; i < count; i++) {
      const int at = d - rank + index[i].layout->ndim;
      if (at >= 0 && index[i].layout->dims[at] != 1) shape[d] = index[i].layout->dims[at];
    }
    positions *= shape[d];
  }
  int64_t rests = 1;
  for (int d = 0; d < last; d++)
    if (!indexed[d]) rests *= l->dims[d];
  if (positions == 0 || rests == 0 || out.run == 0) return out;     // nothing is read
  for (int i = 0; i < count; i++)
    check_indices(op, kind, index[i].as<int64_t>(), index[i].layout->numel, l->dims[dims[i]], dims[i], negative);
  out.position.assign(positions, 0);
  for (int i = 0; i < count; i++) {
    const int64_t* from = index[i].as<int64_t>();
    const int64_t size = l->dims[dims[i]], stride = strides[dims[i]];
    int64_t* to = out.position.data();
    if (index[i].layout->numel == positions) {
      parallel(positions, 65536, [&](int64_t a, int64_t b) {
        for (int64_t p = a; p < b; p++) to[p] += (from[p] < 0 ? from[p] + size : from[p]) * stride;
      });
      continue;
    }
    int64_t steps[kMaxDims] = {}, counter[kMaxDims] = {}, dense = 1, at = 0;
    for (int d = rank - 1, k = index[i].layout->ndim - 1; k >= 0; d--, k--) {
      const int64_t n = index[i].layout->dims[k];
      steps[d] = n == 1 ? 0 : dense;
      dense *= n;
    }
    for (int64_t p = 0; p < positions; p++) {
      to[p] += (from[at] < 0 ? from[at] + size : from[at]) * stride;
      for (int d = rank - 1; d >= 0; d--) {
        at += steps[d];
        if (++counter[d] < shape[d]) break;
        at -= steps[d] * shape[d];
        counter[d] = 0;
      }
    }
  }
  out.rest.assign(1, 0);
  for (int d = 0; d < last; d++) {
    if (indexed[d]) continue;
    std::vector<int64_t> longer;
    longer.reserve(out.rest.size() * l->dims[d]);
    for (int64_t base : out.rest)
      for (int64_t j = 0; j < l->dims[d]; j++) longer.push_back(base + j * strides[d]);
    out.rest.swap(longer);
  }
  return out;
}

// Slices along the first dim: no table of places is needed.
void index_leading(const RoutineCall& c) {
  const RoutineOperand &self = c.in[0], &index = c.in[1];
  const int64_t size = self.layout->dims[0], positions = index.layout->numel;
  int64_t run = 1;                                   // not numel / size: with no slices there is still an index to refuse
  for (int d = 1; d < self.layout->ndim; d++) run *= self.layout->dims[d];
  if (positions == 0 || run == 0) return;
  const int64_t* at = index.as<int64_t>();
  check_indices(c.op, ErrorKind::Index, at, positions, size, 0, true);
  with_size(self.layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = self.as<T>();
    T* y = c.out[0].as<T>();
    parallel(positions, grain_of(run * 2), [&](int64_t a, int64_t b) {
      if (run == 1)
        for (int64_t p = a; p < b; p++) y[p] = x[at[p] + (at[p] < 0 ? size : 0)];
      else
        for (int64_t p = a; p < b; p++) std::memcpy(y + p * run, x + (at[p] + (at[p] < 0 ? size : 0)) * run, run * sizeof(T));
    });
  });
}

// index(self, indices...; dims...) -> out
void run_index(const RoutineCall& c) {
  const RoutineOperand &self = c.in[0], &out = c.out[0];
  if (c.nin == 2 && self.layout->ndim && c.ints[0] == 0) return index_leading(c);
  const Places places = places_of(c.op, ErrorKind::Index, self.layout, c.in + 1, c.ints, c.nin - 1, true);
  const int64_t P = places.P(), R = places.R(), run = places.run;
  if (out.layout->numel == 0) return;
  with_size(self.layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = self.as<T>();
    T* y = out.as<T>();
    const int64_t *position = places.position.data(), *rest = places.rest.data();
    parallel(P * R, grain_of(run * 2), [&](int64_t a, int64_t b) {
      const int64_t inside = places.adjacent ? P : R;
      int64_t major = a / inside, minor = a % inside;
      for (int64_t i = a; i < b; i++) {
        const T* from = x + (places.adjacent ? position[minor] + rest[major] : position[major] + rest[minor]);
        if (run == 1) y[i] = *from;
        else std::memcpy(y + i * run, from, run * sizeof(T));
        if (++minor == inside) minor = 0, major++;
      }
    });
  });
}

template <class T>
void put_run(Put how, bool boolean, T* at, const T* v, int64_t step, int64_t run) {
  if (how == Put::Assign && step) std::memcpy(at, v, run * sizeof(T));
  else if (how == Put::Assign) std::fill(at, at + run, *v);
  else if (how == Put::Add && !boolean && step)
    for (int64_t k = 0; k < run; k++) at[k] = plus(at[k], v[k]);
  else
    for (int64_t k = 0; k < run; k++) put(how, boolean, at + k, v[k * step]);
}

// The same places in order of positions; threads share the destinations, so that the order of additions never changes.
template <class T>
void put_all(const Places& places, Put how, bool boolean, T* y, int64_t size, const T* v, bool single) {
  const int64_t P = places.P(), R = places.R(), run = places.run;
  if (P * R * run == 0) return;
  const int64_t step = single ? 0 : 1;
  const int64_t* position = places.position.data();
  auto one = [&](int64_t p, int64_t r) {
    put_run(how, boolean, y + position[p] + places.rest[r], single ? v : v + places.at(p, r) * run, step, run);
  };
  if (R > 8 && P * run < 1 << 20) {                  // rest places never meet
    parallel(R, grain_of(P * run * 2), [&](int64_t a, int64_t b) {
      for (int64_t r = a; r < b; r++)
        for (int64_t p = 0; p < P; p++) one(p, r);
    });
    return;
  }
  const int64_t work = P * R * run;
  const int64_t shares = work < 65536 ? 1 : thread_limit();
  const int64_t share = (size + shares - 1) / shares;
  parallel(shares, 1, [&](int64_t a, int64_t b) {
    for (int64_t p = 0; p < P; p++) {
      if (shares > 1 && (position[p] < a * share || position[p] >= b * share)) continue;
      for (int64_t r = 0; r < R; r++) one(p, r);
    }
  });
}

// index_put([self,] indices..., [values]; how, flags, dims...; [number]) -> out. A number given beside values scales them.
void run_index_put(const RoutineCall& c) {
  const Put how = static_cast<Put>(c.ints[0]);
  const int64_t flags = c.ints[1];
  const bool zeros = flags & kFromZeros, number = flags & kNumber;
  const RoutineOperand& out = c.out[0];
  const int first = zeros ? 0 : 1, count = std::max(1, c.nints - 2);
  const Places places = places_of(c.op, ErrorKind::Index, out.layout, c.in + first, c.ints + 2, count, !(flags & kNoNegative));
  const DType d = out.layout->dtype;
  const int64_t size = out.layout->numel;
  if (zeros) std::memset(out.data, 0, size * itemsize(d));
  if (size == 0) return;
  const RoutineOperand* values = number ? nullptr : c.in + first + count;
  const bool single = number || values->layout->numel == 1, boolean = d == DType::Bool;
  if (how == Put::Assign && !number)
    return with_size(d, [&](auto unit) {
      typedef decltype(unit) T;
      put_all<T>(places, how, boolean, out.as<T>(), size, values->as<T>(), single);
    });
  with_any(c.op, d, [&](auto unit) {
    typedef decltype(unit) T;
    T* y = out.as<T>();
    T one = number ? number_as<T>(d, c.numbers[0]) : T();
    const T* v = number ? &one : values->as<T>();
    std::vector<T> scaled;
    if (!number && c.nnumbers) {
      const T by = number_as<T>(d, c.numbers[0]);
      scaled.assign(v, v + values->layout->numel);
      for (T& x : scaled) x = times(x, by);
      v = scaled.data();
    }
    if (flags & kWithoutSelf) {
      const T start = identity<T>(how);
      put_all<T>(places, Put::Assign, false, y, size, &start, true);
    }
    put_all<T>(places, how, boolean, y, size, v, single);
    if (flags & kMean) {
      std::vector<int64_t> counts(size, flags & kWithoutSelf ? 0 : 1);
      const int64_t each = 1;
      put_all<int64_t>(places, Put::Add, false, counts.data(), size, &each, true);
      divide_by_counts(y, counts.data(), size);
    }
  });
}

}  // namespace

RL_ROUTINE(index, run_index)
RL_ROUTINE(index_put, run_index_put)

}  // namespace rl
