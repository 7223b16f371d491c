// Native copies between any layouts and dtypes, fills and folds: what assignment, conversion and
// the tape use where no operator is needed. Takes tensors that the caller has checked; invariant:
// dst and src do not overlap partly.
#include "convert.h"
#include "devices.h"
#include "dtype.h"
#include "half.h"
#include "tensor.h"

namespace core {
namespace {

// C++ types by DType, with their value in a type that arithmetic knows.
template <DType D>
struct Of;
template <>
struct Of<DType::Bool> {
  using Type = bool;
};
template <>
struct Of<DType::UInt8> {
  using Type = uint8_t;
};
template <>
struct Of<DType::Int8> {
  using Type = int8_t;
};
template <>
struct Of<DType::Int16> {
  using Type = int16_t;
};
template <>
struct Of<DType::Int32> {
  using Type = int32_t;
};
template <>
struct Of<DType::Int64> {
  using Type = int64_t;
};
template <>
struct Of<DType::Float16> {
  using Type = Half;
};
template <>
struct Of<DType::BFloat16> {
  using Type = BFloat16;
};
template <>
struct Of<DType::Float32> {
  using Type = float;
};
template <>
struct Of<DType::Float64> {
  using Type = double;
};

template <class T>
T value(T v) {
  return v;
}
float value(Half v) { return half_to_float(v); }
float value(BFloat16 v) { return bfloat16_to_float(v); }

template <class To>
struct Convert {
  template <class From>
  static To from(From v) {
    if constexpr (std::is_floating_point_v<From> && !std::is_floating_point_v<To>)
      return static_cast<To>(v >= -9.2233720368547758e18 && v < 9.2233720368547758e18
                                 ? static_cast<int64_t>(v)
                                 : INT64_MIN);
    else return static_cast<To>(v);
  }
};
template <>
struct Convert<bool> {
  template <class From>
  static bool from(From v) {
    return v != From(0);
  }
};
template <>
struct Convert<Half> {
  template <class From>
  static Half from(From v) {
    return half_from(v);
  }
};
template <>
struct Convert<BFloat16> {
  template <class From>
  static BFloat16 from(From v) {
    return bfloat16_from(v);
  }
};

using Row = void (*)(char* d, int64_t ds, const char* s, int64_t ss, int64_t n);

template <DType To, DType From>
void copy_row(char* d, int64_t ds, const char* s, int64_t ss, int64_t n) {
  using A = typename Of<To>::Type;
  using B = typename Of<From>::Type;
  A* to = reinterpret_cast<A*>(d);
  const B* from = reinterpret_cast<const B*>(s);
  if constexpr (To == From) {
    if (ds == 1 && ss == 1) {
      std::memcpy(d, s, n * sizeof(A));
      return;
    }
    for (int64_t i = 0; i < n; i++) to[i * ds] = from[i * ss];
  } else if (ds == 1 && ss == 1) {
    for (int64_t i = 0; i < n; i++) to[i] = Convert<A>::from(value(from[i]));
  } else {
    for (int64_t i = 0; i < n; i++) to[i * ds] = Convert<A>::from(value(from[i * ss]));
  }
}

template <DType D>
void add_row(char* d, int64_t ds, const char* s, int64_t ss, int64_t n) {
  using A = typename Of<D>::Type;
  A* to = reinterpret_cast<A*>(d);
  const A* from = reinterpret_cast<const A*>(s);
  for (int64_t i = 0; i < n; i++)
    to[i * ds] = Convert<A>::from(value(to[i * ds]) + value(from[i * ss]));
}

template <int To, int... From>
Row pick_from(int from, std::integer_sequence<int, From...>) {
  static const Row rows[] = {copy_row<static_cast<DType>(To), static_cast<DType>(From)>...};
  return rows[from];
}
template <int... To>
Row pick(int to, int from, std::integer_sequence<int, To...>) {
  using Each = Row (*)(int);
  static const Each each[] = {
      [](int f) { return pick_from<To>(f, std::make_integer_sequence<int, rl::kDTypes>()); }...};
  return each[to](from);
}
template <int... D>
Row pick_add(int d, std::integer_sequence<int, D...>) {
  static const Row rows[] = {add_row<static_cast<DType>(D)>...};
  return rows[d];
}

// The loops: dims of size 1 dropped, the smallest destination stride innermost, neighbours joined
// where both run on.
struct Loops {
  int n = 0;
  int64_t size[rl::kMaxDims], d[rl::kMaxDims], s[rl::kMaxDims];

  Loops(const Layout* dst, const Layout* src) {
    int64_t raw_size[rl::kMaxDims], raw_d[rl::kMaxDims], raw_s[rl::kMaxDims];
    int count = 0;
    for (int i = 0; i < dst->ndim; i++) {
      if (dst->dims[i] == 1) continue;
      int k = i - (dst->ndim - src->ndim);
      int64_t stride = k < 0 || src->dims[k] == 1 ? 0 : src->strides()[k];
      int at = count++;
      while (at > 0 && raw_d[at - 1] < dst->strides()[i]) {
        raw_size[at] = raw_size[at - 1];
        raw_d[at] = raw_d[at - 1];
        raw_s[at] = raw_s[at - 1];
        at--;
      }
      raw_size[at] = dst->dims[i];
      raw_d[at] = dst->strides()[i];
      raw_s[at] = stride;
    }
    for (int i = 0; i < count; i++) {
      if (n && d[n - 1] == raw_d[i] * raw_size[i] && s[n - 1] == raw_s[i] * raw_size[i]) {
        size[n - 1] *= raw_size[i];
        d[n - 1] = raw_d[i];
        s[n - 1] = raw_s[i];
      } else {
        size[n] = raw_size[i];
        d[n] = raw_d[i];
        s[n] = raw_s[i];
        n++;
      }
    }
    if (!n) {
      size[0] = 1;
      d[0] = s[0] = 1;
      n = 1;
    }
  }
};

void run_rows(const Loops& l, Row row, char* d, int dsize, const char* s, int ssize, int64_t begin,
    int64_t end) {
  // begin and end count rows; a row is the innermost loop
  int64_t index[rl::kMaxDims] = {0};
  int64_t od = 0, os = 0, rest = begin;
  for (int i = l.n - 2; i >= 0; i--) {
    index[i] = rest % l.size[i];
    rest /= l.size[i];
    od += index[i] * l.d[i];
    os += index[i] * l.s[i];
  }
  for (int64_t r = begin; r < end; r++) {
    row(d + od * dsize, l.d[l.n - 1], s + os * ssize, l.s[l.n - 1], l.size[l.n - 1]);
    for (int i = l.n - 2; i >= 0; i--) {
      od += l.d[i];
      os += l.s[i];
      if (++index[i] < l.size[i]) break;
      od -= l.d[i] * l.size[i];
      os -= l.s[i] * l.size[i];
      index[i] = 0;
    }
  }
}

void run(Tensor* dst, const Layout* src_layout, const char* s, Row row, bool parallel) {
  if (!dst->layout->numel) return;
  Loops loops(dst->layout, src_layout);
  int64_t rows = 1;
  for (int i = 0; i < loops.n - 1; i++) rows *= loops.size[i];
  struct Job {
    const Loops* l;
    Row row;
    char* d;
    const char* s;
    int dsize, ssize;
    int64_t whole;
  };
  Job job{&loops, row, data_of(dst), s, rl::itemsize(dst->layout->dtype),
      rl::itemsize(src_layout->dtype), 0};
  if (!parallel || dst->layout->numel < 65536)
    return run_rows(loops, row, job.d, job.dsize, job.s, job.ssize, 0, rows);
  if (rows == 1) {  // one long row: cut it
    job.whole = loops.size[0];
    rl::parallel_for(
        job.whole, 32768,
        [](void* c, int64_t b, int64_t e) {
          const Job* j = static_cast<const Job*>(c);
          j->row(j->d + b * j->l->d[0] * j->dsize, j->l->d[0], j->s + b * j->l->s[0] * j->ssize,
              j->l->s[0], e - b);
        },
        &job);
    return;
  }
  int64_t grain = 32768 / loops.size[loops.n - 1] + 1;
  rl::parallel_for(
      rows, grain,
      [](void* c, int64_t b, int64_t e) {
        const Job* j = static_cast<const Job*>(c);
        run_rows(*j->l, j->row, j->d, j->dsize, j->s, j->ssize, b, e);
      },
      &job);
}

}  // namespace

bool broadcasts_to(const Layout* from, const Layout* to) {
  if (from->ndim > to->ndim) {
    for (int i = 0; i < from->ndim - to->ndim; i++)
      if (from->dims[i] != 1) return false;
  }
  for (int i = 0; i < from->ndim && i < to->ndim; i++) {
    int64_t a = from->dims[from->ndim - 1 - i], b = to->dims[to->ndim - 1 - i];
    if (a != b && a != 1) return false;
  }
  return true;
}

void copy_into(Tensor* dst, Tensor* src) {
  const Device to = dst->layout->device, from = src->layout->device;
  if (to != Device::CPU || from != Device::CPU) {
    const bool meta = to == Device::Meta || from == Device::Meta;
    return device_runtime(meta ? Device::Meta : to != Device::CPU ? to : from).copy(dst, src);
  }
  Row row = pick(static_cast<int>(dst->layout->dtype), static_cast<int>(src->layout->dtype),
      std::make_integer_sequence<int, rl::kDTypes>());
  Layout* l = src->layout;
  if (l->ndim <= dst->layout->ndim) return run(dst, l, data_of(src), row, true);
  int extra = l->ndim - dst->layout->ndim;  // leading dims of size 1
  Layout* narrow = rl::layout_intern(
      l->dtype, l->device, dst->layout->ndim, l->shape() + extra, l->strides() + extra);
  run(dst, narrow, data_of(src), row, true);
  rl::decref(narrow);
}

void add_into(Tensor* dst, Tensor* src) {
  if (dst->layout->device != Device::CPU) return device_runtime(dst->layout->device).add(dst, src);
  run(dst, src->layout, data_of(src),
      pick_add(
          static_cast<int>(dst->layout->dtype), std::make_integer_sequence<int, rl::kDTypes>()),
      false);
}

void fill_number(Tensor* dst, PyObject* number) {
  if (dst->layout->device != Device::CPU)
    return device_runtime(dst->layout->device).fill(dst, number);
  char element[8];
  store_scalar(dst->layout->dtype, element, number);
  int64_t none = 0;
  Layout* scalar = rl::layout_dense(dst->layout->dtype, Device::CPU, 0, &none);
  Row row = pick(static_cast<int>(dst->layout->dtype), static_cast<int>(dst->layout->dtype),
      std::make_integer_sequence<int, rl::kDTypes>());
  run(dst, scalar, element, row, true);
  rl::decref(scalar);
}

void fill_one(Tensor* dst) {
  Ref one = checked(PyLong_FromLong(1));
  fill_number(dst, one.py());
}

Own<Tensor> contiguous_copy(Tensor* src, DType dtype) {
  Own<Tensor> made =
      tensor_dense(dtype, src->layout->ndim, src->layout->dims, src->layout->device);
  copy_into(made.get(), src);
  return made;
}

Own<Tensor> dense_copy(Tensor* src) {
  if (!src->layout->dense) return contiguous_copy(src, src->layout->dtype);
  rl::incref(src->layout);
  Own<Tensor> made = tensor_empty(src->layout);
  if (src->layout->device != Device::CPU) {
    copy_into(made.get(), src);
    return made;
  }
  std::memcpy(
      data_of(made.get()), data_of(src), src->layout->numel * rl::itemsize(src->layout->dtype));
  return made;
}

}  // namespace core
