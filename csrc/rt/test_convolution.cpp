// The three products of convolution, of every dtype, layout and geometry, by oneDNN where it is
// given and the plain way, against the definition.
#include <algorithm>
#include <cmath>
#include <thread>

#include "convolution.h"
#include "halves.h"
#include "routines.h"
#include "test_rt.h"
#include "threads.h"

namespace {

double get(const void* p, DType d, int64_t i) {
  switch (d) {
    case DType::Float32: return static_cast<const float*>(p)[i];
    case DType::Float64: return static_cast<const double*>(p)[i];
    case DType::BFloat16: return widen(static_cast<const BFloat16*>(p)[i]);
    default: return widen(static_cast<const Float16*>(p)[i]);
  }
}
void set(void* p, DType d, int64_t i, double v) {
  switch (d) {
    case DType::Float32: static_cast<float*>(p)[i] = static_cast<float>(v); return;
    case DType::Float64: static_cast<double*>(p)[i] = v; return;
    case DType::BFloat16: narrow(static_cast<float>(v), static_cast<BFloat16*>(p) + i); return;
    default: narrow(static_cast<float>(v), static_cast<Float16*>(p) + i); return;
  }
}

// C order, channels last, or (operands only) repeated along the batch.
Layout* made(const Ints& shape, DType d, int how) {
  Layout* plain = dense(shape, d);
  if (how == 0) return plain;
  Ints strides = strides_of(plain);
  decref(plain);
  if (how == 2) {
    strides[0] = 0;
  } else {
    int64_t step = shape[1];
    strides[1] = 1;
    for (size_t i = shape.size(); i-- > 2; step *= shape[i]) strides[i] = step;
    strides[0] = step;
  }
  return strided(shape, strides, d);
}

struct Value {
  Layout* layout;
  std::vector<double> memory;  // of any dtype
  Value(Layout* l, bool random) : layout(l), memory(static_cast<size_t>(l->numel) + 8) {
    for (int64_t i = 0; i < l->numel; ++i)
      set(memory.data(), l->dtype, i, random ? static_cast<double>(random_below(5)) - 2 : -99);
  }
  ~Value() { decref(layout); }
  double at(const Ints& i) const { return get(memory.data(), layout->dtype, place(layout, i)); }
};

struct Case {
  int64_t nd, groups, n, ci, co;
  Ints in, kernel, out, stride, before, after, dilation;
};

Case random_case(int round) {
  Case c;
  c.nd = 1 + round % 3;
  c.groups = 1 + random_below(3);
  c.n = round % 31 == 30 ? 0 : 1 + random_below(3);
  const int64_t most = round % 7 == 0 ? 17 : 4;
  c.ci = c.groups * (1 + random_below(most));
  c.co = c.groups * (1 + random_below(most));
  if (round % 5 == 0) c.ci = c.co = c.groups = 8;  // one channel a group
  for (int64_t d = 0; d < c.nd; ++d) {
    c.kernel.push_back(1 + random_below(3));
    c.dilation.push_back(1 + random_below(2));
    c.stride.push_back(1 + random_below(3));
    c.before.push_back(random_below(3));
    c.after.push_back(random_below(3));
    const int64_t reach = (c.kernel[static_cast<size_t>(d)] - 1) * c.dilation[static_cast<size_t>(d)] + 1;
    c.in.push_back(reach + random_below(6));
    const size_t i = static_cast<size_t>(d);
    c.out.push_back((c.in[i] + c.before[i] + c.after[i] - reach) / c.stride[i] + 1);
  }
  return c;
}

// Calls f(index into x, into w, into y) for every product of the definition.
void terms(const Case& c, const std::function<void(const Ints&, const Ints&, const Ints&)>& f) {
  Ints space = {c.n, c.co, c.ci / c.groups};
  space.insert(space.end(), c.out.begin(), c.out.end());
  space.insert(space.end(), c.kernel.begin(), c.kernel.end());
  const size_t nd = static_cast<size_t>(c.nd);
  each(space, [&](const Ints& at) {
    Ints x = {at[0], at[1] / (c.co / c.groups) * (c.ci / c.groups) + at[2]}, w = {at[1], at[2]},
         y = {at[0], at[1]};
    for (size_t d = 0; d < nd; ++d) {
      const int64_t o = at[3 + d], k = at[3 + nd + d];
      const int64_t i = o * c.stride[d] - c.before[d] + k * c.dilation[d];
      if (i < 0 || i >= c.in[d]) return;
      x.push_back(i), w.push_back(k), y.push_back(o);
    }
    f(x, w, y);
  });
}

Ints joined(int64_t a, int64_t b, const Ints& rest) {
  Ints shape = {a, b};
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

void check(const Value& got, const std::vector<double>& want) {
  const DType d = got.layout->dtype;
  const double bound = d == DType::BFloat16 ? 1.0 / 128 : d == DType::Float16 ? 1.0 / 1024 : 0;
  size_t i = 0;
  each(shape_of(got.layout), [&](const Ints& at) {
    CHECK(std::fabs(got.at(at) - want[i]) <= bound * std::fabs(want[i]));
    ++i;
  });
}

size_t flat(const Ints& shape, const Ints& at) {
  int64_t sum = 0;
  for (size_t d = 0; d < shape.size(); ++d) sum = sum * shape[d] + at[d];
  return static_cast<size_t>(sum);
}

void one_case(int round, Product product, bool plain) {
  static const DType types[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16};
  const Case c = random_case(round);
  DType d = types[round / 3 % 4];
  if (plain) d = round & 1 ? DType::Float32 : DType::Float64;
  const Ints shapes[3] = {joined(c.n, c.ci, c.in), joined(c.co, c.ci / c.groups, c.kernel),
                          joined(c.n, c.co, c.out)};
  const int result = product == Product::Forward ? 2 : product == Product::Data ? 0 : 1;
  const int operands[2] = {product == Product::Data ? 2 : 0, product == Product::Weights ? 2 : 1};
  const bool bias = product != Product::Weights && !(plain && product == Product::Data) && random_below(2);
  const auto how = [&](bool output) { return static_cast<int>(random_below(output || plain ? 2 : 3)); };
  Value a(made(shapes[operands[0]], d, how(false)), true), b(made(shapes[operands[1]], d, how(false)), true),
      extra(dense({shapes[result][1]}, d), true), out(made(shapes[result], d, how(true)), false);
  const Value* values[3] = {};
  values[operands[0]] = &a, values[operands[1]] = &b, values[result] = &out;

  std::vector<double> want(static_cast<size_t>(out.layout->numel));
  if (bias)
    each(shapes[result], [&](const Ints& at) { want[flat(shapes[result], at)] = extra.at({at[1]}); });
  terms(c, [&](const Ints& x, const Ints& w, const Ints& y) {
    const Ints* at[3] = {&x, &w, &y};
    want[flat(shapes[result], *at[result])] +=
        values[operands[0]]->at(*at[operands[0]]) * values[operands[1]]->at(*at[operands[1]]);
  });

  if (plain && out.layout->numel && a.layout->numel && b.layout->numel) {
    Convolution g = {};
    g.product = product, g.nd = static_cast<int>(c.nd), g.n = c.n, g.groups = c.groups;
    g.ci = c.ci, g.co = c.co, g.dtype = d, g.bias = bias, g.threads = 2;
    for (size_t i = 0; i < static_cast<size_t>(c.nd); ++i) {
      g.in[i] = c.in[i], g.kernel[i] = c.kernel[i], g.out[i] = c.out[i], g.stride[i] = c.stride[i];
      g.before[i] = c.before[i], g.after[i] = c.after[i], g.dilation[i] = c.dilation[i];
    }
    for (int i = 0; i < c.nd + 2; ++i)
      g.x[i] = values[0]->layout->strides()[i], g.w[i] = values[1]->layout->strides()[i],
      g.y[i] = values[2]->layout->strides()[i];
    plain_convolution(g, a.memory.data(), b.memory.data(), bias ? extra.memory.data() : nullptr,
                      out.memory.data());
    return check(out, want);
  }
  const RoutineOperand in[3] = {{a.memory.data(), a.layout},
                                {b.memory.data(), b.layout},
                                {extra.memory.data(), extra.layout}};
  const RoutineOperand outs[1] = {{out.memory.data(), out.layout}};
  Ints ints = {static_cast<int64_t>(product), c.nd, c.groups};
  for (const Ints* v : {&c.stride, &c.before, &c.dilation})
    ints.insert(ints.end(), v->begin(), v->end());
  RoutineMemo memo;
  const RoutineCall call = {"convolution", in,      outs,    bias ? 3 : 2, 1, ints.data(),
                            static_cast<int>(ints.size()), nullptr, 0, &memo};
  for (const int threads : {2, 1, 2}) {
    set_num_threads(threads);
    routine_find("convolution")->run(call);
    check(out, want);
  }
}

}  // namespace

void test_convolution() {
  for (int round = 0; round < 240; ++round)
    for (const Product p : {Product::Forward, Product::Data, Product::Weights}) {
      one_case(round, p, false);
      one_case(round, p, true);
    }
  // Two threads share a plan and its primitive.
  Layout *x = dense({2, 8, 20, 20}), *w = dense({8, 8, 3, 3}), *y = dense({2, 8, 18, 18});
  std::vector<float> xs(static_cast<size_t>(x->numel), 1), ws(static_cast<size_t>(w->numel), 1);
  const Ints ints = {0, 2, 1, 1, 1, 0, 0, 1, 1};
  RoutineMemo memo;
  const auto work = [&] {
    std::vector<float> ys(static_cast<size_t>(y->numel));
    const RoutineOperand in[2] = {{xs.data(), x}, {ws.data(), w}}, out[1] = {{ys.data(), y}};
    for (int i = 0; i < 50; ++i) {
      std::fill(ys.begin(), ys.end(), 0.0f);
      routine_find("convolution")->run({"convolution", in, out, 2, 1, ints.data(), 9, nullptr, 0, &memo});
      CHECK(std::all_of(ys.begin(), ys.end(), [](float v) { return v == 72; }));
    }
  };
  std::thread other(work);
  work();
  other.join();
  for (Layout* l : {x, w, y}) decref(l);
  std::puts("convolutions ok");
}
