// Tests of the runtime: `test_rt [--openblas <file>] [--onednn <file>] [--seed <n>]`. Prints one
// line a group; a failed check says where and ends with status 1.
#include "test_rt.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "gemm.h"
#include "kernels.h"
#include "storage.h"
#include "threads.h"
#include "views.h"

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
  throws(ErrorKind::Runtime,
         "a tensor of shape [1099511627776, 1099511627776] has overflowed int64",
         [] { dense({int64_t{1} << 40, int64_t{1} << 40}); });
  throws(ErrorKind::Runtime, "overflowed", [] { dense({int64_t{1} << 61}); });
  throws(ErrorKind::Runtime, "overflowed", [] { strided({3}, {INT64_MAX / 2}); });
  throws(ErrorKind::Runtime, "negative dimension -1: [2, -1]", [] { dense({2, -1}); });
  Layout* wide = strided({int64_t{1} << 61}, {0});  // reaches one element
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
    CHECK(s->data == data && allocator_stats().hits == hits + 1);  // warm
    decref(s);
  }
  CHECK(allocator_stats().peak >= 100 << 20);
  allocator_reset_peak();
  CHECK(allocator_stats().peak == 0);
  CHECK(allocator_trim(1 << 20) > 0 && allocator_stats().cached <= 1 << 20);
  allocator_trim(0);
  CHECK(allocator_stats().cached == 0);
  for (int64_t size = 1; size < int64_t{1} << 32; size = size * 9 / 8 + 1)
    decref(storage_alloc(size));
  for (int i = 0; i < 20; ++i)
    decref(storage_alloc(int64_t{1} << 34 << (i % 2)));  // cached, and too large to be
  allocator_trim(0);
  allocator_set_limit(10 << 20);
  Storage* kept = storage_alloc(4 << 20);
  decref(storage_alloc(5 << 20));
  Storage* more = storage_alloc(6 << 20);  // fits once the cached block is gone
  throws(ErrorKind::Memory,
         "cannot allocate 2.0 MiB (a block of 2.0 MiB): 10.0 MiB in use, 0 bytes cached, limit "
         "10.0 MiB",
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
  throws(ErrorKind::Runtime, "dim 1 has size 3, which cannot become 2",
         [&] { view_expand("e", row, 2, bad.data()); });
  throws(ErrorKind::Index, "[s] index 4 is out of range for dim 0 of shape [4, 3, 2]",
         [&] { view_select("s", x, 0, 4, &at); });
  throws(ErrorKind::Index, "dim 3 is out of range: -3 to 2",
         [&] { wrap_dim("op", 3, 3); });
  throws(ErrorKind::Runtime, "24 elements do not have the shape [5]",
         [&] { reshape(x, {5}, &ok); });
  throws(ErrorKind::Runtime, "-1 stands twice", [&] { reshape(x, {-1, -1}, &ok); });
  throws(ErrorKind::Runtime, "ambiguous", [&] { reshape(empty, {-1, 0}, &ok); });
  throws(ErrorKind::Runtime, "step must be positive",
         [&] { view_slice("s", x, 0, false, 0, false, 0, 0, &at); });
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
          for (int d = y->ndim - 1; d >= 0; rest /= y->shape()[d--])
            sum += rest % y->shape()[d] * y->strides()[d];
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

// ---- threads

// A kernel library as the build makes it, for the lowest instruction set only: found by falling
// back.
static void test_kernels() {
  throws(ErrorKind::Runtime, "no kernel library for this processor",
         [] { kernels_load("/nonexistent"); });
  CHECK(kernel_find("add") == nullptr && kernel_count() == 0);
  char folder[] = "/tmp/test_rt_XXXXXX";
  CHECK(mkdtemp(folder));
  const std::string base = std::string(folder) + "/libkernels_v2",
                    command = "c++ -shared -fPIC -x c++ -o " + base + ".so " + base + ".cpp";
  FILE* f = std::fopen((base + ".cpp").c_str(), "w");
  std::fputs(
      "struct E { const char* key; void* fn; int n[7]; const char* origin; };\n"
      "extern \"C\" const E rushlight_kernels[] = {{\"a\", 0, {3, 0, 1, 1, 0, 0, 7}, \"x:1\"}, "
      "{\"b\", 0, {2, 2, 2, 1, 0, 1, 9}, \"y:2\"}};\n"
      "extern \"C\" const long rushlight_kernel_count = 2;\n",
      f);
  std::fclose(f);
  if (std::system(command.c_str()) == 0) {
    kernels_load(folder);
    CHECK(kernel_count() == 2 && kernel_find("a") == kernel_at(0) && kernel_find("b")->cost == 9 &&
          kernel_find("b")->serial == 1);
    CHECK(!std::strcmp(kernel_at(1)->origin, "y:2") && !kernel_find("c"));
    throws(ErrorKind::Index, "kernel 2 of 2", [] { kernel_at(2); });
  }
  for (const char* end : {".cpp", ".so"}) unlink((base + end).c_str());
  rmdir(folder);
  std::puts("kernels ok");
}

static void test_threads() {
  throws(ErrorKind::Value, "[set_num_threads]", [] { set_num_threads(0); });
  set_num_threads(3);
  CHECK(num_threads() == 3 && thread_limit() == 3);
  for (const int64_t n : {0, 1, 2, 7, 1000}) {
    std::vector<int> seen(static_cast<size_t>(n));
    parallel_for(
        n, 2,
        [](void* s, int64_t b, int64_t e) {
          for (; b < e; ++b) ++(*static_cast<std::vector<int>*>(s))[static_cast<size_t>(b)];
          int nested = 0;  // runs here, once
          parallel_for(
              100, 1,
              [](void* c, int64_t from, int64_t to) {
                *static_cast<int*>(c) += from == 0 && to == 100;
              },
              &nested);
          CHECK(nested == 1 || thread_limit() > 1);
        },
        &seen);
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
  std::puts("threads ok");
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (i + 1 < argc && !std::strcmp(argv[i], "--openblas")) libraries_set(argv[i + 1], nullptr);
    if (i + 1 < argc && !std::strcmp(argv[i], "--seed"))
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (i + 1 < argc && !std::strcmp(argv[i], "--onednn")) libraries_set(nullptr, argv[i + 1]);
  }
  test_layouts();
  test_allocator();
  test_views();
  test_loops();
  test_kernels();
  test_threads();
  test_gemm();
  test_convolution();
  test_pooling();
}
