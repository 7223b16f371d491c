// Tests of the runtime: `test_rt [--openblas <file>] [--onednn <file>]`. Prints one line a group; a failed check
// says where and ends with status 1.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "error.h"
#include "gemm.h"
#include "kernels.h"
#include "layout.h"
#include "storage.h"
#include "threads.h"
#include "views.h"

using namespace rl;
typedef std::vector<int64_t> Ints;

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      std::printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);      \
      std::exit(1);                                                            \
    }                                                                          \
  } while (0)

static void throws(ErrorKind kind, const char* text, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    if (e.kind == kind && std::strstr(e.what(), text)) return;
    std::printf("wrong error: %s (expected ...%s...)\n", e.what(), text);
    std::exit(1);
  }
  std::printf("no error, expected: %s\n", text);
  std::exit(1);
}

static uint64_t seed = 1;
static int64_t random_below(int64_t n) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<int64_t>((seed >> 33) % static_cast<uint64_t>(n));
}

static Layout* dense(const Ints& shape, DType d = DType::Float32) {
  return layout_dense(d, Device::CPU, static_cast<int>(shape.size()), shape.data());
}
static Layout* strided(const Ints& shape, const Ints& strides, DType d = DType::Float32) {
  return layout_intern(d, Device::CPU, static_cast<int>(shape.size()), shape.data(), strides.data());
}
static Ints strides_of(const Layout* x) { return Ints(x->strides(), x->strides() + x->ndim); }
static Ints shape_of(const Layout* x) { return Ints(x->shape(), x->shape() + x->ndim); }

// ---- layouts, allocator, views

static void test_layouts() {
  const int64_t before = layout_count();
  Layout* a = dense({2, 3});
  Layout* b = dense({2, 3});
  CHECK(a == b && a->refs == 2 && a->contiguous && a->dense && a->numel == 6);
  Layout* c = dense({2, 3}, DType::Float64);
  CHECK(c != a);
  Layout* like = layout_like(a, DType::Float64);
  CHECK(like == c);
  Layout* t = strided({3, 2}, {1, 3});
  CHECK(!t->contiguous && t->dense);
  Layout* gap = strided({3, 2}, {4, 1});
  CHECK(!gap->contiguous && !gap->dense);
  Layout* broadcast = strided({3, 2}, {0, 1});
  CHECK(!broadcast->dense);
  Layout* one = strided({1, 2, 1}, {77, 1, 9});
  CHECK(one->contiguous && one->dense);
  Layout* empty = dense({0, 3});
  CHECK(empty->contiguous && empty->numel == 0 && strides_of(empty) == Ints({3, 1}));
  Layout* scalar = dense({});
  CHECK(scalar->numel == 1 && scalar->contiguous);
  int64_t low, high;
  layout_extent(gap, &low, &high);
  CHECK(low == 0 && high == 10);
  layout_extent(empty, &low, &high);
  CHECK(low == 0 && high == 0);
  throws(ErrorKind::Runtime, "Storage size calculation overflowed with sizes=[1099511627776, 1099511627776]",
         [] { dense({int64_t{1} << 40, int64_t{1} << 40}); });
  throws(ErrorKind::Runtime, "overflowed", [] { dense({int64_t{1} << 61}); });
  throws(ErrorKind::Runtime, "overflowed", [] { strided({3}, {INT64_MAX / 2}); });
  throws(ErrorKind::Runtime, "negative dimension -1: [2, -1]", [] { dense({2, -1}); });
  Layout* wide = strided({int64_t{1} << 61}, {0});    // reaches one element
  std::vector<Layout*> many;
  for (int64_t i = 0; i < 5000; ++i) many.push_back(dense({i, i + 1}));
  for (int64_t i = 0; i < 5000; ++i) {
    Layout* again = dense({i, i + 1});
    CHECK(again == many[static_cast<size_t>(i)]);
    decref(again);
  }
  for (Layout* x : many) decref(x);
  for (Layout* x : {a, b, c, like, t, gap, broadcast, one, empty, scalar, wide}) decref(x);
  CHECK(layout_count() == before);
  std::puts("layouts ok");
}

static void test_allocator() {
  allocator_trim(0);
  const AllocatorStats start = allocator_stats();
  CHECK(start.in_use == 0 && start.cached == 0);
  for (const int64_t size : {0, 1, 64, 65, 1000, 1 << 20, (1 << 20) + 1, 3 << 20, 100 << 20}) {
    Storage* s = storage_alloc(size);
    CHECK(s->nbytes == size && reinterpret_cast<uintptr_t>(s->data) % 64 == 0);
    std::memset(s->data, 1, static_cast<size_t>(size));
    const int64_t block = allocator_stats().in_use;
    CHECK(block >= size && (size <= 1 << 20 || block <= size + size / 8 + 64));
    void* data = s->data;
    const int64_t hits = allocator_stats().hits;
    decref(s);
    CHECK(allocator_stats().in_use == 0);
    s = storage_alloc(size);
    CHECK(s->data == data && allocator_stats().hits == hits + 1);     // warm
    decref(s);
  }
  CHECK(allocator_stats().peak >= 100 << 20);
  allocator_reset_peak();
  CHECK(allocator_stats().peak == 0);
  CHECK(allocator_trim(1 << 20) > 0 && allocator_stats().cached <= 1 << 20);
  allocator_trim(0);
  CHECK(allocator_stats().cached == 0);
  for (int64_t size = 1; size < int64_t{1} << 32; size = size * 9 / 8 + 1) decref(storage_alloc(size));
  for (int i = 0; i < 20; ++i) decref(storage_alloc(int64_t{1} << 34 << (i % 2)));     // cached, and too large to be
  allocator_trim(0);
  allocator_set_limit(10 << 20);
  Storage* kept = storage_alloc(4 << 20);
  decref(storage_alloc(5 << 20));
  Storage* more = storage_alloc(6 << 20);            // fits once the cached block is gone
  throws(ErrorKind::Memory, "cannot allocate 2.0 MiB (a block of 2.0 MiB): 10.0 MiB in use, 0 bytes cached, limit 10.0 MiB",
         [] { storage_alloc(2 << 20); });
  decref(kept);
  decref(more);
  allocator_set_limit(0);
  throws(ErrorKind::Memory, "the system has no more", [] { storage_alloc(int64_t{1} << 60); });
  throws(ErrorKind::Runtime, "-5 bytes", [] { storage_alloc(-5); });
  int freed = 0;
  Storage* e = storage_external(&freed, 4, [](void* p) { ++*static_cast<int*>(p); }, &freed);
  incref(e);
  decref(e);
  CHECK(freed == 0);
  decref(e);
  CHECK(freed == 1);
  allocator_trim(0);
  std::puts("allocator ok");
}

static void test_views() {
  const int64_t before = layout_count();
  Layout* x = dense({4, 3, 2});
  std::vector<Layout*> made = {x};
  const auto view = [&](Layout* v, const Ints& shape, const Ints& strides) {
    CHECK(v && shape_of(v) == shape && strides_of(v) == strides);
    made.push_back(v);
    return v;
  };
  const auto reshape = [](Layout* l, const Ints& shape, bool* ok) {
    return view_reshape("view", l, static_cast<int>(shape.size()), shape.data(), ok);
  };
  int64_t at = 0;
  bool ok;
  view(view_select("select", x, 1, -1, &at), {4, 2}, {6, 1});
  CHECK(at == 4);
  at = 0;
  view(view_slice("slice", x, 0, true, 1, true, -1, 2, &at), {1, 3, 2}, {12, 2, 1});
  CHECK(at == 6);
  view(view_slice("slice", x, 0, true, 100, true, 200, 1, &at), {0, 3, 2}, {6, 2, 1});
  view(view_slice("slice", x, 0, true, -100, false, 0, 3, &at), {2, 3, 2}, {18, 2, 1});
  const Ints order = {2, 0, -2};
  Layout* p = view(view_permute("permute", x, 3, order.data()), {2, 4, 3}, {1, 6, 2});
  view(view_transpose("transpose", x, 0, -1), {2, 3, 4}, {1, 2, 6});
  view(view_unsqueeze("unsqueeze", x, -1), {4, 3, 2, 1}, {6, 2, 1, 1});
  view(view_unsqueeze("unsqueeze", x, 0), {1, 4, 3, 2}, {24, 6, 2, 1});
  view(view_squeeze("squeeze", made.back(), false, 0), {4, 3, 2}, {6, 2, 1});
  view(view_squeeze("squeeze", x, true, 0), {4, 3, 2}, {6, 2, 1});
  view(reshape(x, {2, -1, 6}, &ok), {2, 2, 6}, {12, 6, 1});
  view(reshape(p, {2, 12}, &ok), {2, 12}, {1, 2});
  CHECK(reshape(p, {24}, &ok) == nullptr && !ok);
  view(reshape(x, {1, 4, 1, 6, 1}, &ok), {1, 4, 1, 6, 1}, {24, 6, 6, 1, 1});
  Layout* scalar = view(dense({}), {}, {});
  view(reshape(scalar, {1, 1}, &ok), {1, 1}, {1, 1});
  Layout* empty = view(dense({0, 3}), {0, 3}, {3, 1});
  view(reshape(empty, {3, 0}, &ok), {3, 0}, {1, 1});
  Layout* row = view(dense({1, 3}), {1, 3}, {3, 1});
  const Ints big = {5, 4, 3}, keep = {2, -1, 3}, bad = {2, 2};
  view(view_expand("expand", row, 3, big.data()), {5, 4, 3}, {0, 0, 1});
  view(view_expand("expand", row, 3, keep.data()), {2, 1, 3}, {0, 3, 1});
  view(view_as_strided("as_strided", x, 2, bad.data(), bad.data()), {2, 2}, {2, 2});
  throws(ErrorKind::Runtime, "(2) must match the existing size (3)", [&] { view_expand("e", row, 2, bad.data()); });
  throws(ErrorKind::Index, "[s] index 4 out of range for tensor of size [4, 3, 2] at dimension 0",
         [&] { view_select("s", x, 0, 4, &at); });
  throws(ErrorKind::Index, "expected to be in range of [-3, 2], but got 3", [&] { wrap_dim("op", 3, 3); });
  throws(ErrorKind::Runtime, "shape '[5]' is invalid for input of size 24", [&] { reshape(x, {5}, &ok); });
  throws(ErrorKind::Runtime, "only one dimension", [&] { reshape(x, {-1, -1}, &ok); });
  throws(ErrorKind::Runtime, "ambiguous", [&] { reshape(empty, {-1, 0}, &ok); });
  throws(ErrorKind::Runtime, "step must be positive", [&] { view_slice("s", x, 0, false, 0, false, 0, 0, &at); });
  for (Layout* l : made) decref(l);

  // A reshaped view reaches the same elements in the same order.
  for (int round = 0; round < 3000; ++round) {
    Ints shape, strides, target;
    int64_t step = 1;
    for (int64_t d = random_below(5); d > 0; --d) {
      shape.insert(shape.begin(), 1 + random_below(3));
      strides.insert(strides.begin(), random_below(6) ? step : 0);
      step = step * shape[0] + (random_below(3) == 0);
    }
    Layout* l = strided(shape, strides);
    int64_t left = l->numel;
    while (left > 1) {
      int64_t f = 2 + random_below(left - 1);
      while (left % f) --f;
      target.push_back(f);
      left /= f;
      if (random_below(8) == 0 && target.size() < 8) target.push_back(1);
    }
    Layout* v = reshape(l, target, &ok);
    if (v) {
      for (int64_t i = 0; i < l->numel; ++i) {
        const auto place = [&](const Layout* y) {
          int64_t rest = i, sum = 0;
          for (int d = y->ndim - 1; d >= 0; rest /= y->shape()[d--]) sum += rest % y->shape()[d] * y->strides()[d];
          return sum;
        };
        CHECK(place(l) == place(v));
      }
      decref(v);
    } else {
      CHECK(!l->contiguous);
    }
    decref(l);
  }
  CHECK(layout_count() == before);
  std::puts("views ok");
}

// ---- loops: kernels written as the emitter would

struct Axes {                 // of one buffer
  const int64_t* n;
  int axes, b;
  int64_t at(int64_t i, int64_t j, int64_t k = 0, int64_t l = 0) const {
    const int64_t* s = n + axes * (1 + b);
    return i * s[0] + j * s[1] + k * s[2] + (axes > 3 ? l * s[3] : 0);
  }
};
#define LOOPS3 for (int64_t i = 0; i < n[0]; ++i) for (int64_t j = 0; j < n[1]; ++j) for (int64_t k = 0; k < n[2]; ++k)

static int64_t add_kernel(void* const* p, const int64_t* n, const Number*) {
  const Axes a{n, 3, 0}, b{n, 3, 1}, c{n, 3, 2};
  LOOPS3 static_cast<float*>(p[2])[c.at(i, j, k)] =
      static_cast<float*>(p[0])[a.at(i, j, k)] + 2 * static_cast<float*>(p[1])[b.at(i, j, k)];
  return 0;
}
static int64_t copy_kernel(void* const* p, const int64_t* n, const Number*) {
  const int64_t *a = n + 3, *c = n + 6;
  for (int64_t i = 0; i < n[0]; ++i)
    for (int64_t j = 0; j < n[1]; ++j) {
      const float* from = static_cast<float*>(p[0]) + i * a[0] + j * a[1];
      float* to = static_cast<float*>(p[1]) + i * c[0] + j * c[1];
      for (int64_t k = 0; k < n[2]; ++k) to[k * c[2]] = from[k * a[2]];
    }
  return 0;
}
static int64_t count_kernel(void* const* p, const int64_t* n, const Number*) {
  const Axes out{n, 3, 0}, counter{n, 3, 1};
  LOOPS3 static_cast<int64_t*>(p[0])[out.at(i, j, k)] = n[9] + counter.at(i, j, k);
  return 0;
}
// x, s (one a row) -> x + s, and a fold that tells the order
static int64_t row_kernel(void* const* p, const int64_t* n, const Number*) {
  const Axes x{n, 4, 0}, s{n, 4, 1}, y{n, 4, 2}, f{n, 4, 3};
  for (int64_t i = 0; i < n[0]; ++i)
    for (int64_t j = 0; j < n[1]; ++j) {
      double fold = 1;
      for (int64_t k = 0; k < n[2]; ++k)
        for (int64_t l = 0; l < n[3]; ++l) {
          const float v = static_cast<float*>(p[0])[x.at(i, j, k, l)];
          fold = fold * 0.7 + v;
          static_cast<float*>(p[2])[y.at(i, j, k, l)] = v + static_cast<float*>(p[1])[s.at(i, j, k, l)];
        }
      static_cast<double*>(p[3])[f.at(i, j)] = fold;
    }
  return 0;
}
template <bool kInto>
static int64_t table_kernel(void* const* p, const int64_t* n, const Number*) {
  const Axes a{n, 4, 0}, index{n, 4, 1}, c{n, 4, 2};
  for (int64_t i = 0; i < n[0]; ++i)
    for (int64_t j = 0; j < n[1]; ++j) {
      const int64_t v = static_cast<int64_t*>(p[1])[index.at(i, j)];
      if (v < 0 || v >= n[3]) return 1 + (v < 0 ? -2 * v - 1 : 2 * v);
      if (kInto)
        static_cast<float*>(p[2])[c.at(i, j, 0, v)] += static_cast<float*>(p[0])[a.at(i, j)];
      else
        static_cast<float*>(p[2])[c.at(i, j)] = static_cast<float*>(p[0])[a.at(i, j, 0, v)];
    }
  return 0;
}

static const KernelEntry kAdd = {"add", add_kernel, 3, 0, 2, 1, 0, 0, 100000, ""};
static const KernelEntry kCopy = {"copy", copy_kernel, 3, 0, 1, 1, 0, 0, 1, ""};
static const KernelEntry kCount = {"count", count_kernel, 3, 0, 0, 1, 0, 1 << 30, 100000, ""};
static const KernelEntry kRow = {"row", row_kernel, 2, 2, 2, 2, 0, 0, 100000, ""};
static const KernelEntry kTable = {"table", table_kernel<false>, 2, 2, 2, 1, 0, 0, 100000, ""};
static const KernelEntry kInto = {"into", table_kernel<true>, 2, 2, 2, 1, 0, 1, 100000, ""};

static Recipe recipe_of(const KernelEntry& k, Rule rule, Output out = Output::Same, DType d = DType::Float32) {
  Recipe r = {};
  r.kernel = &k;
  r.rule = rule;
  r.ninputs = k.inputs;
  r.noutputs = k.outputs;
  r.out[0] = out;
  r.out_dtype[0] = d;
  return r;
}

// Walks a shape in C order.
static void each(const Ints& shape, const std::function<void(const Ints&)>& body) {
  int64_t numel = 1;
  for (int64_t s : shape) numel *= s;
  Ints at(shape.size());
  for (int64_t i = 0; i < numel; ++i) {
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) at[d] = rest % shape[d];
    body(at);
  }
}
static int64_t place(const Layout* x, const Ints& at) {      // right-aligned, broadcast
  int64_t sum = 0;
  const size_t shift = at.size() - x->ndim;
  for (int d = 0; d < x->ndim; ++d) sum += x->shape()[d] == 1 ? 0 : at[d + shift] * x->strides()[d];
  return sum;
}

// A layout of that shape with random order of dims, gaps, and dims of size 1 (never those in `keep`).
static Layout* random_layout(const Ints& shape, bool may_broadcast, DType d = DType::Float32) {
  const size_t n = shape.size(), drop = may_broadcast && random_below(4) == 0 ? random_below(static_cast<int64_t>(n) + 1) : 0;
  Ints s(shape.begin() + static_cast<int64_t>(drop), shape.end()), strides(s.size());
  if (may_broadcast) for (int64_t& v : s) if (random_below(5) == 0) v = 1;
  std::vector<size_t> order(s.size());
  for (size_t i = 0; i < s.size(); ++i) order[i] = s.size() - 1 - i;
  if (random_below(2)) for (size_t i = s.size(); i > 1; --i) std::swap(order[i - 1], order[random_below(static_cast<int64_t>(i))]);
  int64_t step = 1;
  const bool gaps = random_below(3) == 0;
  for (size_t i : order) {
    strides[i] = step;
    step = step * std::max<int64_t>(s[i], 1) + (gaps ? random_below(3) : 0);
  }
  return strided(s, strides, d);
}

template <class T>
static std::vector<T> filled(const Layout* x) {
  int64_t low, high;
  layout_extent(x, &low, &high);
  std::vector<T> v(static_cast<size_t>(high) + 1);
  for (T& e : v) e = static_cast<T>(random_below(1000)) / 8;
  return v;
}
static Ints random_shape(int64_t most_dims, int64_t most) {
  Ints shape(static_cast<size_t>(random_below(most_dims + 1)));
  for (int64_t& s : shape) s = random_below(10) ? 1 + random_below(most) : random_below(3);
  return shape;
}

static void same_strides(const std::vector<Layout*>& in, const Ints& expected) {
  Recipe r = recipe_of(in.size() == 2 ? kAdd : kCopy, Rule::Broadcast);
  Layout* out;
  LoopPlan* plan = loop_plan("same", r, in.data(), nullptr, nullptr, 0, &out);
  CHECK(strides_of(out) == expected);
  decref(out);
  std::free(plan);
  for (Layout* l : in) decref(l);
}

static void test_loops() {
  const int64_t before = layout_count();
  set_num_threads(3);
  // Strides as PyTorch 2.13 gives them.
  same_strides({strided({3, 1, 4}, {1, 3, 3})}, {1, 3, 3});
  same_strides({strided({3, 1, 4}, {1, 3, 3}), dense({3, 5, 4})}, {20, 4, 1});
  same_strides({dense({4}), strided({5, 3, 4}, {0, 4, 1})}, {12, 4, 1});
  same_strides({strided({1, 4, 3}, {1, 5, 20})}, {1, 1, 4});
  same_strides({strided({2, 3, 4, 5}, {60, 1, 15, 3})}, {60, 1, 15, 3});
  same_strides({strided({2, 3, 4, 5}, {60, 1, 15, 3}), dense({3, 1, 1})}, {60, 1, 15, 3});
  same_strides({strided({4, 3}, {1, 4}), dense({4, 3})}, {1, 4});
  same_strides({strided({4, 3}, {2, 16})}, {1, 4});

  for (int round = 0; round < 3000; ++round) {
    const Ints shape = random_shape(5, round % 10 ? 4 : round % 100 ? 9 : 40);
    int64_t numel = 1;
    for (int64_t s : shape) numel *= s;
    if (numel > 300000) continue;
    Layout* a = random_layout(shape, false);
    Layout* b = random_layout(shape, true);
    Layout* in[2] = {a, b};
    if (random_below(2)) std::swap(in[0], in[1]);
    Layout* given = random_below(3) == 0 ? random_layout(shape, false) : nullptr;
    Layout* out;
    LoopPlan* plan = loop_plan("add", recipe_of(kAdd, Rule::Broadcast), in, given ? &given : nullptr, nullptr, 0, &out);
    CHECK(shape_of(out) == shape && (given ? out == given : out->dense));
    std::vector<float> va = filled<float>(in[0]), vb = filled<float>(in[1]), vo = filled<float>(out);
    void* p[] = {va.data(), vb.data(), vo.data()};
    CHECK(loop_run(plan, p, nullptr) == 0);
    each(shape, [&](const Ints& at) {
      CHECK(vo[place(out, at)] == va[place(in[0], at)] + 2 * vb[place(in[1], at)]);
    });
    std::free(plan);

    // Random numbers: the element's place in C order, whatever the output's strides.
    Layout* counted = random_layout(shape, false, DType::Int64);
    Layout* got;
    plan = loop_plan("count", recipe_of(kCount, Rule::Sized, Output::Same, DType::Int64), nullptr, &counted, shape.data(),
                     static_cast<int>(shape.size()), &got);
    std::vector<int64_t> vc = filled<int64_t>(counted);
    void* pc[] = {vc.data()};
    loop_run(plan, pc, nullptr);
    int64_t next = 0;
    each(shape, [&](const Ints& at) { CHECK(vc[place(counted, at)] == next); ++next; });
    std::free(plan);
    for (Layout* l : {a, b, out, counted, got}) decref(l);
    if (given) decref(given);
  }

  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const Ints shape = random_shape(4, round % 10 ? 4 : 12);
    const int n = static_cast<int>(shape.size());
    const uint32_t rows = static_cast<uint32_t>(random_below(1 << n));
    const bool dropped = random_below(2);
    Ints kept = shape, reduced;
    for (int d = 0; d < n; ++d) {
      if (rows >> d & 1) kept[d] = 1;
      else reduced.push_back(shape[d]);
    }
    Layout* x = random_layout(shape, false);
    Layout* s = random_layout(dropped ? reduced : kept, false);
    Layout *in[2] = {x, s}, *out[2];
    Recipe r = recipe_of(kRow, Rule::Rows);
    r.rows = rows;
    r.in[1] = Operand::PerRow;
    r.out[1] = dropped ? Output::DropRow : Output::KeepRow;
    r.out_dtype[1] = DType::Float64;
    LoopPlan* plan = nullptr;
    try {
      plan = loop_plan("row", r, in, nullptr, nullptr, 0, out);
    } catch (const Error& e) {
      CHECK(e.kind == ErrorKind::NotImplemented && !x->contiguous);
      ++refused;
    }
    if (plan) {
      CHECK(shape_of(out[1]) == (dropped ? reduced : kept) && out[1]->contiguous);
      std::vector<float> vx = filled<float>(x), vs = filled<float>(s), vo = filled<float>(out[0]);
      std::vector<double> vf = filled<double>(out[1]), folds(vf.size(), 1.0);
      void* p[] = {vx.data(), vs.data(), vo.data(), vf.data()};
      loop_run(plan, p, nullptr);
      const auto row = [&](const Ints& at) {
        Ints to;
        for (int d = 0; d < n; ++d)
          if (!(rows >> d & 1)) to.push_back(at[d]);
          else if (!dropped) to.push_back(0);
        return to;
      };
      each(shape, [&](const Ints& at) {
        CHECK(vo[place(out[0], at)] == vx[place(x, at)] + vs[place(s, row(at))]);
        double& f = folds[place(out[1], row(at))];
        f = f * 0.7 + vx[place(x, at)];
      });
      each(shape_of(out[1]), [&](const Ints& at) { CHECK(vf[place(out[1], at)] == folds[place(out[1], at)]); });
      std::free(plan);
      decref(out[0]);
      decref(out[1]);
    }
    decref(x);
    decref(s);
  }
  CHECK(refused < 200);

  for (int round = 0; round < 3000; ++round) {
    const Ints is = random_shape(3, 5), ds = random_shape(2, 7);
    const int64_t size = 1 + random_below(9);
    Ints ws = {size}, os = is;
    for (int64_t d : ds) ws.push_back(d), os.push_back(d);
    Layout* index = random_layout(is, false, DType::Int64);
    std::vector<int64_t> vi = filled<int64_t>(index);
    for (int64_t& v : vi) v = random_below(size);
    const bool into = random_below(2), wrong = random_below(5) == 0 && index->numel && ds.empty();
    Layout* data = random_layout(into ? os : ws, false);
    Layout *in[2] = {data, index}, *out;
    LoopPlan* plan = loop_plan("embedding", recipe_of(into ? kInto : kTable, into ? Rule::IntoTable : Rule::Table), in,
                               nullptr, &size, into ? 1 : 0, &out);
    CHECK(shape_of(out) == (into ? ws : os) && out->contiguous && plan->zero_out == into);
    std::vector<float> vd = filled<float>(data), vo = filled<float>(out), expected(vo.size());
    void* p[] = {vd.data(), vi.data(), vo.data()};
    if (wrong) {
      vi[place(index, Ints(is.size(), 0))] = -3;
      CHECK(loop_run(plan, p, nullptr) == 1 + 5);
    } else {
      CHECK(loop_run(plan, p, nullptr) == 0);
      each(os, [&](const Ints& at) {
        Ints i(at.begin(), at.begin() + static_cast<int64_t>(is.size())), w(at.begin() + static_cast<int64_t>(is.size()), at.end());
        w.insert(w.begin(), vi[place(index, i)]);
        if (into) expected[place(out, w)] += vd[place(data, at)];
        else CHECK(vo[place(out, at)] == vd[place(data, w)]);
      });
      if (into) for (int64_t i = 0; i < out->numel; ++i) CHECK(vo[i] == expected[i]);
    }
    std::free(plan);
    for (Layout* l : {index, data, out}) decref(l);
  }

  Layout *x = dense({2, 3}), *y = dense({2, 4}), *z = dense({3}), *out, *in[2] = {x, y}, *in2[2] = {x, z};
  throws(ErrorKind::Runtime, "[add] The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension "
         "1: shapes [2, 3] and [2, 4]", [&] { loop_plan("add", recipe_of(kAdd, Rule::Broadcast), in, nullptr, nullptr, 0, &out); });
  throws(ErrorKind::Runtime, "[add_] output with shape [3] doesn't match the broadcast shape [2, 3]",
         [&] { loop_plan("add_", recipe_of(kAdd, Rule::Broadcast), in2, &z, nullptr, 0, &out); });
  for (Layout* l : {x, y, z}) decref(l);

  // A transposed copy is tiled and split.
  x = strided({601, 403}, {1, 601});
  y = dense({601, 403});
  LoopPlan* plan = loop_plan("copy", recipe_of(kCopy, Rule::Broadcast), &x, &y, nullptr, 0, &out);
  CHECK(plan->tile[0] >= 0 && plan->split >= 0 && plan->excess == 0);
  std::vector<float> from = filled<float>(x), to = filled<float>(y);
  void* p[] = {from.data(), to.data()};
  loop_run(plan, p, nullptr);
  each({601, 403}, [&](const Ints& at) { CHECK(to[place(y, at)] == from[place(x, at)]); });
  std::free(plan);
  for (Layout* l : {x, y, out}) decref(l);
  CHECK(layout_count() == before);
  std::puts("loops ok");
}

// ---- threads

static void test_threads() {
  throws(ErrorKind::Value, "[set_num_threads]", [] { set_num_threads(0); });
  set_num_threads(3);
  CHECK(num_threads() == 3 && thread_limit() == 3);
  for (const int64_t n : {0, 1, 2, 7, 1000}) {
    std::vector<int> seen(static_cast<size_t>(n));
    parallel_for(n, 2, [](void* s, int64_t b, int64_t e) {
      for (; b < e; ++b) ++(*static_cast<std::vector<int>*>(s))[static_cast<size_t>(b)];
      int nested = 0;                 // runs here, once
      parallel_for(100, 1, [](void* c, int64_t from, int64_t to) { *static_cast<int*>(c) += from == 0 && to == 100; }, &nested);
      CHECK(nested == 1 || thread_limit() > 1);
    }, &seen);
    CHECK(std::count(seen.begin(), seen.end(), 1) == n);
  }
  const pid_t child = fork();
  if (child == 0) {
    int calls = 0;
    parallel_for(1000, 1, [](void* c, int64_t, int64_t) { ++*static_cast<int*>(c); }, &calls);
    _exit(calls == 1 && num_threads() == 1 && thread_limit() == 1 ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(std::strchr("234", cpu_isa()[1]));
  setenv("RUSHLIGHT_ISA", "v2", 1);
  CHECK(!std::strcmp(cpu_isa(), "v2"));
  setenv("RUSHLIGHT_ISA", "avx9", 1);
  throws(ErrorKind::Value, "RUSHLIGHT_ISA is v2, v3 or v4, got \"avx9\"", [] { cpu_isa(); });
  unsetenv("RUSHLIGHT_ISA");
  throws(ErrorKind::Runtime, "no kernel library for this processor", [] { kernels_load("/nonexistent"); });
  CHECK(kernel_find("add") == nullptr && kernel_count() == 0);
  std::puts("threads ok");
}

// ---- products

static double get(const void* p, DType d, int64_t i) {
  switch (d) {
    case DType::UInt8: return static_cast<const uint8_t*>(p)[i];
    case DType::Int8: return static_cast<const int8_t*>(p)[i];
    case DType::Int16: return static_cast<const int16_t*>(p)[i];
    case DType::Int32: return static_cast<const int32_t*>(p)[i];
    case DType::Int64: return static_cast<double>(static_cast<const int64_t*>(p)[i]);
    case DType::Float32: return static_cast<const float*>(p)[i];
    case DType::Float64: return static_cast<const double*>(p)[i];
    default: break;
  }
  const uint32_t u = static_cast<const uint16_t*>(p)[i];
  if (d == DType::BFloat16) {
    const uint32_t wide = u << 16;
    float f;
    std::memcpy(&f, &wide, 4);
    return f;
  }
  const int exponent = static_cast<int>(u >> 10 & 31);
  const double m = exponent ? std::ldexp(1024 + (u & 1023), exponent - 25) : std::ldexp(u & 1023, -24);
  return u >> 15 ? -m : m;
}
static void set(void* p, DType d, int64_t i, int v) {        // small integers, exact in every dtype
  switch (d) {
    case DType::UInt8: static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(v); return;
    case DType::Int8: static_cast<int8_t*>(p)[i] = static_cast<int8_t>(v); return;
    case DType::Int16: static_cast<int16_t*>(p)[i] = static_cast<int16_t>(v); return;
    case DType::Int32: static_cast<int32_t*>(p)[i] = v; return;
    case DType::Int64: static_cast<int64_t*>(p)[i] = v; return;
    case DType::Float32: static_cast<float*>(p)[i] = static_cast<float>(v); return;
    case DType::Float64: static_cast<double*>(p)[i] = v; return;
    default: break;
  }
  const float f = static_cast<float>(v);
  uint32_t u;
  std::memcpy(&u, &f, 4);
  uint16_t half = static_cast<uint16_t>(u >> 16);
  if (d == DType::Float16) half = f == 0 ? 0 : static_cast<uint16_t>((u >> 16 & 0x8000) | ((u & 0x7fffffff) - (112u << 23)) >> 13);
  static_cast<uint16_t*>(p)[i] = half;
}

static Layout* matrix(DType d, int64_t b, int64_t rows, int64_t cols, bool expand) {
  const bool column = random_below(2);
  const int64_t ld = (column ? rows : cols) + random_below(3);
  const int64_t batch = expand ? 0 : ld * (column ? cols : rows) + random_below(5);
  Ints shape = {rows, cols}, strides = column ? Ints{1, ld} : Ints{ld, 1};
  if (b) shape.insert(shape.begin(), b), strides.insert(strides.begin(), batch);
  return strided(shape, strides, d);
}

static void test_gemm() {
  set_num_threads(2);
  std::string used;
  for (int round = 0; round < 600; ++round) {
    static const DType types[] = {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Float32,
                                  DType::UInt8, DType::Int8, DType::Int16, DType::Int32, DType::Int64};
    const DType d = types[round % 10];
    const int64_t most = round % 20 < 5 ? 150 : 20, b = random_below(3) ? 0 : 1 + random_below(4);
    const int64_t m = random_below(most), n = 1 + random_below(most), k = random_below(8) ? 1 + random_below(most) : random_below(2);
    Layout* x = matrix(d, b, m, k, random_below(3) == 0);
    Layout* y = matrix(d, b, k, n, random_below(3) == 0);
    Layout* out = matrix(d, b, m, n, false);
    const int with_bias = static_cast<int>(random_below(4));
    Layout* bias = with_bias == 1 ? dense({n}, d) : with_bias == 2 ? matrix(d, 0, m, n, false) : with_bias == 3 ? dense({1}, d) : nullptr;
    CHECK(gemm_takes(x) && gemm_takes(y) && gemm_takes(out));
    std::vector<std::vector<int64_t>> data(4);
    Layout* all[] = {x, y, out, bias};
    for (size_t i = 0; i < 4; ++i) {
      if (!all[i]) continue;
      int64_t low, high;
      layout_extent(all[i], &low, &high);
      data[i].resize(static_cast<size_t>(high + 1));
      for (int64_t e = 0; e < high; ++e) set(data[i].data(), d, e, static_cast<int>(random_below(5)) - (d == DType::UInt8 ? 0 : 2));
    }
    GemmPlan* plan = gemm_plan("matmul", x, y, bias, out);
    for (int run = 0; run < 3; ++run) {
      const double alpha = run < 2 ? 1 : 2, beta = run < 2 ? 1 : 3;
      const std::string planned = gemm_library(plan);
      gemm_run(plan, data[0].data(), data[1].data(), data[3].data(), data[2].data(), alpha, beta);
      if (used.find(library_of_last_gemm()) == std::string::npos) used += std::string(" ") + library_of_last_gemm();
      each(shape_of(out), [&](const Ints& at) {
        double sum = 0;
        Ints xa = at, ya = at;
        for (int64_t p = 0; p < k; ++p) {
          xa[xa.size() - 1] = p;
          ya[ya.size() - 2] = p;
          sum += get(data[0].data(), d, place(x, xa)) * get(data[1].data(), d, place(y, ya));
        }
        sum *= alpha;
        if (bias) sum += beta * get(data[3].data(), d, place(bias, at));
        const double got = get(data[2].data(), d, place(out, at));
        if (d == DType::UInt8 || d == DType::Int8) {
          CHECK((static_cast<int64_t>(got) - static_cast<int64_t>(sum)) % 256 == 0);
        } else {
          CHECK(std::fabs(got - sum) <= std::fabs(sum) * (d == DType::BFloat16 ? 1.0 / 256 : 0));
        }
      });
    }
    gemm_free(plan);
    for (Layout* l : all)
      if (l) decref(l);
  }
  Layout *a = dense({2, 3}), *b = dense({4, 5}), *c = dense({2, 5}), *s = strided({2, 3}, {10, 2});
  CHECK(!gemm_takes(s));
  throws(ErrorKind::Runtime, "[mm] expected x.shape[-1] == y.shape[-2], got 3 and 4: shapes [2, 3] and [4, 5]",
         [&] { gemm_plan("mm", a, b, nullptr, c); });
  for (Layout* l : {a, b, c, s}) decref(l);

  // A child makes products on one thread, with the parent's plan.
  Layout* q = dense({200, 200});
  std::vector<float> v(40000, 1), o(40000);
  GemmPlan* plan = gemm_plan("mm", q, q, nullptr, q);
  for (int i = 0; i < 3; ++i) gemm_run(plan, v.data(), v.data(), nullptr, o.data(), 1, 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    o[77] = 0;
    gemm_run(plan, v.data(), v.data(), nullptr, o.data(), 1, 1);
    _exit(o[77] == 200 ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  // Two threads share a plan, and use more threads than they are given in turn.
  std::vector<float> o2(40000);
  std::thread other([&] { for (int i = 0; i < 50; ++i) gemm_run(plan, v.data(), v.data(), nullptr, o2.data(), 1, 1); });
  for (int i = 0; i < 50; ++i) gemm_run(plan, v.data(), v.data(), nullptr, o.data(), 1, 1);
  other.join();
  CHECK(o == std::vector<float>(40000, 200) && o2 == o);
  gemm_free(plan);
  decref(q);
  std::printf("products ok:%s\n", used.c_str());
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (i + 1 < argc && !std::strcmp(argv[i], "--openblas")) libraries_set(argv[i + 1], nullptr);
    if (i + 1 < argc && !std::strcmp(argv[i], "--onednn")) libraries_set(nullptr, argv[i + 1]);
  }
  test_layouts();
  test_allocator();
  test_views();
  test_loops();
  test_threads();
  test_gemm();
}
