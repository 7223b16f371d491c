// Matrix products by cuBLASLt.
// Invariant: the library thinks in columns, so that out' = y' x' is computed: its first matrix is
// y, its rows are n, and a bias along its rows is a number a column of ours.
#include "cublas.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "cublas_choices.h"
#include "cuda_memory.h"
#include "cuda_queue.h"
#include "error.h"
#include "libraries.h"

namespace rl::cuda {
namespace {

// ---- the few types of the library's interface

typedef int Status;  // cublasStatus_t: 0 is success
typedef struct Handle_* Handle;
typedef struct Description_* Description;  // cublasLtMatmulDesc_t
typedef struct Matrix_* Matrix;            // cublasLtMatrixLayout_t
typedef struct Preference_* Preference;
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

// of a description
constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kBiasType = 26;
// of a matrix
constexpr int kBatchCount = 5, kBatchOffset = 6;
// of a preference
constexpr int kMostWorkspace = 1, kAlignA = 5, kAlignB = 6, kAlignC = 7, kAlignD = 8;
constexpr int kOpN = 0, kOpT = 1;
// epilogues
constexpr int kPlain = 1, kBias = 4;
// cudaDataType
constexpr int kReal32 = 0, kReal64 = 1, kReal16 = 2, kBrain16 = 14;
constexpr int kCompute32 = 68, kComputeTf32 = 77, kCompute64 = 70;
constexpr int64_t kWorkspace = 32 << 20;

struct Library {
  Status (*create)(Handle*);
  size_t (*version)();
  Status (*description_create)(Description*, int compute, int scale);
  Status (*description_set)(Description, int, const void*, size_t);
  Status (*description_destroy)(Description);
  Status (*matrix_create)(Matrix*, int type, uint64_t rows, uint64_t columns, int64_t ld);
  Status (*matrix_set)(Matrix, int, const void*, size_t);
  Status (*matrix_destroy)(Matrix);
  Status (*preference_create)(Preference*);
  Status (*preference_set)(Preference, int, const void*, size_t);
  Status (*preference_destroy)(Preference);
  Status (*heuristic)(Handle, Description, Matrix, Matrix, Matrix, Matrix, Preference, int,
                      Heuristic*, int*);
  Status (*matmul)(Handle, Description, const void*, const void*, Matrix, const void*, Matrix,
                   const void*, const void*, Matrix, void*, Matrix, const uint64_t*, void*, size_t,
                   Stream);
  Handle handles[kMaxDevices] = {};
  VendorLibrary so{
      "cuBLASLt",
      "nvidia-cublas",
      {{&create, "cublasLtCreate"},
       {&version, "cublasLtGetVersion"},
       {&description_create, "cublasLtMatmulDescCreate"},
       {&description_set, "cublasLtMatmulDescSetAttribute"},
       {&description_destroy, "cublasLtMatmulDescDestroy"},
       {&matrix_create, "cublasLtMatrixLayoutCreate"},
       {&matrix_set, "cublasLtMatrixLayoutSetAttribute"},
       {&matrix_destroy, "cublasLtMatrixLayoutDestroy"},
       {&preference_create, "cublasLtMatmulPreferenceCreate"},
       {&preference_set, "cublasLtMatmulPreferenceSetAttribute"},
       {&preference_destroy, "cublasLtMatmulPreferenceDestroy"},
       {&heuristic, "cublasLtMatmulAlgoGetHeuristic"},
       {&matmul, "cublasLtMatmul"}}};
};

Library& library() {
  static auto* one = new Library;  // never destroyed
  return *one;
}

void check_status(Status s, const char* op, const char* what) {
  if (s != 0) fail(ErrorKind::Runtime, "[%s] cuBLASLt refuses: status %d (%s)", op, s, what);
}

// The library's handle of a device whose context is this thread's.
Handle handle_of(int device, const char* op) {
  static std::mutex one_makes_it;
  std::lock_guard<std::mutex> hold(one_makes_it);
  Handle& handle = library().handles[device];
  if (!handle) {
    Handle made = nullptr;
    check_status(library().create(&made), op, "cublasLtCreate");
    handle = made;
  }
  return handle;
}

int type_of(DType d) {
  switch (d) {
    case DType::Float16:
      return kReal16;
    case DType::BFloat16:
      return kBrain16;
    case DType::Float64:
      return kReal64;
    default:
      return kReal32;
  }
}

bool allow_tf32 = false;

int alignment(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  return at ? static_cast<int>(std::min<uintptr_t>(at & (~at + 1), 256)) : 256;
}

// One of the library's matrices: ours, seen by columns.
struct Side {
  int op;
  uint64_t rows, columns;
  int64_t ld, batch;
};

}  // namespace

struct DeviceGemm {
  std::string op;
  DType dtype, out_dtype;
  int64_t b, m, n, k;
  Side first, second, out;  // y, x and out
  enum { None, Vector, Whole, Other } bias;
  Side whole;  // of a bias that is a matrix

  struct Ready {
    uint64_t key;
    Description description;
    Matrix a, b, c, d;
    Choice choice;
  };
  std::vector<Ready> ready;  // by device, alignment, TF32, and how the bias comes

  ~DeviceGemm() {
    queue_drain();
    Library& l = library();
    for (Ready& r : ready) {
      l.description_destroy(r.description);
      for (Matrix x : {r.a, r.b, r.c, r.d}) l.matrix_destroy(x);
    }
  }

  Matrix matrix(const Side& s, DType type) const {
    Library& l = library();
    Matrix made;
    check_status(l.matrix_create(&made, type_of(type), s.rows, s.columns, s.ld), op.c_str(),
                 "cublasLtMatrixLayoutCreate");
    if (b > 1) {
      const int32_t count = static_cast<int32_t>(b);
      l.matrix_set(made, kBatchCount, &count, sizeof count);
      l.matrix_set(made, kBatchOffset, &s.batch, sizeof s.batch);
    }
    return made;
  }

  Ready& get(int device, const void* x, const void* y, const void* c, const void* d, bool epilogue,
             bool from_whole) {
    const int aligned[4] = {alignment(y), alignment(x), alignment(c), alignment(d)};
    uint64_t key = static_cast<uint64_t>(device) << 48 | static_cast<uint64_t>(epilogue) << 41 |
                   static_cast<uint64_t>(from_whole) << 42 |
                   static_cast<uint64_t>(allow_tf32) << 40;
    for (int i = 0; i < 4; ++i) key |= static_cast<uint64_t>(aligned[i]) << (9 * i);
    for (Ready& r : ready)
      if (r.key == key) return r;
    Library& l = library();
    activate(device);
    const Handle handle = handle_of(device, op.c_str());
    Ready r{};
    r.key = key;
    const bool wide = dtype == DType::Float64;
    const int compute = wide                                    ? kCompute64
                        : dtype == DType::Float32 && allow_tf32 ? kComputeTf32
                                                                : kCompute32;
    check_status(l.description_create(&r.description, compute, wide ? kReal64 : kReal32),
                 op.c_str(), "cublasLtMatmulDescCreate");
    l.description_set(r.description, kTransA, &first.op, sizeof(int));
    l.description_set(r.description, kTransB, &second.op, sizeof(int));
    if (epilogue) {
      const int bias_type = type_of(out_dtype);
      l.description_set(r.description, kEpilogue, &kBias, sizeof(int));
      l.description_set(r.description, kBiasType, &bias_type, sizeof(int));
    }
    r.a = matrix(first, dtype);
    r.b = matrix(second, dtype);
    r.c = matrix(from_whole ? whole : out, out_dtype);
    r.d = matrix(out, out_dtype);
    const Question q = question(compute, epilogue, from_whole, aligned);
    if (const Choice* known = choice_known(device, q)) {
      r.choice = *known;
    } else {
      r.choice = ask(handle, r, aligned);
      choice_made(device, q, r.choice);
    }
    ready.push_back(r);
    return ready.back();
  }

  Question question(int compute, bool epilogue, bool from_whole, const int* aligned) const {
    Question q{};
    size_t at = 0;
    const auto put = [&](int64_t v) { q[at++] = v; };
    for (int64_t v : {static_cast<int64_t>(library().version()), int64_t{compute},
                      int64_t{type_of(dtype)}, int64_t{type_of(out_dtype)}, int64_t{epilogue},
                      kWorkspace, b})
      put(v);
    for (const Side* s : {&first, &second, from_whole ? &whole : &out, &out}) {
      for (int64_t v : {int64_t{s->op}, static_cast<int64_t>(s->rows),
                        static_cast<int64_t>(s->columns), s->ld, b > 1 ? s->batch : 0})
        put(v);
    }
    for (int i = 0; i < 4; ++i) put(aligned[i]);
    return q;
  }

  Choice ask(Handle handle, const Ready& r, const int* aligned) const {
    Library& l = library();
    Preference preference;
    check_status(l.preference_create(&preference), op.c_str(), "cublasLtMatmulPreferenceCreate");
    const size_t most = kWorkspace;
    l.preference_set(preference, kMostWorkspace, &most, sizeof most);
    const int places[4] = {kAlignA, kAlignB, kAlignC, kAlignD};
    for (int i = 0; i < 4; ++i) {
      const auto bytes = static_cast<uint32_t>(aligned[i]);
      l.preference_set(preference, places[i], &bytes, sizeof bytes);
    }
    Heuristic found;
    int count = 0;
    const Status s =
        l.heuristic(handle, r.description, r.a, r.b, r.c, r.d, preference, 1, &found, &count);
    l.preference_destroy(preference);
    check_status(s ? s : count < 1 ? 15 : 0, op.c_str(), "cublasLtMatmulAlgoGetHeuristic");
    Choice c;
    std::copy(found.algorithm, found.algorithm + 8, c.algorithm);
    c.workspace = found.workspace;
    return c;
  }
};
static_assert(7 + 4 * 5 + 4 == kQuestionWords);

namespace {

// One call of the library, complete: it may be made later and by another thread.
struct Product {
  Description description;
  Matrix matrices[4];
  Choice choice;
  void* work;
  const void *x, *y, *c, *bias;
  void* out;
  double scales[2];
  bool wide;

  Status run(int device, Stream stream) const {
    const Library& l = library();
    if (bias) l.description_set(description, kBiasPointer, &bias, sizeof bias);
    const float narrow[2] = {static_cast<float>(scales[0]), static_cast<float>(scales[1])};
    const auto scale = [&](int i) {
      return wide ? static_cast<const void*>(&scales[i]) : &narrow[i];
    };
    return l.matmul(l.handles[device], description, scale(0), y, matrices[0], x, matrices[1],
                    scale(1), c, matrices[2], out, matrices[3], choice.algorithm, work,
                    choice.workspace, stream);
  }
};
static_assert(sizeof(Product) <= kQueuedWords * sizeof(uint64_t));

}  // namespace

VendorLibrary& cublas() { return library().so; }

void cublas_prepare(int device) {
  if (!cublas().missing().empty()) return;
  ready(device);
  handle_of(device, "prepare");
}

bool tf32_allowed(int set) {
  const bool before = allow_tf32;
  if (set >= 0) allow_tf32 = set > 0;
  return before;
}

bool device_gemm_takes(DType operands, DType out) {
  return is_floating(operands) && operands == out && cublas().missing().empty();
}

std::shared_ptr<DeviceGemm> device_gemm(const char* op, const Layout* x, const Layout* y,
                                        const Layout* bias, const Layout* out) {
  auto g = std::make_shared<DeviceGemm>();
  g->op = op;
  g->dtype = x->dtype;
  g->out_dtype = out->dtype;
  const int nd = x->ndim;
  g->b = nd == 3 ? x->dims[0] : 1;
  g->m = x->dims[nd - 2];
  g->k = x->dims[nd - 1];
  g->n = y->dims[nd - 1];
  if (y->dims[nd - 2] != g->k || (nd == 3 && y->dims[0] != g->b))
    fail(ErrorKind::Runtime, "[%s] shapes %s and %s cannot be multiplied", op,
         shape_text(nd, x->shape()).c_str(), shape_text(nd, y->shape()).c_str());
  const auto side = [&](const Layout* l, int64_t rows, int64_t columns) {
    // `rows` x `columns` in our order. By rows: the library sees columns x rows, not transposed.
    const int64_t rs = l->strides()[nd - 2], cs = l->strides()[nd - 1];
    Leading lead;
    leading(rows, columns, rs, cs, &lead);
    Side s;
    s.op = lead.transposed ? kOpT : kOpN;
    s.rows = static_cast<uint64_t>(lead.transposed ? rows : columns);
    s.columns = static_cast<uint64_t>(lead.transposed ? columns : rows);
    s.ld = lead.ld;
    s.batch = nd == 3 ? l->strides()[0] : 0;
    return s;
  };
  g->first = side(y, g->k, g->n);
  g->second = side(x, g->m, g->k);
  g->out = side(out, g->m, g->n);
  g->bias = DeviceGemm::None;
  if (bias) {
    const int bn = bias->ndim;
    bool vector = bn >= 1 && bias->dims[bn - 1] == g->n &&
                  (g->n == 1 || bias->strides()[bn - 1] == 1) && bias->dtype == out->dtype;
    for (int d = 0; d < bn - 1; ++d)
      vector = vector && (bias->dims[d] == 1 || bias->strides()[d] == 0);
    const bool whole = bn == nd && std::equal(out->shape(), out->shape() + nd, bias->shape()) &&
                       bias->dtype == out->dtype && bias->strides()[nd - 1] == 1 &&
                       bias->strides()[nd - 2] >= g->n;
    g->bias = vector ? DeviceGemm::Vector : whole ? DeviceGemm::Whole : DeviceGemm::Other;
    if (whole) g->whole = side(bias, g->m, g->n);
  }
  return g;
}

bool device_gemm_lays_bias(const DeviceGemm* g, double beta) {
  return g->bias == DeviceGemm::Other || (g->bias == DeviceGemm::Vector && beta != 1);
}

void device_gemm_run(DeviceGemm* g, int device, const void* x, const void* y, const void* bias,
                     void* out, double alpha, double beta) {
  if (!g->b || !g->m || !g->n) return;
  if (!bias) beta = 0;
  const bool laid = bias == out;
  const bool epilogue = bias && !laid && g->bias == DeviceGemm::Vector;
  const bool whole = bias && !laid && g->bias == DeviceGemm::Whole;
  const void* c = whole ? bias : out;
  const DeviceGemm::Ready& r = g->get(device, x, y, c, out, epilogue, whole);
  Product p{r.description,
            {r.a, r.b, r.c, r.d},
            r.choice,
            nullptr,
            x,
            y,
            c,
            epilogue ? bias : nullptr,
            out,
            {alpha, epilogue ? 0 : beta},
            g->dtype == DType::Float64};
  Storage* work =
      p.choice.workspace ? memory_alloc(device, static_cast<int64_t>(p.choice.workspace)) : nullptr;
  if (work) p.work = work->data;
  const Stream stream = current_stream(device);
  Status s = 0;
  if (queue_takes(stream)) {
    Queued& w = queue_next();
    w.run = [](const Driver&, const Queued& q) {
      Product p;
      std::memcpy(&p, q.words, sizeof p);
      const Status s = p.run(q.device, q.stream);
      return s ? kLibraryStatus + s : kSuccess;
    };
    w.stream = stream;
    w.device = device;
    std::memcpy(w.words, &p, sizeof p);
    queue_put(g->op.c_str(), "cublasLtMatmul");
  } else {
    activate(device);
    s = p.run(device, stream);
  }
  if (work) memory_free(work);
  check_status(s, g->op.c_str(), "cublasLtMatmul");
}

}  // namespace rl::cuda
