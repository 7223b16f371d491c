// Matrix products of every dtype and stride, by whatever libraries were given, against the
// definition.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "gemm.h"
#include "test_rt.h"
#include "threads.h"

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
  const double m =
      exponent ? std::ldexp(1024 + (u & 1023), exponent - 25) : std::ldexp(u & 1023, -24);
  return u >> 15 ? -m : m;
}
static void set(void* p, DType d, int64_t i, int v) {  // small integers, exact in every dtype
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
  if (d == DType::Float16)
    half =
        f == 0
            ? 0
            : static_cast<uint16_t>((u >> 16 & 0x8000) | ((u & 0x7fffffff) - (112u << 23)) >> 13);
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

void test_gemm() {
  set_num_threads(2);
  std::string used;
  for (int round = 0; round < 600; ++round) {
    static const DType types[] = {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16,
                                  DType::Float32, DType::UInt8,   DType::Int8,    DType::Int16,
                                  DType::Int32,   DType::Int64};
    const DType d = types[round % 10];
    const int64_t most = round % 20 < 5 ? 150 : 20, b = random_below(3) ? 0 : 1 + random_below(4);
    const int64_t m = random_below(most), n = 1 + random_below(most),
                  k = random_below(8) ? 1 + random_below(most) : random_below(2);
    Layout* x = matrix(d, b, m, k, random_below(3) == 0);
    Layout* y = matrix(d, b, k, n, random_below(3) == 0);
    Layout* out = matrix(d, b, m, n, false);
    const int with_bias = static_cast<int>(random_below(4));
    Layout* bias = with_bias == 1   ? dense({n}, d)
                   : with_bias == 2 ? matrix(d, 0, m, n, false)
                   : with_bias == 3 ? dense({1}, d)
                                    : nullptr;
    CHECK(gemm_takes(x) && gemm_takes(y) && gemm_takes(out));
    std::vector<std::vector<int64_t>> data(4);
    Layout* all[] = {x, y, out, bias};
    for (size_t i = 0; i < 4; ++i) {
      if (!all[i]) continue;
      int64_t low, high;
      layout_extent(all[i], &low, &high);
      data[i].resize(static_cast<size_t>(high + 1));
      for (int64_t e = 0; e < high; ++e)
        set(data[i].data(), d, e, static_cast<int>(random_below(5)) - (d == DType::UInt8 ? 0 : 2));
    }
    GemmPlan* plan = gemm_plan("matmul", x, y, bias, out);
    for (int run = 0; run < 3; ++run) {
      const double alpha = run < 2 ? 1 : 2, beta = run < 2 ? 1 : 3;
      const std::string planned = gemm_library(plan);
      gemm_run(plan, data[0].data(), data[1].data(), data[3].data(), data[2].data(), alpha, beta);
      if (used.find(library_of_last_gemm()) == std::string::npos)
        used += std::string(" ") + library_of_last_gemm();
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
  throws(ErrorKind::Runtime,
         "[mm] expected x.shape[-1] == y.shape[-2], got 3 and 4: shapes [2, 3] and [4, 5]",
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
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) gemm_run(plan, v.data(), v.data(), nullptr, o2.data(), 1, 1);
  });
  for (int i = 0; i < 50; ++i) gemm_run(plan, v.data(), v.data(), nullptr, o.data(), 1, 1);
  other.join();
  CHECK(o == std::vector<float>(40000, 200) && o2 == o);
  gemm_free(plan);
  decref(q);
  std::printf("products ok:%s\n", used.c_str());
}
