// Pooling of every geometry and layout against the definition: values, places, means, and the ways back.
#include <algorithm>
#include <cmath>
#include <limits>

#include "routines.h"
#include "test_rt.h"
#include "threads.h"

namespace {

struct Tensor {
  Layout* layout;
  std::vector<double> memory;
  Tensor(const Ints& shape, DType d, bool last) : layout(nullptr) {
    Layout* plain = dense(shape, d);
    Ints strides = strides_of(plain);
    if (last) {
      int64_t step = shape[1];
      strides[1] = 1;
      for (size_t i = shape.size(); i-- > 2; step *= shape[i]) strides[i] = step;
      strides[0] = step;
    }
    layout = strided(shape, strides, d);
    decref(plain);
    memory.resize(static_cast<size_t>(layout->numel) + 1);
  }
  ~Tensor() { decref(layout); }
  RoutineOperand operand() { return {memory.data(), layout}; }
  double get(int64_t i) const {
    switch (layout->dtype) {
      case DType::Float32: return reinterpret_cast<const float*>(memory.data())[i];
      case DType::Float64: return memory[static_cast<size_t>(i)];
      default: return static_cast<double>(reinterpret_cast<const int64_t*>(memory.data())[i]);
    }
  }
  void set(int64_t i, double v) {
    switch (layout->dtype) {
      case DType::Float32: reinterpret_cast<float*>(memory.data())[i] = static_cast<float>(v); return;
      case DType::Float64: memory[static_cast<size_t>(i)] = v; return;
      default: reinterpret_cast<int64_t*>(memory.data())[i] = static_cast<int64_t>(v);
    }
  }
};

void call(const char* name, std::vector<Tensor*> in, std::vector<Tensor*> out, const Ints& ints) {
  std::vector<RoutineOperand> a, b;
  for (Tensor* t : in) a.push_back(t->operand());
  for (Tensor* t : out) b.push_back(t->operand());
  RoutineMemo memo;
  routine_find(name)->run({name, a.data(), b.data(), static_cast<int>(a.size()), static_cast<int>(b.size()),
                           ints.data(), static_cast<int>(ints.size()), nullptr, 0, &memo});
}

bool same(double a, double b) { return a == b || (a != a && b != b) || std::fabs(a - b) < 1e-6 * std::fabs(b); }

void round_of(int round) {
  const int64_t nd = 1 + round % 3;
  const bool adaptive = round % 4 == 3, last_in = random_below(2), last_out = random_below(3) ? last_in : !last_in;
  const DType d = round & 1 ? DType::Float32 : DType::Float64;
  const size_t n = static_cast<size_t>(nd);
  Ints in = {1 + random_below(2), 1 + random_below(20)}, out = in, kernel, stride, pad, dilation;
  for (size_t i = 0; i < n; ++i) {
    kernel.push_back(1 + random_below(4)), stride.push_back(1 + random_below(3)), dilation.push_back(1 + random_below(2));
    const int64_t reach = (kernel[i] - 1) * dilation[i] + 1;
    pad.push_back(dilation[i] > 1 ? 0 : random_below(kernel[i] / 2 + 1));
    in.push_back(reach + random_below(9));
    const int64_t room = in.back() + 2 * pad[i] - reach;
    int64_t o = (room + (random_below(2) ? stride[i] - 1 : 0)) / stride[i] + 1;
    if ((o - 1) * stride[i] >= in.back() + pad[i]) --o;
    out.push_back(adaptive ? 1 + random_below(6) : o);
  }
  Tensor x(in, d, last_in), y(out, d, last_out), at(out, DType::Int64, last_out), mean(out, d, last_out);
  const double specials[] = {std::nan(""), -std::numeric_limits<double>::infinity()};
  for (int64_t i = 0; i < x.layout->numel; ++i)
    x.set(i, round % 5 == 0 && random_below(6) == 0 ? specials[random_below(2)]
                                                    : static_cast<double>(random_below(7)) - 3);
  Ints ints = {nd, adaptive};
  if (!adaptive)
    for (const Ints* v : {&kernel, &stride, &pad, &dilation}) ints.insert(ints.end(), v->begin(), v->end());
  else
    ints.resize(2 + 4 * n);
  Ints means = ints;
  const bool counts = random_below(2), fixed = random_below(4) == 0;
  means.push_back(counts), means.push_back(fixed ? 3 : 0);
  const bool spread = std::count(dilation.begin(), dilation.end(), 2);  // means have no dilation
  call("max_pool", {&x}, {&y, &at}, ints);
  call("avg_pool", {&x}, {&mean}, means);

  // f(flat input place) for the window at an output place; returns the size that counts.
  const auto window = [&](const Ints& o, const std::function<void(const Ints&, int64_t)>& f) {
    Ints begin, count, step;
    int64_t padded = 1;
    for (size_t i = 0; i < n; ++i) {
      const int64_t p = o[2 + i], size = in[2 + i];
      if (adaptive) {
        const int64_t b = p * size / out[2 + i], e = ((p + 1) * size + out[2 + i] - 1) / out[2 + i];
        begin.push_back(b), count.push_back(e - b), step.push_back(1);
        padded *= e - b;
      } else {
        begin.push_back(p * stride[i] - pad[i]), count.push_back(kernel[i]), step.push_back(dilation[i]);
        padded *= std::min(begin[i] + kernel[i], size + pad[i]) - begin[i];
      }
    }
    each(count, [&](const Ints& k) {
      Ints place = {o[0], o[1]};
      int64_t flat = 0;
      for (size_t i = 0; i < n; ++i) {
        const int64_t c = begin[i] + k[i] * step[i];
        if (c < 0 || c >= in[2 + i]) return;
        place.push_back(c);
        flat = flat * in[2 + i] + c;
      }
      f(place, flat);
    });
    return padded;
  };

  Tensor g(out, d, last_out), back(in, d, last_out), back_mean(in, d, last_out), again(out, d, last_out);
  for (int64_t i = 0; i < g.layout->numel; ++i) g.set(i, static_cast<double>(random_below(9)) - 4);
  std::vector<double> want(static_cast<size_t>(x.layout->numel)), want_mean(want.size());
  each(out, [&](const Ints& o) {
    double best = -std::numeric_limits<double>::infinity(), sum = 0;
    int64_t where = -1, found = 0;
    Ints chosen;
    const int64_t padded = window(o, [&](const Ints& p, int64_t flat) {
      const double v = x.get(place(x.layout, p));
      if (where < 0) where = flat, chosen = p;
      if (v > best || v != v) best = v, where = flat, chosen = p;
      sum += v;
      ++found;
    });
    const int64_t to = place(y.layout, o);
    CHECK(same(y.get(to), best) && at.get(to) == static_cast<double>(where));
    const double by = fixed ? 3.0 : static_cast<double>(counts || adaptive ? padded : found);
    CHECK(spread || same(mean.get(to), sum / by) || std::isinf(sum));
    window(o, [&](const Ints& p, int64_t) { want_mean[static_cast<size_t>(place(back.layout, p))] += g.get(to) / by; });
    want[static_cast<size_t>(place(back.layout, chosen))] += g.get(to);
  });
  call("pool_scatter", {&g, &at}, {&back}, {nd, 1});
  call("avg_pool_backward", {&g}, {&back_mean}, means);
  for (int64_t i = 0; i < back.layout->numel; ++i) {
    CHECK(same(back.get(i), want[static_cast<size_t>(i)]));
    CHECK(spread || std::fabs(back_mean.get(i) - want_mean[static_cast<size_t>(i)]) < 1e-5);
  }
  call("pool_gather", {&x, &at}, {&again}, {nd});
  for (int64_t i = 0; i < again.layout->numel; ++i) CHECK(same(again.get(i), y.get(i)));
}

}  // namespace

void test_pooling() {
  for (const int threads : {2, 1}) {
    set_num_threads(threads);
    for (int round = 0; round < 400; ++round) round_of(round);
  }
  Tensor g({1, 1, 2}, DType::Float32, false), at({1, 1, 2}, DType::Int64, false), x({1, 1, 3}, DType::Float32, false);
  at.set(1, 3);
  throws(ErrorKind::Runtime, "invalid max index: 3", [&] { call("pool_scatter", {&g, &at}, {&x}, {1, 0}); });
  std::puts("pooling ok");
}
