// Loop plans against walks in C order, by kernels written as the emitter would.
#include <algorithm>

#include "kernels.h"
#include "test_rt.h"
#include "threads.h"

struct Axes {  // of one buffer
  const int64_t* n;
  int axes, b;
  int64_t at(int64_t i, int64_t j, int64_t k = 0, int64_t l = 0) const {
    const int64_t* s = n + axes * (1 + b);
    return i * s[0] + j * s[1] + k * s[2] + (axes > 3 ? l * s[3] : 0);
  }
};
#define LOOPS3                         \
  for (int64_t i = 0; i < n[0]; ++i)   \
    for (int64_t j = 0; j < n[1]; ++j) \
      for (int64_t k = 0; k < n[2]; ++k)

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
          static_cast<float*>(p[2])[y.at(i, j, k, l)] =
              v + static_cast<float*>(p[1])[s.at(i, j, k, l)];
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

static Recipe recipe_of(const KernelEntry& k, Rule rule, Output out = Output::Same,
                        DType d = DType::Float32) {
  Recipe r = {};
  r.kernel = &k;
  r.rule = rule;
  r.ninputs = k.inputs;
  r.noutputs = k.outputs;
  r.out[0] = out;
  r.out_dtype[0] = d;
  return r;
}

// A layout of that shape with random order of dims, gaps, and dims of size 1 (never those in
// `keep`).
static Layout* random_layout(const Ints& shape, bool may_broadcast, DType d = DType::Float32) {
  const size_t n = shape.size(), drop = may_broadcast && random_below(4) == 0
                                            ? random_below(static_cast<int64_t>(n) + 1)
                                            : 0;
  Ints s(shape.begin() + static_cast<int64_t>(drop), shape.end()), strides(s.size());
  if (may_broadcast)
    for (int64_t& v : s)
      if (random_below(5) == 0) v = 1;
  std::vector<size_t> order(s.size());
  for (size_t i = 0; i < s.size(); ++i) order[i] = s.size() - 1 - i;
  if (random_below(2))
    for (size_t i = s.size(); i > 1; --i)
      std::swap(order[i - 1], order[random_below(static_cast<int64_t>(i))]);
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

void test_loops() {
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

  for (int round = 0; round < 1000; ++round) {
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
    LoopPlan* plan = loop_plan("add", recipe_of(kAdd, Rule::Broadcast), in,
                               given ? &given : nullptr, nullptr, 0, &out);
    CHECK(shape_of(out) == shape && (given ? out == given : out->dense));
    std::vector<float> va = filled<float>(in[0]), vb = filled<float>(in[1]),
                       vo = filled<float>(out);
    void* p[] = {va.data(), vb.data(), vo.data()};
    CHECK(loop_run(plan, p, nullptr) == 0);
    each(shape, [&](const Ints& at) {
      CHECK(vo[place(out, at)] == va[place(in[0], at)] + 2 * vb[place(in[1], at)]);
    });
    std::free(plan);

    // Random numbers: the element's place in C order, whatever the output's strides.
    Layout* counted = random_layout(shape, false, DType::Int64);
    Layout* got;
    plan = loop_plan("count", recipe_of(kCount, Rule::Sized, Output::Same, DType::Int64), nullptr,
                     &counted, shape.data(), static_cast<int>(shape.size()), &got);
    std::vector<int64_t> vc = filled<int64_t>(counted);
    void* pc[] = {vc.data()};
    loop_run(plan, pc, nullptr);
    int64_t next = 0;
    each(shape, [&](const Ints& at) {
      CHECK(vc[place(counted, at)] == next);
      ++next;
    });
    std::free(plan);
    for (Layout* l : {a, b, out, counted, got}) decref(l);
    if (given) decref(given);
  }

  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    const Ints shape = random_shape(4, round % 10 ? 4 : 12);
    const int n = static_cast<int>(shape.size());
    const uint32_t rows = static_cast<uint32_t>(random_below(1 << n));
    const bool dropped = random_below(2);
    Ints kept = shape, reduced;
    for (int d = 0; d < n; ++d) {
      if (rows >> d & 1)
        kept[d] = 1;
      else
        reduced.push_back(shape[d]);
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
          if (!(rows >> d & 1))
            to.push_back(at[d]);
          else if (!dropped)
            to.push_back(0);
        return to;
      };
      each(shape, [&](const Ints& at) {
        CHECK(vo[place(out[0], at)] == vx[place(x, at)] + vs[place(s, row(at))]);
        double& f = folds[place(out[1], row(at))];
        f = f * 0.7 + vx[place(x, at)];
      });
      each(shape_of(out[1]),
           [&](const Ints& at) { CHECK(vf[place(out[1], at)] == folds[place(out[1], at)]); });
      std::free(plan);
      decref(out[0]);
      decref(out[1]);
    }
    decref(x);
    decref(s);
  }
  CHECK(refused < 200);

  for (int round = 0; round < 1000; ++round) {
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
    LoopPlan* plan = loop_plan(
        "embedding", recipe_of(into ? kInto : kTable, into ? Rule::IntoTable : Rule::Table), in,
        nullptr, &size, into ? 1 : 0, &out);
    CHECK(shape_of(out) == (into ? ws : os) && out->contiguous && plan->zero_out == into);
    std::vector<float> vd = filled<float>(data), vo = filled<float>(out), expected(vo.size());
    if (plan->zero_out) std::fill(vo.begin(), vo.end(), 0.0f);
    void* p[] = {vd.data(), vi.data(), vo.data()};
    if (wrong) {
      vi[place(index, Ints(is.size(), 0))] = -3;
      CHECK(loop_run(plan, p, nullptr) == 1 + 5);
    } else {
      CHECK(loop_run(plan, p, nullptr) == 0);
      each(os, [&](const Ints& at) {
        Ints i(at.begin(), at.begin() + static_cast<int64_t>(is.size())),
            w(at.begin() + static_cast<int64_t>(is.size()), at.end());
        w.insert(w.begin(), vi[place(index, i)]);
        if (into)
          expected[place(out, w)] += vd[place(data, at)];
        else
          CHECK(vo[place(out, at)] == vd[place(data, w)]);
      });
      if (into)
        for (int64_t i = 0; i < out->numel; ++i) CHECK(vo[i] == expected[i]);
    }
    std::free(plan);
    for (Layout* l : {index, data, out}) decref(l);
  }

  Layout *x = dense({2, 3}), *y = dense({2, 4}), *z = dense({3}), *out, *in[2] = {x, y},
         *in2[2] = {x, z};
  throws(
      ErrorKind::Runtime,
      "[add] shapes [2, 3] and [2, 4] do not broadcast: dim 1 has size 3 and 4",
      [&] { loop_plan("add", recipe_of(kAdd, Rule::Broadcast), in, nullptr, nullptr, 0, &out); });
  throws(ErrorKind::Runtime,
         "[add_] the output has shape [3], the operands broadcast to [2, 3]",
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
