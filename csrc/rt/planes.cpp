// A layout and its spatial dims -> planes.
#include "planes.h"

#include <cstdlib>
#include <cstring>

#include "error.h"
#include "parallel.h"

namespace rl {
namespace {

// Whether dims [from, to) are one dim, and its stride.
bool merges(const Layout* l, int from, int to, int64_t* stride) {
  *stride = 1;
  bool first = true;
  int64_t next = 0;
  for (int d = to - 1; d >= from; --d) {
    if (l->shape()[d] == 1) continue;
    if (first)
      *stride = l->strides()[d];
    else if (l->strides()[d] != next)
      return false;
    first = false;
    next = l->strides()[d] * l->shape()[d];
  }
  return true;
}

template <class T>
void gather(const Layout* l, const void* from, void* to) {
  const T* f = static_cast<const T*>(from);
  T* t = static_cast<T*>(to);
  parallel(l->numel, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t at = 0, rest = i;
      for (int d = l->ndim - 1; d >= 0; --d) at += rest % l->shape()[d] * l->strides()[d], rest /= l->shape()[d];
      t[i] = f[at];
    }
  });
}

}  // namespace

Planes planes_of(const RoutineOperand& x, int nd, bool readable) {
  const Layout* l = x.layout;
  const int at = l->ndim - nd - 1;  // of the channels; -1: there are none
  Planes p = {};
  p.nd = nd, p.n = p.c = p.area = 1;
  for (int d = 0; d < 3; ++d) p.sizes[d] = d < 3 - nd ? 1 : l->shape()[l->ndim - 3 + d];
  for (int d = 0; d < l->ndim; ++d) (d < at ? p.n : d == at ? p.c : p.area) *= l->shape()[d];
  p.data = x.data;
  if (l->numel == 0) return p;
  const bool whole = merges(l, 0, at > 0 ? at : 0, &p.image) && merges(l, at + 1, l->ndim, &p.step);
  if (whole) {
    p.channel = at < 0 ? 0 : l->strides()[at];
    if (p.c == 1) p.channel = p.area;
    if (p.area == 1) p.step = p.channel == 1 ? p.c : 1;
    return p;
  }
  if (!readable) fail(ErrorKind::Runtime, "[planes] an output's pixels are not one dim");
  const int64_t size = itemsize(l->dtype);
  void* memory = std::malloc(static_cast<size_t>(l->numel * size));
  if (!memory) fail(ErrorKind::Memory, "[planes] cannot allocate %lld bytes", static_cast<long long>(l->numel * size));
  p.copy.reset(memory, std::free);
  p.data = memory;
  size == 8 ? gather<int64_t>(l, x.data, memory) : size == 4 ? gather<int32_t>(l, x.data, memory)
  : size == 2 ? gather<int16_t>(l, x.data, memory) : gather<int8_t>(l, x.data, memory);
  p.step = 1, p.channel = p.area, p.image = p.area * p.c;
  return p;
}

}  // namespace rl
