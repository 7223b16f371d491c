// A loop plan of a DeviceKernel -> launches.
// Invariant: the first variant whose conditions hold runs, all of its launches on one stream;
// parameters are packed in the order of the record, then Triton's two scratch pointers.
#include "device_kernel.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "cuda_memory.h"
#include "cuda_queue.h"
#include "error.h"

namespace rl::cuda {
namespace {

constexpr int kMostParameters = 192, kMostWorks = 8, kDepth = 24;
constexpr int kSharedByDefault = 48 << 10;

struct WordOp {
  const char* word;
  Step::Op op;
};
constexpr WordOp kWords[] = {
    {"+", Step::Add}, {"-", Step::Sub},        {"*", Step::Mul},   {"//", Step::Div},
    {"%", Step::Mod}, {"cdiv", Step::CeilDiv}, {"min", Step::Min}, {"max", Step::Max},
    {"==", Step::Eq}, {"!=", Step::Ne},        {"<", Step::Lt},    {"<=", Step::Le},
    {">", Step::Gt},  {">=", Step::Ge},        {"and", Step::And}, {"or", Step::Or}};

bool read_integer(const std::string& text, int64_t* out) {
  if (text.empty()) return false;
  char* end;
  *out = std::strtoll(text.c_str(), &end, 10);
  return *end == 0;
}

// "n12" with the letter n -> 12, below `limit`.
bool read_index(const std::string& word, char letter, int limit, int64_t* out) {
  return word.size() > 1 && word[0] == letter && word[1] >= '0' && word[1] <= '9' &&
         read_integer(word.substr(1), out) && *out < limit;
}

int64_t apply(Step::Op op, int64_t a, int64_t b) {
  switch (op) {
    case Step::Add:
      return a + b;
    case Step::Sub:
      return a - b;
    case Step::Mul:
      return a * b;
    case Step::Div:
      return b ? a / b : 0;
    case Step::Mod:
      return b ? a % b : 0;
    case Step::CeilDiv:
      return b ? (a + b - 1) / b : 0;
    case Step::Min:
      return std::min(a, b);
    case Step::Max:
      return std::max(a, b);
    case Step::Eq:
      return a == b;
    case Step::Ne:
      return a != b;
    case Step::Lt:
      return a < b;
    case Step::Le:
      return a <= b;
    case Step::Gt:
      return a > b;
    case Step::Ge:
      return a >= b;
    case Step::And:
      return a && b;
    case Step::Or:
      return a || b;
    default:
      return 0;
  }
}

// ---- errors that kernels write

constexpr uint64_t kSlots = 4096;

struct Slot {
  char op[64], line[192];
  Stream stream;
};
struct Errors {
  int64_t* words = nullptr;  // pinned: the device writes, the host reads
  Slot* slots = nullptr;
  uint64_t next = 0, checked = 0;
};

Errors& errors(int device) {
  static Errors* all = new Errors[kMaxDevices];
  return all[device];
}

void (*user_line)(char*, size_t) = nullptr;

std::vector<Module>& dead_modules(int device) {
  static auto* all = new std::vector<Module>[kMaxDevices];
  return all[device];
}

// A word for one launch; where all are taken, the host waits for the device first.
int64_t* error_word(int device, const char* op) {
  Errors& e = errors(device);
  if (!e.words) {
    const Driver& d = activate(device);
    void* at = nullptr;
    check(d.host_allocate(&at, kSlots * sizeof(int64_t), kHostPortable | kHostMapped),
          "cuMemHostAlloc");
    std::memset(at, 0, kSlots * sizeof(int64_t));
    e.words = static_cast<int64_t*>(at);
    e.slots = new Slot[kSlots];
  }
  if (e.next - e.checked == kSlots) {
    device_synchronize(device);
    raise_kernel_errors(device, true);
  }
  Slot& s = e.slots[e.next % kSlots];
  std::snprintf(s.op, sizeof s.op, "%s", op);
  s.line[0] = 0;
  if (user_line) user_line(s.line, sizeof s.line);
  s.stream = current_stream(device);
  return e.words + e.next++ % kSlots;
}

}  // namespace

Expression parse_expression(const std::string& words, int numbers, int buffers) {
  Expression e;
  std::istringstream in(words);
  std::string word;
  int depth = 0, deepest = 0;
  while (in >> word) {
    int64_t value;
    const WordOp* op = std::find_if(std::begin(kWords), std::end(kWords),
                                    [&](const WordOp& w) { return word == w.word; });
    if (op != std::end(kWords)) {
      e.push_back({op->op, 0});
      --depth;
    } else if (read_index(word, 'n', numbers, &value)) {
      e.push_back({Step::Size, value});
      ++depth;
    } else if (read_index(word, 'p', buffers, &value)) {
      e.push_back({Step::Pointer, value});
      ++depth;
    } else if (read_integer(word, &value)) {
      e.push_back({Step::Literal, value});
      ++depth;
    } else {
      fail(ErrorKind::Value,
           "[DeviceKernel] no word '%s' in the expression '%s' (%d numbers, %d buffers)",
           word.c_str(), words.c_str(), numbers, buffers);
    }
    deepest = std::max(deepest, depth);
    if (depth < 1) break;
  }
  if (depth != 1 || deepest > kDepth)
    fail(ErrorKind::Value, "[DeviceKernel] the expression '%s' leaves %d values; one is expected",
         words.c_str(), depth);
  return e;
}

int64_t evaluate(const Expression& e, const int64_t* n, void* const* p) {
  int64_t stack[kDepth + 1];
  int top = 0;
  for (const Step& s : e) {
    if (s.op == Step::Literal) {
      stack[top++] = s.value;
    } else if (s.op == Step::Size) {
      stack[top++] = n[s.value];
    } else if (s.op == Step::Pointer) {
      stack[top++] = reinterpret_cast<int64_t>(p[s.value]);
    } else {
      --top;
      stack[top - 1] = apply(s.op, stack[top - 1], stack[top]);
    }
  }
  return stack[0];
}

Parameter parse_parameter(const std::string& word, int numbers, int buffers, int scalars,
                          int works) {
  int64_t index;
  if (word == "err") return {Parameter::Error, 0, {}};
  if (read_index(word, 'p', buffers, &index))
    return {Parameter::Buffer, static_cast<int>(index), {}};
  if (read_index(word, 'w', works, &index)) return {Parameter::Work, static_cast<int>(index), {}};
  const size_t colon = word.rfind(':');
  if (colon != std::string::npos) {
    const std::string head = word.substr(0, colon), type = word.substr(colon + 1);
    if (head[0] == 's' && read_index(head, 's', scalars, &index)) {
      const char* const types[] = {"f32", "f64", "i32", "i64"};
      for (int t = 0; t < 4; ++t)
        if (type == types[t])
          return {
              static_cast<Parameter::Kind>(Parameter::Float32 + t), static_cast<int>(index), {}};
    }
    std::string words = head;
    if (head.size() > 3 && head.compare(0, 2, "e<") == 0 && head.back() == '>')
      words = head.substr(2, head.size() - 3);
    if ((head[0] == 'n' || head[0] == 'e') && (type == "i32" || type == "i64"))
      return {type == "i32" ? Parameter::Value32 : Parameter::Value64, 0,
              parse_expression(words, numbers, 0)};
  }
  fail(ErrorKind::Value,
       "[DeviceKernel] no parameter '%s' (%d buffers, %d numbers, %d scalars, %d workspaces); "
       "docs/gpu.md lists the forms",
       word.c_str(), buffers, numbers, scalars, works);
}

void DeviceKernel::ready() {
  key = name.c_str();
  origin = from.c_str();
  fn = nullptr;
  int launches = 0;
  if (variants.empty()) fail(ErrorKind::Value, "[DeviceKernel] %s has no variant", key);
  for (Variant& v : variants) {
    v.first = launches;
    launches += static_cast<int>(v.launches.size());
    if (v.work.size() > kMostWorks)
      fail(ErrorKind::Value, "[DeviceKernel] %s has %zu workspaces; %d are possible", key,
           v.work.size(), kMostWorks);
    for (const LaunchSpec& l : v.launches) {
      if (l.image < 0 || l.image >= static_cast<int>(images.size()))
        fail(ErrorKind::Value, "[DeviceKernel] %s: image %d of %zu", key, l.image, images.size());
      if (l.warps < 1 || l.warps > 32 || l.shared < 0)
        fail(ErrorKind::Value, "[DeviceKernel] %s: %d warps, %d shared bytes", key, l.warps,
             l.shared);
      if (l.parameters.size() + 2 > kMostParameters)
        fail(ErrorKind::Value, "[DeviceKernel] %s takes %zu parameters; %d are possible", key,
             l.parameters.size(), kMostParameters - 2);
    }
  }
}

DeviceKernel::~DeviceKernel() {
  for (size_t device = 0; device < loaded_.size(); ++device)
    for (Module m : loaded_[device].modules)
      if (m) dead_modules(static_cast<int>(device)).push_back(m);
}

void unload_dead_modules(int device) {
  std::vector<Module>& dead = dead_modules(device);
  if (dead.empty()) return;
  const Driver& d = activate(device);
  for (Module m : dead) d.module_unload(m);
  dead.clear();
}

// ---- launching

struct Launcher {
  const char* op;
  DeviceKernel* kernel;
  int device;
  const Number* numbers;

  Function function(const LaunchSpec& l, int number) {
    const auto at = static_cast<size_t>(device);
    if (kernel->loaded_.size() <= at) kernel->loaded_.resize(at + 1);
    DeviceKernel::Loaded& loaded = kernel->loaded_[at];
    if (loaded.functions.size() > static_cast<size_t>(number) &&
        loaded.functions[static_cast<size_t>(number)])
      return loaded.functions[static_cast<size_t>(number)];
    size_t launches = 0;
    for (const Variant& v : kernel->variants) launches += v.launches.size();
    loaded.functions.resize(launches);
    loaded.modules.resize(kernel->images.size());
    const Driver& d = activate(device);
    Module& module = loaded.modules[static_cast<size_t>(l.image)];
    const auto told = [&](Result r, const char* what) {
      if (r == kSuccess) return;
      const char* text = nullptr;
      d.error_string(r, &text);
      const Properties& p = properties(device);
      fail(ErrorKind::Runtime,
           "[%s] kernel %s (%s) does not load on cuda:%d (%s, sm_%d%d): %s (%s)", op, kernel->key,
           l.entry.c_str(), device, p.name.c_str(), p.major, p.minor, text ? text : "unknown error",
           what);
    };
    if (!module)
      told(d.module_load(&module, kernel->images[static_cast<size_t>(l.image)].data()),
           "cuModuleLoadData");
    Function f = nullptr;
    told(d.module_function(&f, module, l.entry.c_str()), "cuModuleGetFunction");
    if (l.shared > kSharedByDefault)
      told(d.function_set(f, kMaxDynamicShared, l.shared), "cuFuncSetAttribute");
    return loaded.functions[static_cast<size_t>(number)] = f;
  }

  const Variant* choose(const int64_t* n, void* const* p) const {
    for (const Variant& v : kernel->variants) {
      bool holds = true;
      for (size_t i = 0; i < v.when.size() && holds; ++i) holds = evaluate(v.when[i], n, p) != 0;
      if (holds) return &v;
    }
    return nullptr;
  }

  bool run(const int64_t* n, void* const* p) {
    const Variant* chosen = choose(n, p);
    if (!chosen) return false;
    const Variant& v = *chosen;
    Storage* works[kMostWorks] = {};
    struct Freed {
      Storage** all;
      ~Freed() {
        for (int i = 0; i < kMostWorks; ++i)
          if (all[i]) decref(all[i]);  // what is queued comes first on the same stream
      }
    } freed{works};
    for (size_t i = 0; i < v.work.size(); ++i) {
      const int64_t bytes = evaluate(v.work[i].bytes, n, p);
      works[i] = memory_alloc(device, bytes);
      if (v.work[i].zero) fill_zero(device, works[i]->data, bytes);
    }
    int number = v.first;
    for (const LaunchSpec& l : v.launches) launch(l, number++, n, p, works);
    return true;
  }

  void launch(const LaunchSpec& l, int number, const int64_t* n, void* const* p,
              Storage* const* works) {
    uint64_t values[kMostParameters];
    void* places[kMostParameters];
    int count = 0;
    for (const Parameter& a : l.parameters) {
      uint64_t& v = values[count];
      places[count++] = &v;
      v = 0;
      const auto put = [&](auto x) { std::memcpy(&v, &x, sizeof x); };
      switch (a.kind) {
        case Parameter::Buffer:
          put(p[a.index]);
          break;
        case Parameter::Value32:
          put(static_cast<int32_t>(evaluate(a.value, n, p)));
          break;
        case Parameter::Value64:
          put(evaluate(a.value, n, p));
          break;
        case Parameter::Float32:
          put(static_cast<float>(numbers[a.index].f));
          break;
        case Parameter::Float64:
          put(numbers[a.index].f);
          break;
        case Parameter::Int32:
          put(static_cast<int32_t>(numbers[a.index].i));
          break;
        case Parameter::Int64:
          put(numbers[a.index].i);
          break;
        case Parameter::Work:
          put(works[a.index]->data);
          break;
        case Parameter::Error:
          put(error_word(device, op));
          break;
      }
    }
    for (int i = 0; i < 2; ++i) {  // Triton's scratch pointers
      values[count] = 0;
      places[count] = &values[count];
      ++count;
    }
    int64_t grid[3];
    for (int i = 0; i < 3; ++i) grid[i] = evaluate(l.grid[i], n, p);
    if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return;
    if (grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535)
      fail(ErrorKind::Runtime, "[%s] kernel %s: a grid of %lld x %lld x %lld is too large", op,
           kernel->key, static_cast<long long>(grid[0]), static_cast<long long>(grid[1]),
           static_cast<long long>(grid[2]));
    const Function f = function(l, number);
    const Stream stream = current_stream(device);
    if (count + kLaunchWords <= kQueuedWords && queue_takes(stream))
      return queue(l, f, stream, grid, values, count);
    const auto u = [](int64_t x) { return static_cast<unsigned>(x); };
    const Result r = activate(device).launch(f, u(grid[0]), u(grid[1]), u(grid[2]), u(32 * l.warps),
                                             1, 1, u(l.shared), stream, places, nullptr);
    if (r != kSuccess) {
      const std::string what =
          "[" + std::string(op) + "] kernel " + kernel->key + ", cuLaunchKernel";
      check(r, what.c_str());
    }
    ++kernel->launched;
    ++run_counts().launches;
  }

  // The same launch, made by the queue's thread. Words: the function, two pairs of grid and block, shared
  // bytes, then the parameters.
  static constexpr int kLaunchWords = 4;
  void queue(const LaunchSpec& l, Function f, Stream stream, const int64_t* grid,
             const uint64_t* values, int count) {
    const auto pair = [](int64_t low, int64_t high) {
      return static_cast<uint64_t>(low) | static_cast<uint64_t>(high) << 32;
    };
    Queued& w = queue_next();
    w.run = [](const Driver& d, const Queued& q) {
      void* places[kQueuedWords];
      for (int i = 0; i < q.count; ++i)
        places[i] = const_cast<uint64_t*>(q.words + kLaunchWords + i);
      const auto low = [&](int i) { return static_cast<unsigned>(q.words[i]); };
      const auto high = [&](int i) { return static_cast<unsigned>(q.words[i] >> 32); };
      return d.launch(reinterpret_cast<Function>(q.words[0]), low(1), high(1), low(2), high(2), 1,
                      1, low(3), q.stream, places, nullptr);
    };
    w.stream = stream;
    w.device = device;
    w.count = count;
    w.words[0] = reinterpret_cast<uint64_t>(f);
    w.words[1] = pair(grid[0], grid[1]);
    w.words[2] = pair(grid[2], 32 * l.warps);
    w.words[3] = static_cast<uint64_t>(l.shared);
    std::copy(values, values + count, w.words + kLaunchWords);
    queue_put(op, kernel->key);
    ++kernel->launched;
    ++run_counts().launches;
  }
};

namespace {

// Loops beyond the kernel's: one launch a step.
bool walk(Launcher& launcher, const LoopPlan* plan, int e, int64_t* n, char** p) {
  if (e == plan->excess) return launcher.run(n, reinterpret_cast<void* const*>(p));
  const int64_t* m = plan->n + plan->count;
  int64_t& base = n[plan->axes * (2 + plan->nbuf)];
  char* saved[kMaxInputs + kMaxOutputs];
  std::copy(p, p + plan->nbuf, saved);
  const int64_t saved_base = base;
  bool ran = true;
  for (int64_t i = 0; i < m[e] && ran; ++i) {
    ran = walk(launcher, plan, e + 1, n, p);
    for (int b = 0; b < plan->nbuf; ++b) p[b] += m[plan->excess * (1 + b) + e] * plan->itemsize[b];
    base += m[plan->excess * (1 + plan->nbuf) + e];
  }
  std::copy(saved, saved + plan->nbuf, p);
  base = saved_base;
  return ran;
}

}  // namespace

bool device_run(const char* op, const LoopPlan* plan, int device, void* const* pointers,
                const Number* numbers) {
  if (plan->empty) return true;
  Launcher launcher{op, const_cast<DeviceKernel*>(device_kernel(plan->kernel)), device, numbers};
  if (!plan->excess) return launcher.run(plan->n, pointers);
  std::vector<int64_t> n(plan->n, plan->n + plan->count);
  char* p[kMaxInputs + kMaxOutputs];
  for (int b = 0; b < plan->nbuf; ++b) p[b] = static_cast<char*>(pointers[b]);
  return walk(launcher, plan, 0, n.data(), p);
}

bool device_launch(const char* op, DeviceKernel* kernel, int device, const int64_t* n,
                   void* const* pointers, const Number* numbers) {
  Launcher launcher{op, kernel, device, numbers};
  return launcher.run(n, pointers);
}

std::vector<FunctionFacts> device_kernel_facts(DeviceKernel* kernel, int device) {
  std::vector<FunctionFacts> facts;
  Launcher launcher{"DeviceKernel", kernel, device, nullptr};
  const Driver& d = activate(device);
  for (const Variant& v : kernel->variants) {
    int number = v.first;
    for (const LaunchSpec& l : v.launches) {
      const Function f = launcher.function(l, number++);
      FunctionFacts one{l.entry, -1, -1, l.shared, l.warps};
      d.function_attribute(&one.registers, kNumRegisters, f);
      d.function_attribute(&one.local_bytes, kLocalBytes, f);
      facts.push_back(one);
    }
  }
  return facts;
}

void kernel_error_line(void (*line)(char*, size_t)) { user_line = line; }

// The first error that is written down, and none are any more.
static int64_t taken_error(const Errors& e, const Slot** at) {
  int64_t code = 0;
  for (uint64_t i = e.checked; i < e.next; ++i) {
    volatile int64_t& word = e.words[i % kSlots];
    if (!word) continue;
    if (!code) code = word, *at = &e.slots[i % kSlots];
    word = 0;
  }
  return code;
}

static void raise_error(int64_t code, const Slot* at) {
  if (!code) return;
  const std::string line = at->line[0] ? std::string(" (queued at ") + at->line + ")" : "";
  if (code == INT64_MAX) fail(ErrorKind::Runtime, "[%s] ZeroDivisionError%s", at->op, line.c_str());
  const auto z = static_cast<uint64_t>(code - 1);
  const int64_t value = z & 1 ? -static_cast<int64_t>(z >> 1) - 1 : static_cast<int64_t>(z >> 1);
  fail(ErrorKind::Index, "[%s] index %lld is out of range%s", at->op, static_cast<long long>(value),
       line.c_str());
}

void raise_kernel_errors(int device, bool whole, Stream stream) {
  queue_raise();
  Errors& e = errors(device);
  const Slot* at = nullptr;
  const int64_t code = taken_error(e, &at);
  if (whole) e.checked = e.next;
  while (e.checked < e.next && e.slots[e.checked % kSlots].stream == stream) ++e.checked;
  raise_error(code, at);
}

void kernel_errors_seen(int device) {
  const Slot* at = nullptr;
  const int64_t code = taken_error(errors(device), &at);
  raise_error(code, at);
}

RunCounts& run_counts() {
  static RunCounts counts = {};
  return counts;
}

}  // namespace rl::cuda
