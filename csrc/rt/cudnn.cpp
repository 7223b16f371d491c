// Convolutions by cuDNN's convolution calls.
// Invariant: all of a call's tensors lie in C order, or all with channels innermost, as the output
// does; a filter too.
#include "cudnn.h"

#include <algorithm>
#include <string>
#include <vector>

#include "convolution.h"
#include "cuda_memory.h"
#include "error.h"

namespace rl::cuda {

namespace {

typedef int Status;  // cudnnStatus_t: 0 is success
typedef struct Handle_* Handle;
typedef struct TensorDescriptor_* TensorDescriptor;
typedef struct FilterDescriptor_* FilterDescriptor;
typedef struct ConvolutionDescriptor_* ConvolutionDescriptor;
struct Performance {  // cudnnConvolution*AlgoPerf_t
  int algorithm;
  Status status;
  float time;
  size_t memory;
  int determinism, math;
  int reserved[3];
};

constexpr int kFloat = 0, kDouble = 1, kHalf = 2, kBrain = 9;  // cudnnDataType_t
constexpr int kPlanes = 0, kChannelsInside = 1;                // cudnnTensorFormat_t
constexpr int kCrossCorrelation = 1;
constexpr int kDefaultMath = 0, kTensorMath = 1, kFmaMath = 3;
constexpr size_t kWorkspace = size_t{512} << 20;
constexpr int kMostAlgorithms = 8;

struct Library {
  Status (*create)(Handle*);
  Status (*set_stream)(Handle, Stream);
  const char* (*error_string)(Status);
  Status (*tensor_create)(TensorDescriptor*);
  Status (*tensor_set)(TensorDescriptor, int type, int nd, const int*, const int*);
  Status (*tensor_destroy)(TensorDescriptor);
  Status (*filter_create)(FilterDescriptor*);
  Status (*filter_set)(FilterDescriptor, int type, int format, int nd, const int*);
  Status (*filter_destroy)(FilterDescriptor);
  Status (*convolution_create)(ConvolutionDescriptor*);
  Status (*convolution_set)(ConvolutionDescriptor, int nd, const int* pad, const int* stride,
                            const int* dilation, int mode, int type);
  Status (*convolution_groups)(ConvolutionDescriptor, int);
  Status (*convolution_math)(ConvolutionDescriptor, int);
  Status (*convolution_destroy)(ConvolutionDescriptor);
  Status (*forward_choices)(Handle, TensorDescriptor, FilterDescriptor, ConvolutionDescriptor,
                            TensorDescriptor, int, int*, Performance*);
  Status (*data_choices)(Handle, FilterDescriptor, TensorDescriptor, ConvolutionDescriptor,
                         TensorDescriptor, int, int*, Performance*);
  Status (*weights_choices)(Handle, TensorDescriptor, TensorDescriptor, ConvolutionDescriptor,
                            FilterDescriptor, int, int*, Performance*);
  Status (*forward)(Handle, const void*, TensorDescriptor, const void*, FilterDescriptor,
                    const void*, ConvolutionDescriptor, int, void*, size_t, const void*,
                    TensorDescriptor, void*);
  Status (*data)(Handle, const void*, FilterDescriptor, const void*, TensorDescriptor, const void*,
                 ConvolutionDescriptor, int, void*, size_t, const void*, TensorDescriptor, void*);
  Status (*weights)(Handle, const void*, TensorDescriptor, const void*, TensorDescriptor,
                    const void*, ConvolutionDescriptor, int, void*, size_t, const void*,
                    FilterDescriptor, void*);
  Status (*add)(Handle, const void*, TensorDescriptor, const void*, const void*, TensorDescriptor,
                void*);
  Handle handles[kMaxDevices] = {};
  VendorLibrary so{
      "cuDNN",
      "nvidia-cudnn-cu13",
      {{&create, "cudnnCreate"},
       {&set_stream, "cudnnSetStream"},
       {&error_string, "cudnnGetErrorString"},
       {&tensor_create, "cudnnCreateTensorDescriptor"},
       {&tensor_set, "cudnnSetTensorNdDescriptor"},
       {&tensor_destroy, "cudnnDestroyTensorDescriptor"},
       {&filter_create, "cudnnCreateFilterDescriptor"},
       {&filter_set, "cudnnSetFilterNdDescriptor"},
       {&filter_destroy, "cudnnDestroyFilterDescriptor"},
       {&convolution_create, "cudnnCreateConvolutionDescriptor"},
       {&convolution_set, "cudnnSetConvolutionNdDescriptor"},
       {&convolution_groups, "cudnnSetConvolutionGroupCount"},
       {&convolution_math, "cudnnSetConvolutionMathType"},
       {&convolution_destroy, "cudnnDestroyConvolutionDescriptor"},
       {&forward_choices, "cudnnGetConvolutionForwardAlgorithm_v7"},
       {&data_choices, "cudnnGetConvolutionBackwardDataAlgorithm_v7"},
       {&weights_choices, "cudnnGetConvolutionBackwardFilterAlgorithm_v7"},
       {&forward, "cudnnConvolutionForward"},
       {&data, "cudnnConvolutionBackwardData"},
       {&weights, "cudnnConvolutionBackwardFilter"},
       {&add, "cudnnAddTensor"}}};
};

Library& library() {
  static auto* one = new Library;  // never destroyed
  return *one;
}

void check_status(Status s, const char* op, const char* what) {
  if (s != 0)
    fail(ErrorKind::Runtime, "[%s] cuDNN refuses: %s (%s)", op, library().error_string(s), what);
}

int type_of(DType d) {
  return d == DType::Float16    ? kHalf
         : d == DType::BFloat16 ? kBrain
         : d == DType::Float64  ? kDouble
                                : kFloat;
}

bool allow_tf32 = true;  // PyTorch's default for convolutions

bool channels_inside(const Layout* l) {  // [n, space..., c] without gaps
  int64_t step = 1;
  const auto fits = [&](int d) {
    const bool ok = l->dims[d] == 1 || l->strides()[d] == step;
    step *= l->dims[d];
    return ok;
  };
  bool ok = fits(1);
  for (int d = l->ndim - 1; d >= 2; --d) ok = ok && fits(d);
  return ok && fits(0);
}

Layout* laid(const Layout* l, bool inside) {
  if (!inside) return layout_dense(l->dtype, l->device, l->ndim, l->shape());
  int64_t strides[kMaxDims], step = l->dims[1];
  strides[1] = 1;
  for (int d = l->ndim - 1; d >= 2; --d) {
    strides[d] = step;
    step *= l->dims[d];
  }
  strides[0] = step;
  return layout_intern(l->dtype, l->device, l->ndim, l->shape(), strides);
}

// Four dims at least: a space of one dim gets another of one step.
int extended(const Layout* l, bool with_strides, int* sizes, int* strides) {
  int n = 0;
  for (int d = 0; d < l->ndim; ++d) {
    if (d == 2 && l->ndim == 3) {
      sizes[n] = 1;
      if (with_strides) strides[n] = static_cast<int>(l->dims[2] * l->strides()[2]);
      ++n;
    }
    sizes[n] = static_cast<int>(l->dims[d]);
    if (with_strides) strides[n] = static_cast<int>(l->strides()[d]);
    ++n;
  }
  return n;
}

}  // namespace

VendorLibrary& cudnn() { return library().so; }

bool cudnn_tf32_allowed(int set) {
  const bool before = allow_tf32;
  if (set >= 0) allow_tf32 = set > 0;
  return before;
}

struct DeviceConvolution {
  std::string op;
  Product product;
  bool inside, bias, tf32 = false;
  DType dtype;
  int nin;
  Layout *wanted[3] = {}, *out = nullptr;  // owned
  TensorDescriptor x = nullptr, y = nullptr, bias_shape = nullptr;
  FilterDescriptor w = nullptr;
  ConvolutionDescriptor description = nullptr;
  Performance chosen = {};
  int chosen_for = -1;  // device

  ~DeviceConvolution() {
    for (Layout* l : {wanted[0], wanted[1], wanted[2], out})
      if (l) decref(l);
    Library& l = library();
    if (x) l.tensor_destroy(x);
    if (y) l.tensor_destroy(y);
    if (bias_shape) l.tensor_destroy(bias_shape);
    if (w) l.filter_destroy(w);
    if (description) l.convolution_destroy(description);
  }

  TensorDescriptor tensor(const Layout* l) const {
    int sizes[8], strides[8];
    const int n = extended(l, true, sizes, strides);
    TensorDescriptor made;
    check_status(library().tensor_create(&made), op.c_str(), "cudnnCreateTensorDescriptor");
    check_status(library().tensor_set(made, type_of(l->dtype), n, sizes, strides), op.c_str(),
                 "cudnnSetTensorNdDescriptor");
    return made;
  }

  bool choose(int device, Handle handle) {
    if (chosen_for == device && tf32 == allow_tf32) return true;
    Library& l = library();
    tf32 = allow_tf32;
    chosen_for = -1;
    const bool half = dtype == DType::Float16 || dtype == DType::BFloat16;
    const int math = half                               ? kTensorMath
                     : dtype == DType::Float32 && !tf32 ? kFmaMath
                                                        : kDefaultMath;
    l.convolution_math(description, math);
    Performance found[kMostAlgorithms];
    int count = 0;
    const Status s =
        product == Product::Forward
            ? l.forward_choices(handle, x, w, description, y, kMostAlgorithms, &count, found)
        : product == Product::Data
            ? l.data_choices(handle, w, y, description, x, kMostAlgorithms, &count, found)
            : l.weights_choices(handle, x, y, description, w, kMostAlgorithms, &count, found);
    for (int i = 0; s == 0 && i < count; ++i) {
      if (found[i].status != 0 || found[i].memory > kWorkspace) continue;
      chosen = found[i];
      chosen_for = device;
      l.convolution_math(description, dtype == DType::Float32 && !tf32 ? kFmaMath : chosen.math);
      return true;
    }
    return false;
  }

  Handle handle(int device) const {
    Library& l = library();
    activate(device);
    Handle& h = l.handles[device];
    if (!h) check_status(l.create(&h), op.c_str(), "cudnnCreate");
    check_status(l.set_stream(h, current_stream(device)), op.c_str(), "cudnnSetStream");
    return h;
  }
};

std::shared_ptr<DeviceConvolution> device_convolution(const char* op, const Layout* const* in,
                                                      int nin, const Layout* out,
                                                      const int64_t* ints, int nints) {
  if (nin < 2 || nints < 3 || !is_floating(out->dtype)) return nullptr;
  const int nd = static_cast<int>(ints[1]);
  if (nd < 1 || nd > 3 || nints < 3 + 3 * nd) return nullptr;
  if (!in[0]->numel || !in[1]->numel || !out->numel) return nullptr;
  for (const Layout* l : {in[0], in[1], out})
    if (l->ndim != nd + 2 || l->numel > INT32_MAX || l->dtype != out->dtype) return nullptr;
  auto c = std::make_shared<DeviceConvolution>();
  c->op = op;
  c->product = static_cast<Product>(ints[0]);
  c->dtype = out->dtype;
  c->nin = nin;
  c->bias = nin > 2;
  c->inside = !out->contiguous && channels_inside(out);
  if (!c->inside && !out->contiguous) return nullptr;
  c->wanted[0] = laid(in[0], c->inside);
  c->wanted[1] = laid(in[1], c->inside);
  if (nin > 2)
    c->wanted[2] = layout_dense(in[2]->dtype, in[2]->device, in[2]->ndim, in[2]->shape());
  c->out = laid(out, c->inside);
  const Product product = c->product;
  const Layout* x = product == Product::Data ? c->out : c->wanted[0];
  const Layout* w = product == Product::Weights ? c->out : c->wanted[1];
  const Layout* y = product == Product::Forward ? c->out
                    : product == Product::Data  ? c->wanted[0]
                                                : c->wanted[1];
  int pad[3] = {}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  const int extra = nd == 1;
  for (int d = 0; d < nd; ++d) {
    const int64_t s = ints[3 + d], p = ints[3 + nd + d], dil = ints[3 + 2 * nd + d];
    // The library pads both ends alike: what it would make must be what is asked.
    if (p < 0 ||
        1 + (x->dims[2 + d] + 2 * p - (dil * (w->dims[2 + d] - 1) + 1)) / s != y->dims[2 + d])
      return nullptr;
    stride[d + extra] = static_cast<int>(s);
    pad[d + extra] = static_cast<int>(p);
    dilation[d + extra] = static_cast<int>(dil);
  }
  Library& l = library();
  c->x = c->tensor(x);
  c->y = c->tensor(y);
  int sizes[8];
  const int rank = extended(w, false, sizes, nullptr);
  check_status(l.filter_create(&c->w), op, "cudnnCreateFilterDescriptor");
  check_status(
      l.filter_set(c->w, type_of(w->dtype), c->inside ? kChannelsInside : kPlanes, rank, sizes), op,
      "cudnnSetFilterNdDescriptor");
  check_status(l.convolution_create(&c->description), op, "cudnnCreateConvolutionDescriptor");
  check_status(l.convolution_set(c->description, rank - 2, pad, stride, dilation, kCrossCorrelation,
                                 c->dtype == DType::Float64 ? kDouble : kFloat),
               op, "cudnnSetConvolutionNdDescriptor");
  check_status(l.convolution_groups(c->description, static_cast<int>(ints[2])), op,
               "cudnnSetConvolutionGroupCount");
  if (c->bias) {
    int64_t shape[5] = {1, in[2]->numel, 1, 1, 1};
    Layout* one = layout_dense(in[2]->dtype, in[2]->device, nd + 2, shape);
    c->bias_shape = c->tensor(one);
    decref(one);
  }
  const int device = device_index(out->device);
  if (!c->choose(device, c->handle(device))) return nullptr;
  return c;
}

Layout* device_convolution_layout(DeviceConvolution* c, int operand) {
  return operand < c->nin ? c->wanted[operand] : nullptr;
}

// By the caller, after all that waits in the queue: of cuDNN's handle nothing is said about threads
// that share it by turns.
void device_convolution_run(DeviceConvolution* c, int device, void* const* in, void* out) {
  const Handle h = c->handle(device);
  if (!c->choose(device, h))
    fail(ErrorKind::Runtime, "[%s] cuDNN has no algorithm for this convolution", c->op.c_str());
  const Library& l = library();
  Storage* work =
      c->chosen.memory ? memory_alloc(device, static_cast<int64_t>(c->chosen.memory)) : nullptr;
  void* space = work ? work->data : nullptr;
  const float one32 = 1, zero32 = 0;
  const double one64 = 1, zero64 = 0;
  const bool wide = c->dtype == DType::Float64;
  const void* one = wide ? static_cast<const void*>(&one64) : &one32;
  const void* zero = wide ? static_cast<const void*>(&zero64) : &zero32;
  const int algorithm = c->chosen.algorithm;
  const size_t bytes = c->chosen.memory;
  Status s;
  if (c->product == Product::Forward)
    s = l.forward(h, one, c->x, in[0], c->w, in[1], c->description, algorithm, space, bytes, zero,
                  c->y, out);
  else if (c->product == Product::Data)
    s = l.data(h, one, c->w, in[1], c->y, in[0], c->description, algorithm, space, bytes, zero,
               c->x, out);
  else
    s = l.weights(h, one, c->x, in[0], c->y, in[1], c->description, algorithm, space, bytes, zero,
                  c->w, out);
  if (work) memory_free(work);
  check_status(s, c->op.c_str(), "convolution");
  if (c->bias)
    check_status(
        l.add(h, one, c->bias_shape, in[2], one, c->product == Product::Data ? c->x : c->y, out),
        c->op.c_str(), "cudnnAddTensor");
}

}  // namespace rl::cuda
