/* A stand-in for libcudnn: the convolutions of the calls that csrc/rt/cudnn.cpp makes, in float32,
 * one loop after another. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
typedef int Status;
typedef struct {
  int type, n, size[8], stride[8];
} Tensor;
typedef struct {
  int n, pad[4], stride[4], dilation[4], groups, math;
} Convolution;
typedef struct {
  int algorithm;
  Status status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
} Performance;
typedef struct {
  void* stream;
} Handle;

EXPORT long fake_convolutions;
EXPORT int fake_last_math;
EXPORT long fake_last_thread; /* who asked for the last convolution */

EXPORT Status cudnnCreate(Handle** h) {
  *h = calloc(1, sizeof **h);
  return 0;
}
EXPORT Status cudnnSetStream(Handle* h, void* s) {
  h->stream = s;
  return 0;
}
EXPORT const char* cudnnGetErrorString(Status s) {
  return s == 9 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM";
}
EXPORT Status cudnnCreateTensorDescriptor(Tensor** t) {
  *t = calloc(1, sizeof **t);
  return 0;
}
EXPORT Status cudnnSetTensorNdDescriptor(Tensor* t, int type, int n, const int* size,
                                         const int* stride) {
  if (n < 4 || n > 5) return 3;
  t->type = type;
  t->n = n;
  memcpy(t->size, size, sizeof(int) * n);
  memcpy(t->stride, stride, sizeof(int) * n);
  return 0;
}
EXPORT Status cudnnDestroyTensorDescriptor(Tensor* t) {
  free(t);
  return 0;
}
EXPORT Status cudnnCreateFilterDescriptor(Tensor** t) { return cudnnCreateTensorDescriptor(t); }
EXPORT Status cudnnSetFilterNdDescriptor(Tensor* t, int type, int format, int n, const int* size) {
  int stride[8], step = 1;
  if (format == 1) {
    stride[1] = 1;
    step = size[1];
    for (int d = n - 1; d >= 2; d--) stride[d] = step, step *= size[d];
    stride[0] = step;
  } else {
    for (int d = n - 1; d >= 0; d--) stride[d] = step, step *= size[d];
  }
  return cudnnSetTensorNdDescriptor(t, type, n, size, stride);
}
EXPORT Status cudnnDestroyFilterDescriptor(Tensor* t) {
  free(t);
  return 0;
}
EXPORT Status cudnnCreateConvolutionDescriptor(Convolution** c) {
  *c = calloc(1, sizeof **c);
  return 0;
}
EXPORT Status cudnnSetConvolutionNdDescriptor(Convolution* c, int n, const int* pad,
                                              const int* stride, const int* dilation, int mode,
                                              int type) {
  (void)type;
  if (n < 2 || mode != 1) return 3;
  c->n = n;
  memcpy(c->pad, pad, sizeof(int) * n);
  memcpy(c->stride, stride, sizeof(int) * n);
  memcpy(c->dilation, dilation, sizeof(int) * n);
  return 0;
}
EXPORT Status cudnnSetConvolutionGroupCount(Convolution* c, int g) {
  c->groups = g;
  return 0;
}
EXPORT Status cudnnSetConvolutionMathType(Convolution* c, int m) {
  c->math = m;
  return 0;
}
EXPORT Status cudnnDestroyConvolutionDescriptor(Convolution* c) {
  free(c);
  return 0;
}

static int fits(const Tensor* x, const Tensor* w, const Tensor* y, const Convolution* c) {
  if (x->size[1] != w->size[1] * c->groups || y->size[1] != w->size[0] || x->size[0] != y->size[0])
    return 0;
  for (int d = 0; d < c->n; d++)
    if (1 + (x->size[2 + d] + 2 * c->pad[d] - c->dilation[d] * (w->size[2 + d] - 1) - 1) /
                c->stride[d] !=
        y->size[2 + d])
      return 0;
  return 1;
}
static Status choices(const Tensor* x, const Tensor* w, const Tensor* y, const Convolution* c,
                      int most, int* count, Performance* p) {
  if (most < 2 || !fits(x, w, y, c)) return 3;
  memset(p, 0, 2 * sizeof *p);
  p[0].status = x->type == 0 ? 9 : 9; /* the first is no good: the caller must look on */
  p[1].algorithm = 1;
  p[1].memory = 1024;
  p[1].math = c->math;
  *count = 2;
  return x->type == 0 ? 0 : 9;
}
EXPORT Status cudnnGetConvolutionForwardAlgorithm_v7(Handle* h, Tensor* x, Tensor* w,
                                                     Convolution* c, Tensor* y, int most,
                                                     int* count, Performance* p) {
  (void)h;
  return choices(x, w, y, c, most, count, p);
}
EXPORT Status cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle* h, Tensor* w, Tensor* y,
                                                          Convolution* c, Tensor* x, int most,
                                                          int* count, Performance* p) {
  (void)h;
  return choices(x, w, y, c, most, count, p);
}
EXPORT Status cudnnGetConvolutionBackwardFilterAlgorithm_v7(Handle* h, Tensor* x, Tensor* y,
                                                            Convolution* c, Tensor* w, int most,
                                                            int* count, Performance* p) {
  (void)h;
  return choices(x, w, y, c, most, count, p);
}

static long numel(const Tensor* t) {
  long n = 1;
  for (int d = 0; d < t->n; d++) n *= t->size[d];
  return n;
}
/* Every (n, co, out..., ci, kernel...) once: what the three products share.
 * `target`: 0 y, 1 x, 2 w. */
static Status walk(Handle* h, Tensor* x, float* X, Tensor* w, float* W, Tensor* y, float* Y,
                   Convolution* c, int algorithm, size_t bytes, int target) {
  if (algorithm != 1 || bytes != 1024 || !fits(x, w, y, c)) return 3;
  void* driver = dlopen(getenv("RUSHLIGHT_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  void (*wait)(void*) = driver ? (void (*)(void*))dlsym(driver, "fake_wait_for_stream") : 0;
  if (wait) wait(h->stream);
  fake_convolutions++;
  fake_last_thread = syscall(SYS_gettid);
  fake_last_math = c->math;
  Tensor* t = target == 0 ? y : target == 1 ? x : w;
  memset(target == 0 ? Y : target == 1 ? X : W, 0, sizeof(float) * numel(t)); /* dense */
  const int nd = c->n, per = w->size[1], out = y->size[1] / c->groups;
  long outs = numel(y), taps = numel(w) / w->size[0];
  for (long i = 0; i < outs; i++) {
    long rest = i;
    int at[8];
    for (int d = y->n - 1; d >= 0; d--) at[d] = rest % y->size[d], rest /= y->size[d];
    long yo = 0;
    for (int d = 0; d < y->n; d++) yo += (long)at[d] * y->stride[d];
    for (long k = 0; k < taps; k++) {
      int tap[8];
      long q = k;
      for (int d = w->n - 1; d >= 1; d--) tap[d] = q % w->size[d], q /= w->size[d];
      long xo = (long)at[0] * x->stride[0] + (long)(at[1] / out * per + tap[1]) * x->stride[1];
      long wo = (long)at[1] * w->stride[0] + (long)tap[1] * w->stride[1];
      int inside = 1;
      for (int d = 0; d < nd; d++) {
        int p = at[2 + d] * c->stride[d] - c->pad[d] + tap[2 + d] * c->dilation[d];
        if (p < 0 || p >= x->size[2 + d]) inside = 0;
        xo += (long)p * x->stride[2 + d];
        wo += (long)tap[2 + d] * w->stride[2 + d];
      }
      if (!inside) continue;
      if (target == 0) Y[yo] += X[xo] * W[wo];
      if (target == 1) X[xo] += Y[yo] * W[wo];
      if (target == 2) W[wo] += X[xo] * Y[yo];
    }
  }
  return 0;
}
EXPORT Status cudnnConvolutionForward(Handle* h, const void* one, Tensor* x, void* X, Tensor* w,
                                      void* W, Convolution* c, int algorithm, void* work,
                                      size_t bytes, const void* zero, Tensor* y, void* Y) {
  (void)one;
  (void)zero;
  (void)work;
  return walk(h, x, X, w, W, y, Y, c, algorithm, bytes, 0);
}
EXPORT Status cudnnConvolutionBackwardData(Handle* h, const void* one, Tensor* w, void* W,
                                           Tensor* y, void* Y, Convolution* c, int algorithm,
                                           void* work, size_t bytes, const void* zero, Tensor* x,
                                           void* X) {
  (void)one;
  (void)zero;
  (void)work;
  return walk(h, x, X, w, W, y, Y, c, algorithm, bytes, 1);
}
EXPORT Status cudnnConvolutionBackwardFilter(Handle* h, const void* one, Tensor* x, void* X,
                                             Tensor* y, void* Y, Convolution* c, int algorithm,
                                             void* work, size_t bytes, const void* zero, Tensor* w,
                                             void* W) {
  (void)one;
  (void)zero;
  (void)work;
  return walk(h, x, X, w, W, y, Y, c, algorithm, bytes, 2);
}
EXPORT Status cudnnAddTensor(Handle* h, const void* one, Tensor* a, const float* A,
                             const void* same, Tensor* y, float* Y) {
  (void)h;
  (void)one;
  (void)same;
  for (long i = 0; i < numel(y); i++) {
    long rest = i, yo = 0, ao = 0;
    for (int d = y->n - 1; d >= 0; d--) {
      int k = rest % y->size[d];
      rest /= y->size[d];
      yo += (long)k * y->stride[d];
      if (a->size[d] > 1) ao += (long)k * a->stride[d];
    }
    Y[yo] += A[ao];
  }
  return 0;
}
