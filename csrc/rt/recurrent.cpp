// LSTM layers over sequences of one length: the steps forward and backward, each a product with one
// and the same weight and then the kernel of the gates.
// Invariant: sequences do not meet. Threads share out the batch and walk through all steps on their
// own, so that none waits for another inside a sequence; the weight is packed once a call. With few
// sequences one walk takes all of them, and the product inside it is shared out instead.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "error.h"
#include "kernels.h"
#include "libraries.h"
#include "packing.h"
#include "parallel.h"
#include "routines.h"
#include "threads.h"

namespace rl {
namespace {

// Memory of this thread that grows and stays: page faults would cost as much as packing does.
struct Kept {
  void* data = nullptr;
  int64_t size = 0;
  ~Kept() { std::free(data); }
  void* at_least(int64_t bytes) {
    if (bytes <= size) return data;
    std::free(data);
    size = 0;
    if (posix_memalign(&data, 64, static_cast<size_t>(bytes)) != 0) data = nullptr;
    if (!data)
      fail(ErrorKind::Memory, "[lstm] cannot allocate %lld bytes", static_cast<long long>(bytes));
    size = bytes;
    return data;
  }
};

constexpr int64_t kRowsEach = 4;  // sequences that are worth a thread: fewer read the weight in vain

struct Walk {
  int64_t steps, batch, blocks;
  bool reverse;

  Walk(int64_t steps_, int64_t batch_, bool reverse_)
      : steps(steps_), batch(batch_), reverse(reverse_) {
    blocks = std::max<int64_t>(1, std::min<int64_t>(thread_limit(), batch / kRowsEach));
  }
  int64_t begin(int64_t block) const { return block * batch / blocks; }
  int64_t rows(int64_t block) const { return begin(block + 1) - begin(block); }
  // The first row of the k-th step that is taken, among the rows of all steps.
  int64_t start(int64_t k) const { return (reverse ? steps - 1 - k : k) * batch; }
};

// out (+)= x y for each block of rows, y [k, n] the same in all steps.
class StepProduct {
 public:
  StepProduct(const Walk& walk, DType dtype, int64_t k, int64_t n, int64_t ldx, int64_t ldout,
              const void* y, int64_t rows, int64_t cols, bool accumulate, Kept* memory)
      : y_(y) {
    // A primitive costs as much to make as some steps: it is kept, and the next call has it.
    constexpr int64_t kSteps = 4, kWork = 1 << 18;  // gemm.cpp: below, OpenBLAS's call costs less
    const bool many = walk.steps >= kSteps && dtype == DType::Float32 && onednn_available();
    const int64_t bytes = many ? packed_bytes(dtype, k, n) : 0;
    for (int64_t i = 0; i < walk.blocks; ++i) {
      Gemm g = {};
      g.b = 1, g.m = walk.rows(i), g.n = n, g.k = k;
      g.x[1] = ldx, g.x[2] = 1, g.y[1] = rows, g.y[2] = cols, g.out[1] = ldout, g.out[2] = 1;
      g.dtype = g.out_dtype = dtype;
      g.accumulate = accumulate;
      g.threads = walk.blocks == 1 ? thread_limit() : 1;
      g.slot = static_cast<int>(i);
      g.packed = bytes > 0;
      gemms_.push_back(g);
      kept_.push_back(many && g.m * n * k >= kWork ? onednn_matmul(g) : nullptr);
      direct_ = direct_ && kept_.back();
    }
    if (direct_ && bytes) {
      packed_ = memory->at_least(bytes);
      direct_ = pack(dtype, k, n, rows, cols, y, packed_);
    }
  }

  void run(int64_t block, const void* x, void* out) const {
    const Gemm& g = gemms_[static_cast<size_t>(block)];
    if (direct_ && onednn_run(kept_[static_cast<size_t>(block)].get(), x, packed_ ? packed_ : y_,
                              nullptr, out))
      return;
    if (openblas_available() && openblas_takes(g))
      return openblas_run(g, x, y_, out, 1, g.accumulate ? 1 : 0);
    plain_run(g, x, y_, g.accumulate ? out : nullptr, out, 1, 1);
  }

 private:
  const void* y_;
  void* packed_ = nullptr;
  bool direct_ = true;
  std::vector<Gemm> gemms_;
  std::vector<std::shared_ptr<Matmul>> kept_;
};

// A kernel of the library over [rows, columns], the columns side by side in every buffer.
class GateKernel {
 public:
  // `strides`: from row to row, of the operands and then of the results.
  GateKernel(const char* op, const char* name, DType dtype, int inputs, int64_t columns,
             const std::vector<int64_t>& strides) {
    const std::string key = std::string(name) + "." + dtype_name(dtype) + "." +
                            std::string(static_cast<size_t>(inputs), 'T');
    entry_ = kernel_find(key.c_str());
    if (!entry_) fail(ErrorKind::NotImplemented, "[%s] no kernel %s", op, key.c_str());
    axes_ = static_cast<size_t>(entry_->outer + entry_->inner);
    numbers_.assign(axes_ * (2 + strides.size()) + 1, 0);
    for (size_t a = 0; a < axes_; ++a) numbers_[a] = 1;
    numbers_[axes_ - 1] = columns;
    for (size_t b = 0; b < strides.size(); ++b) {
      numbers_[axes_ * (1 + b) + axes_ - 2] = strides[b];
      numbers_[axes_ * (1 + b) + axes_ - 1] = 1;
    }
  }
  // The same for a number of rows; each thread has its own.
  GateKernel over(int64_t rows) const {
    GateKernel one = *this;
    one.numbers_[axes_ - 2] = rows;
    return one;
  }
  template <class T>
  void run(std::initializer_list<T*> buffers) const {
    void* p[kMaxInputs + kMaxOutputs];
    int i = 0;
    for (T* b : buffers) p[i++] = b;
    entry_->fn(p, numbers_.data(), nullptr);
  }

 private:
  const KernelEntry* entry_;
  size_t axes_;
  std::vector<int64_t> numbers_;
};

// ints: steps, reverse, keep. (gates from the input [steps * batch, 4 h], h, c [batch, h], weight [4 h, h]) -> (gates; h and c
// of all steps). With `keep` the gates are left activated, for the way back.
template <class T>
void forward(const RoutineCall& call) {
  const int64_t h = call.in[1].layout->dims[1], batch = call.in[1].layout->dims[0];
  const Walk walk(call.ints[0], batch, call.ints[1]);
  const bool keep = call.ints[2];
  if (!batch) return;
  const DType dtype = call.in[0].layout->dtype;
  T *gates = call.out[0].as<T>(), *out = call.out[1].as<T>(), *states = call.out[2].as<T>();
  T *h0 = call.in[1].as<T>(), *c0 = call.in[2].as<T>();
  thread_local Kept packed;
  const StepProduct product(walk, dtype, h, 4 * h, h, 4 * h, call.in[3].data, 1, h, true, &packed);
  std::vector<int64_t> strides(4, 4 * h);
  strides.insert(strides.end(), 3, h);
  if (keep) strides.insert(strides.end(), 4, 4 * h);
  const GateKernel kernel(call.op, keep ? "lstm_step" : "lstm_cell_gates", dtype, 5, h, strides);
  parallel(walk.blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const GateKernel each = kernel.over(walk.rows(block));
      const int64_t begin = walk.begin(block);
      T *hidden = h0 + begin * h, *c = c0 + begin * h;
      for (int64_t k = 0; k < walk.steps; ++k) {
        const int64_t row = walk.start(k) + begin;
        T *i = gates + row * 4 * h, *f = i + h, *u = f + h, *o = u + h;
        T *hidden_to = out + row * h, *c_to = states + row * h;
        product.run(block, hidden, i);
        if (keep)
          each.run<T>({i, f, u, o, c, hidden_to, c_to, i, f, u, o});
        else
          each.run<T>({i, f, u, o, c, hidden_to, c_to});
        hidden = hidden_to, c = c_to;
      }
    }
  });
}

// ints: steps, reverse, and whether there are gradients of all states, of the last h, of the last c. (gates as forward left
// them, c of all steps, first c, weight, those gradients) -> (of the gates before their activations, of the first h and c).
template <class T>
void backward(const RoutineCall& call) {
  const int64_t h = call.in[2].layout->dims[1], batch = call.in[2].layout->dims[0];
  const Walk walk(call.ints[0], batch, call.ints[1]);
  if (!batch) return;
  const DType dtype = call.in[0].layout->dtype;
  T *gates = call.in[0].as<T>(), *states = call.in[1].as<T>(), *c0 = call.in[2].as<T>();
  const T* given[3];
  int next = 4;
  for (int i = 0; i < 3; ++i) given[i] = call.ints[2 + i] ? call.in[next++].as<T>() : nullptr;
  const auto [gout, gh, gc] = given;
  T *dgates = call.out[0].as<T>(), *dh0 = call.out[1].as<T>(), *dc0 = call.out[2].as<T>();
  thread_local Kept packed;
  const StepProduct product(walk, dtype, 4 * h, h, 4 * h, h, call.in[3].data, h, 1, false, &packed);
  std::vector<int64_t> strides(2, h);
  strides.insert(strides.end(), 4, 4 * h);
  strides.insert(strides.end(), 2, h);
  strides.insert(strides.end(), 4, 4 * h);
  strides.push_back(h);
  const GateKernel kernel(call.op, "lstm_step_backward", dtype, 8, h, strides);
  parallel(walk.blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const GateKernel each = kernel.over(walk.rows(block));
      const int64_t begin = walk.begin(block), count = walk.rows(block) * h;
      T *dh = dh0 + begin * h, *dc = dc0 + begin * h;  // what is carried on lies where it ends
      const auto start = [&](T* to, const T* from) {
        if (from)
          std::copy(from + begin * h, from + begin * h + count, to);
        else
          std::fill(to, to + count, T());
      };
      start(dh, gh);
      start(dc, gc);
      for (int64_t k = walk.steps - 1; k >= 0; --k) {
        const int64_t row = walk.start(k) + begin;
        if (gout) {
          const T* g = gout + row * h;
          for (int64_t i = 0; i < count; ++i) dh[i] += g[i];
        }
        T *i = gates + row * 4 * h, *f = i + h, *u = f + h, *o = u + h;
        T *di = dgates + row * 4 * h, *df = di + h, *du = df + h, *dout = du + h;
        T* before = k ? states + (walk.start(k - 1) + begin) * h : c0 + begin * h;
        each.run<T>({dh, dc, i, f, u, o, before, states + row * h, di, df, du, dout, dc});
        product.run(block, di, dh);
      }
    }
  });
}

void run_forward(const RoutineCall& call) {
  call.in[0].layout->dtype == DType::Float64 ? forward<double>(call) : forward<float>(call);
}
void run_backward(const RoutineCall& call) {
  call.in[0].layout->dtype == DType::Float64 ? backward<double>(call) : backward<float>(call);
}

RL_ROUTINE(lstm_sequence, run_forward)
RL_ROUTINE(lstm_sequence_backward, run_backward)

}  // namespace
}  // namespace rl
