// An iteration space -> a plan: loops merged and fitted to the kernel's axes; a plan and pointers
// -> the work done.
// Invariant: merging, splitting, tiling and excess loops never change which elements meet, nor the
// order within a row: row loops keep the order of dims, so that folds and indices do not depend on
// strides.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

#include "error.h"
#include "kernels.h"
#include "space.h"
#include "threads.h"

namespace rl {
namespace {

constexpr int kNumbers = 128;              // most numbers a kernel call takes
constexpr int32_t kUsesCounter = 1 << 30, kOwnTiles = 1 << 29;  // in KernelEntry::serial
// A tile's elements along the axis that an operand runs on, and along the output's: rows a multiple
// of 4 KB apart all fall on one set of the first cache, which holds 8 to 12 lines; 16 read at once
// leave each other there long enough. Measured, see time_rt.cpp.
constexpr int64_t kTile = 64, kTileOut = 16, kTileFrom = 32;
constexpr double kOperationNs = 0.06, kByteNs = 0.02;  // of one thread, vectorised, from L2
constexpr double kSplitNs = 25e3, kPieceNs = 10e3, kReleaseNs = 20e3;

// Drops loops of one step and joins neighbours that every buffer walks as one. Returns the new
// count.
int merge(Loop* loops, int count, int nbuf) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    if (loops[i].size == 1) continue;
    if (kept) {
      Loop& outer = loops[kept - 1];
      bool one = outer.counter == loops[i].counter * loops[i].size;
      for (int b = 0; b < nbuf && one; ++b)
        one = outer.stride[b] == loops[i].stride[b] * loops[i].size;
      if (one) {
        const int64_t size = outer.size * loops[i].size;
        outer = loops[i];
        outer.size = size;
        continue;
      }
    }
    if (kept != i) loops[kept] = loops[i];
    ++kept;
  }
  return kept;
}

// Outer loops by descending stride: of the outputs for scalar kernels, of the full operands where
// there are rows.
void sort(const Recipe& recipe, bool has_rows, Loop* loops, int count) {
  int buffers[kBuffers], n = 0, perm[kMaxDims];
  const auto outputs = [&] {
    for (int o = 0; o < recipe.noutputs; ++o) buffers[n++] = recipe.ninputs + o;
  };
  const auto operands = [&](Operand kind) {
    for (int i = 0; i < recipe.ninputs; ++i)
      if (recipe.in[i] == kind) buffers[n++] = i;
  };
  if (!has_rows) outputs();
  operands(Operand::Full);
  if (has_rows) outputs();
  operands(Operand::PerRow);
  order_loops(count, loops, n, buffers, perm);
  Loop sorted[kMaxDims];
  for (int i = 0; i < count; ++i) sorted[i] = loops[perm[count - 1 - i]];
  std::copy(sorted, sorted + count, loops);
}

// Axis a of `axes` in numbers laid out as kernels.h says.
void put(int64_t* n, int axes, int nbuf, int a, const Loop& loop) {
  n[a] = loop.size;
  for (int b = 0; b < nbuf; ++b) n[axes * (1 + b) + a] = loop.stride[b];
  n[axes * (1 + nbuf) + a] = loop.counter;
}

// Whether the call is one row, long and without gaps.
bool one_long_row(const LoopPlan* plan, const Recipe& recipe) {
  const int axes = plan->axes, last = axes - 1;
  if (plan->kernel->inner == 0 || plan->excess || plan->n[last] < 2 * kBlock) return false;
  for (int a = 0; a < last; ++a)
    if (plan->n[a] != 1) return false;
  for (int b = 0; b < plan->nbuf; ++b) {
    const bool out = b >= recipe.ninputs;
    if (out ? recipe.out[b - recipe.ninputs] == Output::KeepRow ||
                  recipe.out[b - recipe.ninputs] == Output::DropRow
            : recipe.in[b] != Operand::Full)
      continue;
    if (plan->n[axes * (1 + b) + last] != 1) return false;
  }
  return true;
}

void choose_split(LoopPlan* plan, const Recipe& recipe, int no_split_excess, bool row_is_range) {
  const int64_t* m = plan->n + plan->count;
  double elements = 1, bytes = 0;
  const int worked = row_is_range ? plan->kernel->outer : plan->axes;
  for (int a = 0; a < worked; ++a) elements *= static_cast<double>(plan->n[a]);
  for (int e = 0; e < plan->excess; ++e) elements *= static_cast<double>(m[e]);
  for (int b = 0; b < plan->nbuf; ++b)
    if (b >= recipe.ninputs || recipe.in[b] == Operand::Full)
      bytes += static_cast<double>(plan->itemsize[b]);
  double ns = elements * (plan->kernel->cost * kOperationNs + bytes * kByteNs);
  plan->split = -1;
  plan->pieces = 1;
  if (ns >= kSplitNs) {
    const int64_t pieces = static_cast<int64_t>(ns / kPieceNs);
    // The outermost axis that feeds all threads well; else the longest. The unit-stride axis of a
    // scalar kernel counts in runs of 64.
    const int64_t enough = 4 * num_threads();
    int64_t best = 1;
    for (int i = 0; i < plan->excess + plan->kernel->outer && best < enough; ++i) {
      const bool excess = i < plan->excess;
      const int axis = excess ? i : i - plan->excess;
      if (excess ? axis < no_split_excess : plan->kernel->serial >> axis & 1) continue;
      int64_t size = excess ? m[axis] : plan->n[axis];
      if (!excess && plan->kernel->inner == 0 && axis == plan->kernel->outer - 1) size /= 64;
      if (size <= best) continue;
      best = size;
      plan->split = excess ? plan->axes + axis : axis;
    }
    if (plan->split >= 0) {
      plan->pieces = std::min(pieces, best);
    } else if (one_long_row(plan, recipe)) {
      plan->phased = recipe.phased;
      plan->long_row = plan->phased ? nullptr : long_row_of(plan->kernel);
      if (plan->phased || plan->long_row)
        plan->pieces = std::min(pieces, (plan->n[plan->axes - 1] + kBlock - 1) / kBlock);
    }
    ns /= static_cast<double>(std::min<int64_t>(plan->pieces, num_threads()));
  }
  plan->release = ns > kReleaseNs;
}

// A copy whose unit strides lie on different axes runs in tiles, so that lines are used up while
// they are cached.
void choose_tile(LoopPlan* plan, const Recipe& recipe) {
  plan->tile[0] = plan->tile[1] = -1;
  const int axes = plan->axes, last = axes - 1;
  if (plan->kernel->serial & kOwnTiles) return;
  if (plan->kernel->inner != 0 || axes != 3 || plan->n[last] < kTileFrom) return;
  const auto stride = [&](int b, int a) { return std::abs(plan->n[axes * (1 + b) + a]); };
  if (stride(recipe.ninputs, last) != 1) return;
  for (int b = 0; b < recipe.ninputs; ++b) {
    for (int a = 0; a < last; ++a) {
      if (stride(b, a) == 1 && stride(b, last) >= kTileFrom && plan->n[a] >= kTileFrom) {
        plan->tile[0] = a;
        plan->tile[1] = last;
        return;
      }
    }
  }
}

LoopPlan* fit(const char* op, const Recipe& recipe, Layout* const* inputs, Space& space) {
  const KernelEntry* kernel = recipe.kernel;
  const int axes = kernel->outer + kernel->inner, nbuf = space.nbuf;
  const bool table = recipe.rule == Rule::Table || recipe.rule == Rule::IntoTable;
  if (kernel->inputs != recipe.ninputs || kernel->outputs != recipe.noutputs ||
      axes * (2 + nbuf) + 1 > kNumbers || (table && (kernel->outer != 2 || kernel->inner < 1)))
    fail(ErrorKind::Runtime,
         "[%s] kernel %s takes %d operands, %d outputs and %d + %d loops, which does not fit its "
         "recipe",
         op, kernel->key, kernel->inputs, kernel->outputs, kernel->outer, kernel->inner);

  for (int g = 0; g < 3; ++g)
    for (int i = 0; i < space.count[g] && !(kernel->serial & kUsesCounter); ++i)
      space.loops[g][i].counter = 0;
  const int32_t serial = kernel->serial & ~(kUsesCounter | kOwnTiles);
  if (!space.ordered && !serial)
    sort(recipe, space.count[Space::kRow] > 0, space.loops[Space::kOuter],
         space.count[Space::kOuter]);
  for (int g = 0; g < 3; ++g) space.count[g] = merge(space.loops[g], space.count[g], nbuf);
  // Where there is nothing to walk, strides mean nothing: rows are one loop of the right length.
  bool nothing = false;
  for (int g = 0; g < 3; ++g)
    for (int i = 0; i < space.count[g]; ++i) nothing = nothing || space.loops[g][i].size == 0;
  for (; nothing && space.count[Space::kRow] > 1; --space.count[Space::kRow]) {
    Loop* last = space.loops[Space::kRow] + space.count[Space::kRow] - 1;
    last[-1].size *= last->size;
  }
  const int rows = space.count[Space::kRow];
  if (rows > kernel->inner)
    fail(ErrorKind::NotImplemented,
         "[%s] row dimensions need %d loops and kernel %s has %d: make the operand contiguous", op,
         rows, kernel->key, kernel->inner);

  // Which group each outer axis belongs to: a table's axis 1 is its trailing dims.
  const int split_at = table ? 1 : kernel->outer;
  const int room[2] = {split_at, kernel->outer - split_at};
  int excess[2];
  for (int g = 0; g < 2; ++g) excess[g] = std::max(0, space.count[g] - room[g]);
  const int extra = excess[0] + excess[1], count = axes * (2 + nbuf) + 1;
  const size_t numbers = static_cast<size_t>(count + extra * (2 + nbuf));
  LoopPlan* plan =
      static_cast<LoopPlan*>(std::calloc(1, sizeof(LoopPlan) + sizeof(int64_t) * numbers));
  if (!plan) fail(ErrorKind::Memory, "[%s] no memory for a plan", op);
  plan->kernel = kernel;
  plan->nbuf = nbuf;
  plan->axes = axes;
  plan->count = count;
  plan->excess = extra;
  plan->zero_out = recipe.rule == Rule::IntoTable;
  Loop one = {};
  one.size = 1;
  for (int a = 0; a < axes; ++a) put(plan->n, axes, nbuf, a, one);
  int64_t* m = plan->n + count;
  for (int g = 0, at = 0; g < 2; ++g) {
    const int first = g ? split_at : 0;
    for (int i = 0; i < space.count[g]; ++i) {
      const Loop& loop = space.loops[g][i];
      if (i < excess[g])
        put(m, extra, nbuf, at++, loop);
      else
        put(plan->n, axes, nbuf, first + room[g] - space.count[g] + i, loop);
    }
  }
  for (int i = 0; i < rows; ++i)
    put(plan->n, axes, nbuf, axes - rows + i, space.loops[Space::kRow][i]);
  for (int b = 0; b < recipe.ninputs; ++b) plan->itemsize[b] = itemsize(inputs[b]->dtype);
  for (int b = 0; b < recipe.noutputs; ++b)
    plan->itemsize[recipe.ninputs + b] = itemsize(recipe.out_dtype[b]);
  // Where an axis is serial, so are the loops that were cut off its group: for tables the first,
  // else all.
  plan->split = plan->tile[0] = plan->tile[1] = -1;
  if (!kernel->fn) return plan;  // a device's: it has its own ways to share out the work
  choose_split(plan, recipe, serial ? (table ? excess[0] : extra) : 0, space.row_is_range);
  choose_tile(plan, recipe);
  return plan;
}

// ---- running

struct Walk {
  const LoopPlan* plan;
  const Number* numbers;
  char* p[kBuffers];
  int64_t n[kNumbers];
  int64_t excess[kMaxDims];  // sizes

  int64_t& base() { return n[plan->axes * (2 + plan->nbuf)]; }

  // Moves every buffer and the element counter along an axis (axes + e: excess loop e).
  void move(int axis, int64_t steps) {
    const LoopPlan& l = *plan;
    const bool extra = axis >= l.axes;
    const int stride = extra ? l.excess : l.axes;
    const int64_t* from = extra ? l.n + l.count + axis - l.axes : l.n + axis;
    for (int b = 0; b < l.nbuf; ++b) p[b] += steps * from[stride * (1 + b)] * l.itemsize[b];
    base() += steps * from[stride * (1 + l.nbuf)];
  }

  int64_t& size(int axis) { return axis >= plan->axes ? excess[axis - plan->axes] : n[axis]; }

  // `body` at each chunk of an axis; stops at the first code that is not 0.
  template <class Body>
  int64_t chunks(int axis, int64_t chunk, Body body) {
    const int64_t whole = size(axis);
    int64_t done = 0, code = 0;
    for (; done < whole && code == 0; done += chunk) {
      size(axis) = std::min(chunk, whole - done);
      code = body();
      move(axis, chunk);
    }
    move(axis, -done);
    size(axis) = whole;
    return code;
  }

  int64_t call() { return plan->kernel->fn(reinterpret_cast<void* const*>(p), n, numbers); }

  int64_t tiles() {
    const int a = plan->tile[0], b = plan->tile[1];
    if (a < 0) return call();
    return chunks(a, kTile, [&] {
      // An axis between the two is walked here, or a tile would run on along it.
      return chunks(1, a == 0 ? 1 : n[1],
                    [&] { return chunks(b, kTileOut, [&] { return call(); }); });
    });
  }

  int64_t run(int e = 0) {
    if (e == plan->excess) return tiles();
    return chunks(plan->axes + e, 1, [&] { return run(e + 1); });
  }
};

struct Job {
  const Walk* walk;
  int64_t unit;  // elements of the split axis in a share
  std::mutex lock;
  int64_t code = 0, first = INT64_MAX;
};

void run_share(void* context, int64_t begin, int64_t end) {
  Job& job = *static_cast<Job*>(context);
  Walk walk = *job.walk;
  const int axis = walk.plan->split;
  const int64_t size = walk.size(axis), from = begin * job.unit;
  walk.size(axis) = std::min(size, end * job.unit) - from;
  walk.move(axis, from);
  if (const int64_t code = walk.run()) {
    const std::lock_guard<std::mutex> hold(job.lock);
    if (begin < job.first) {  // report what one thread would have met first
      job.first = begin;
      job.code = code;
    }
  }
}

// The lanes of all blocks side by side, then added up in order: the bits of one thread.
struct LongRowJob {
  const LoopPlan* plan;
  void* const* pointers;
  const Number* numbers;
  char* kept;
};

void run_blocks(void* context, int64_t begin, int64_t end) {
  const LongRowJob& job = *static_cast<LongRowJob*>(context);
  job.plan->long_row->blocks(job.pointers, job.plan->n, job.numbers, job.kept, begin, end);
}

int64_t run_long_row(const LoopPlan* plan, void* const* pointers, const Number* numbers,
                     int threads) {
  const int64_t blocks = (plan->n[plan->axes - 1] + kBlock - 1) / kBlock;
  const auto bytes = static_cast<size_t>(blocks * plan->long_row->size);
  const std::unique_ptr<char[]> kept(new (std::nothrow) char[bytes]);
  if (!kept) return plan->kernel->fn(pointers, plan->n, numbers);
  LongRowJob job = {plan, pointers, numbers, kept.get()};
  const int64_t most = std::min<int64_t>(plan->pieces, threads);
  parallel_for(blocks, (blocks + most - 1) / most, run_blocks, &job);
  plan->long_row->join(pointers, plan->n, numbers, kept.get(), 0, blocks);
  return 0;
}

// A row in phases, each after the one before it.
struct PhaseJob {
  const LoopPlan* plan;
  void* const* pointers;
  const Number* numbers;
  char* kept;
  int64_t phase;
};

void run_phase(void* context, int64_t begin, int64_t end) {
  const PhaseJob& job = *static_cast<PhaseJob*>(context);
  job.plan->phased->part(
      job.pointers, job.plan->n, job.numbers, job.kept, job.phase, begin, end);
}

int64_t run_phased(const LoopPlan* plan, void* const* pointers, const Number* numbers,
                   int threads) {
  const PhasedRow& row = *plan->phased;
  const int64_t blocks = (plan->n[plan->axes - 1] + kBlock - 1) / kBlock;
  const auto bytes = static_cast<size_t>(row.state + blocks * row.size);
  const std::unique_ptr<char[]> kept(new (std::nothrow) char[bytes]);
  if (!kept) return plan->kernel->fn(pointers, plan->n, numbers);
  PhaseJob job = {plan, pointers, numbers, kept.get(), 0};
  const int64_t most = std::min<int64_t>(plan->pieces, threads);
  for (; job.phase < row.phases; ++job.phase) {
    if (row.parallel >> job.phase & 1)
      parallel_for(blocks, (blocks + most - 1) / most, run_phase, &job);
    else
      run_phase(&job, 0, blocks);
  }
  return 0;
}

}  // namespace

LoopPlan* loop_plan(const char* op, const Recipe& recipe, Layout* const* inputs,
                    Layout* const* given, const int64_t* sizes, int nsizes, Layout** outs) {
  Space space;
  make_space(op, recipe, inputs, given, sizes, nsizes, outs, &space);
  try {
    LoopPlan* plan = fit(op, recipe, inputs, space);
    plan->empty = true;
    for (int o = 0; o < recipe.noutputs; ++o) plan->empty = plan->empty && outs[o]->numel == 0;
    return plan;
  } catch (...) {
    for (int o = 0; o < recipe.noutputs; ++o) decref(outs[o]), outs[o] = nullptr;
    throw;
  }
}

int64_t loop_run(const LoopPlan* plan, void* const* pointers, const Number* numbers) {
  if (plan->empty) return 0;
  const bool shared = plan->split >= 0 || plan->long_row || plan->phased;
  const int threads = shared ? thread_limit() : 1;
  if (threads == 1 && plan->excess == 0 && plan->tile[0] < 0)
    return plan->kernel->fn(pointers, plan->n, numbers);
  if (plan->long_row) return run_long_row(plan, pointers, numbers, threads);
  if (plan->phased && threads > 1) return run_phased(plan, pointers, numbers, threads);

  Walk walk;
  walk.plan = plan;
  walk.numbers = numbers;
  for (int b = 0; b < plan->nbuf; ++b) walk.p[b] = static_cast<char*>(pointers[b]);
  std::copy(plan->n, plan->n + plan->count, walk.n);
  std::copy(plan->n + plan->count, plan->n + plan->count + plan->excess, walk.excess);
  if (threads == 1) return walk.run();

  // Shares are whole cache lines of the unit-stride axis, whole tiles of a tiled one, else single
  // steps.
  const int axis = plan->split;
  const bool runs = plan->kernel->inner == 0 && axis == plan->axes - 1;
  Job job;
  job.walk = &walk;
  job.unit = runs ? 64 : axis == plan->tile[0] ? kTile : 1;
  const int64_t units = (walk.size(axis) + job.unit - 1) / job.unit;
  const int64_t most = std::min<int64_t>(plan->pieces, threads);
  parallel_for(units, (units + most - 1) / most, run_share, &job);
  return job.code;
}

}  // namespace rl
