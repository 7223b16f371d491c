// Native copies between any layouts and dtypes, fills and folds: what assignment, conversion and
// the tape use where no operator is needed. Takes tensors that the caller has checked; invariant:
// dst and src do not overlap partly.
#include <algorithm>
#include <tuple>

#include "convert.h"
#include "devices.h"
#include "dtype.h"
#include "half.h"
#include "tensor.h"

namespace core {
namespace {

template <class T>
struct Complex {
  using Part = T;
  T re, im;
  bool operator!=(const Complex& o) const { return re != o.re || im != o.im; }
  Complex operator+(const Complex& o) const { return {re + o.re, im + o.im}; }
};
template <class T>
constexpr bool is_complex_v = std::is_same_v<T, Complex<float>> || std::is_same_v<T, Complex<double>>;

// C++ types in the order of DType.
using Types = std::tuple<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, Half, BFloat16, float,
    double, Complex<float>, Complex<double>>;
template <int D>
using TypeOf = std::tuple_element_t<D, Types>;
static_assert(std::tuple_size_v<Types> == rl::kDTypes);

template <class T>
T value(T v) {
  return v;
}
float value(Half v) { return half_to_float(v); }
float value(BFloat16 v) { return bfloat16_to_float(v); }

template <class To, class From>
To converted(From v) {
  if constexpr (is_complex_v<From>) {
    if constexpr (is_complex_v<To>) {
      using Part = typename To::Part;
      return {static_cast<Part>(v.re), static_cast<Part>(v.im)};
    } else if constexpr (std::is_same_v<To, bool>) {
      return v.re != 0 || v.im != 0;
    } else {
      return converted<To>(v.re);  // a real dtype takes the real part
    }
  } else if constexpr (is_complex_v<To>) {
    return {static_cast<typename To::Part>(v), 0};
  } else if constexpr (std::is_same_v<To, Half>) return half_from(v);
  else if constexpr (std::is_same_v<To, BFloat16>) return bfloat16_from(v);
  else if constexpr (std::is_same_v<To, bool>) return v != From(0);
  else if constexpr (std::is_floating_point_v<From> && !std::is_floating_point_v<To>)
    return static_cast<To>(v >= -9.2233720368547758e18 && v < 9.2233720368547758e18
                               ? static_cast<int64_t>(v)
                               : INT64_MIN);
  else return static_cast<To>(v);
}

// n elements of any strides; the arguments of all loops over a row.
using Strided = void (*)(char* d, int64_t ds, const char* s, int64_t ss, int64_t n);

template <class To, class From>
void convert_row(char* d, int64_t ds, const char* s, int64_t ss, int64_t n) {
  To* to = reinterpret_cast<To*>(d);
  const From* from = reinterpret_cast<const From*>(s);
  if (ds == 1 && ss == 1) {
    if constexpr (std::is_same_v<To, From>) std::memcpy(d, s, n * sizeof(To));
    else
      for (int64_t i = 0; i < n; i++) to[i] = converted<To>(value(from[i]));
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    if constexpr (std::is_same_v<To, From>) to[i * ds] = from[i * ss];
    else to[i * ds] = converted<To>(value(from[i * ss]));
  }
}

template <class T>
void add_row(char* d, int64_t ds, const char* s, int64_t ss, int64_t n) {
  T* to = reinterpret_cast<T*>(d);
  const T* from = reinterpret_cast<const T*>(s);
  for (int64_t i = 0; i < n; i++)
    to[i * ds] = converted<T>(value(to[i * ds]) + value(from[i * ss]));
}

// What happens to a row: a copy by the element's size; a conversion by way of int64, double or
// complex double, which hold every value of the dtypes they stand for; or an addition.
struct Row {
  Strided whole = nullptr;                   // copy and addition
  Strided read = nullptr, write = nullptr;   // conversion: to and from a buffer of 16 bytes each
  int from = 0, to = 0;                      // bytes of an element

  void operator()(char* d, int64_t ds, const char* s, int64_t ss, int64_t n) const {
    if (whole) return whole(d, ds, s, ss, n);
    constexpr int64_t room = 512;
    Complex<double> buffer[room];
    char* const wide = reinterpret_cast<char*>(buffer);
    for (int64_t i = 0; i < n; i += room) {
      const int64_t count = std::min(room, n - i);
      read(wide, 1, s + i * ss * from, ss, count);
      write(d + i * ds * to, ds, wide, 1, count);
    }
  }
};

using AllDTypes = std::make_integer_sequence<int, rl::kDTypes>;

template <int... D>
Row converting(int to, int from, std::integer_sequence<int, D...>) {
  static constexpr Strided whole_read[] = {convert_row<int64_t, TypeOf<D>>...};
  static constexpr Strided real_read[] = {convert_row<double, TypeOf<D>>...};
  static constexpr Strided whole_write[] = {convert_row<TypeOf<D>, int64_t>...};
  static constexpr Strided real_write[] = {convert_row<TypeOf<D>, double>...};
  static constexpr Strided pair_read[] = {convert_row<Complex<double>, TypeOf<D>>...};
  static constexpr Strided pair_write[] = {convert_row<TypeOf<D>, Complex<double>>...};
  static constexpr int size[] = {sizeof(TypeOf<D>)...};
  if (rl::is_complex(static_cast<DType>(from)) || rl::is_complex(static_cast<DType>(to)))
    return {nullptr, pair_read[from], pair_write[to], size[from], size[to]};
  const bool real = rl::is_floating(static_cast<DType>(from));
  return {nullptr, (real ? real_read : whole_read)[from], (real ? real_write : whole_write)[to],
      size[from], size[to]};
}

Row copying(DType to, DType from) {
  if (to != from) return converting(static_cast<int>(to), static_cast<int>(from), AllDTypes());
  switch (rl::itemsize(to)) {
    case 1: return {convert_row<int8_t, int8_t>};
    case 2: return {convert_row<int16_t, int16_t>};
    case 4: return {convert_row<int32_t, int32_t>};
    case 16: return {convert_row<Complex<double>, Complex<double>>};
    default: return {convert_row<int64_t, int64_t>};
  }
}

template <int... D>
Row adding(DType d, std::integer_sequence<int, D...>) {
  static constexpr Strided rows[] = {add_row<TypeOf<D>>...};
  return {rows[static_cast<int>(d)]};
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

void run_rows(const Loops& l, const Row& row, char* d, int dsize, const char* s, int ssize,
    int64_t begin, int64_t end) {
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

void run(Tensor* dst, const Layout* src_layout, const char* s, const Row& row, bool parallel) {
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
  const Row row = copying(dst->layout->dtype, src->layout->dtype);
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
  run(dst, src->layout, data_of(src), adding(dst->layout->dtype, AllDTypes()), false);
}

void fill_number(Tensor* dst, PyObject* number) {
  if (dst->layout->device != Device::CPU)
    return device_runtime(dst->layout->device).fill(dst, number);
  char element[16];
  store_scalar(dst->layout->dtype, element, number);
  int64_t none = 0;
  Layout* scalar = rl::layout_dense(dst->layout->dtype, Device::CPU, 0, &none);
  const Row row = copying(dst->layout->dtype, dst->layout->dtype);
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
