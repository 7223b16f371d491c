/* A stand-in for libcublasLt: the products of the calls that csrc/rt/cublas.cpp makes, column by
 * column, with checks of what the library would refuse. It waits for the stand-in of the driver
 * first, so that operands hold what was queued. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
typedef int Status;
typedef struct {
  int compute, scale, ta, tb, epilogue, bias_type;
  const void* bias;
} Description;
typedef struct {
  int type;
  uint64_t rows, columns;
  int64_t ld, offset;
  int32_t count;
} Matrix;
typedef struct {
  uint64_t most;
} Preference;
typedef struct {
  uint64_t algorithm[8];
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
} Heuristic;

EXPORT long fake_products;
EXPORT int fake_last_compute, fake_last_epilogue;

EXPORT long fake_handles, fake_questions;

/* RUSHLIGHT_FAKE_BLAS_SLOW: milliseconds that a handle takes; RUSHLIGHT_FAKE_BLAS_REFUSES: how many
 * handles are refused first. */
static long setting(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}
EXPORT Status cublasLtCreate(void** h) {
  usleep(1000 * setting("RUSHLIGHT_FAKE_BLAS_SLOW", 0));
  if (++fake_handles <= setting("RUSHLIGHT_FAKE_BLAS_REFUSES", 0)) return 3;
  *h = malloc(1);
  return 0;
}
EXPORT size_t cublasLtGetVersion(void) { return setting("RUSHLIGHT_FAKE_BLAS_VERSION", 130100); }
EXPORT Status cublasLtMatmulDescCreate(Description** d, int compute, int scale) {
  *d = calloc(1, sizeof **d);
  (*d)->compute = compute;
  (*d)->scale = scale;
  (*d)->epilogue = 1;
  return 0;
}
EXPORT Status cublasLtMatmulDescSetAttribute(Description* d, int what, const void* v, size_t n) {
  if (what == 3 && n == 4)
    memcpy(&d->ta, v, 4);
  else if (what == 4 && n == 4)
    memcpy(&d->tb, v, 4);
  else if (what == 7 && n == 4)
    memcpy(&d->epilogue, v, 4);
  else if (what == 8 && n == 8)
    memcpy(&d->bias, v, 8);
  else if (what == 26 && n == 4)
    memcpy(&d->bias_type, v, 4);
  else
    return 7;
  return 0;
}
EXPORT Status cublasLtMatmulDescDestroy(Description* d) {
  free(d);
  return 0;
}
EXPORT Status cublasLtMatrixLayoutCreate(Matrix** m, int type, uint64_t rows, uint64_t columns,
                                         int64_t ld) {
  if (!rows || !columns || ld < (int64_t)rows) return 7;
  *m = calloc(1, sizeof **m);
  **m = (Matrix){type, rows, columns, ld, 0, 1};
  return 0;
}
EXPORT Status cublasLtMatrixLayoutSetAttribute(Matrix* m, int what, const void* v, size_t n) {
  if (what == 5 && n == 4)
    memcpy(&m->count, v, 4);
  else if (what == 6 && n == 8)
    memcpy(&m->offset, v, 8);
  else
    return 7;
  return 0;
}
EXPORT Status cublasLtMatrixLayoutDestroy(Matrix* m) {
  free(m);
  return 0;
}
EXPORT Status cublasLtMatmulPreferenceCreate(Preference** p) {
  *p = calloc(1, sizeof **p);
  return 0;
}
EXPORT Status cublasLtMatmulPreferenceSetAttribute(Preference* p, int what, const void* v,
                                                   size_t n) {
  if (what == 1 && n == 8)
    memcpy(&p->most, v, 8);
  else if (what < 5 || what > 8 || n != 4)
    return 7;
  return 0;
}
EXPORT Status cublasLtMatmulPreferenceDestroy(Preference* p) {
  free(p);
  return 0;
}

static int fits(const Description* d, const Matrix* a, const Matrix* b, const Matrix* c,
                const Matrix* o) {
  uint64_t m = d->ta ? a->columns : a->rows, k = d->ta ? a->rows : a->columns;
  uint64_t n = d->tb ? b->rows : b->columns, k2 = d->tb ? b->columns : b->rows;
  return k == k2 && o->rows == m && o->columns == n && c->rows == m && c->columns == n &&
         a->type == b->type && a->count == b->count && a->count == o->count && c->count == o->count;
}
EXPORT Status cublasLtMatmulAlgoGetHeuristic(void* h, Description* d, Matrix* a, Matrix* b,
                                             Matrix* c, Matrix* o, Preference* p, int wanted,
                                             Heuristic* found, int* count) {
  (void)h;
  fake_questions++;
  *count = 0;
  if (wanted < 1 || !fits(d, a, b, c, o)) return 7;
  memset(found, 0, sizeof *found);
  found->algorithm[0] = 0xC0FFEE;
  found->workspace = p->most < 4096 ? 0 : 4096;
  *count = 1;
  return 0;
}

static double read_at(const void* p, int type, int64_t i) {
  if (type == 0) return ((const float*)p)[i];
  if (type == 1) return ((const double*)p)[i];
  uint16_t x = ((const uint16_t*)p)[i];
  if (type == 14) {
    uint32_t w = (uint32_t)x << 16;
    float f;
    memcpy(&f, &w, 4);
    return f;
  }
  _Float16 half;
  memcpy(&half, &x, 2);
  return (double)half;
}
static void write_at(void* p, int type, int64_t i, double v) {
  if (type == 0)
    ((float*)p)[i] = (float)v;
  else if (type == 1)
    ((double*)p)[i] = v;
  else if (type == 14) {
    float f = (float)v;
    uint32_t w;
    memcpy(&w, &f, 4);
    w += 0x7FFF + (w >> 16 & 1);
    ((uint16_t*)p)[i] = (uint16_t)(w >> 16);
  } else {
    _Float16 half = (_Float16)v;
    memcpy((uint16_t*)p + i, &half, 2);
  }
}
static double scalar(const void* p, int type) {
  return type == 1 ? *(const double*)p : (double)*(const float*)p;
}

EXPORT Status cublasLtMatmul(void* h, Description* d, const void* alpha, const void* A, Matrix* a,
                             const void* B, Matrix* b, const void* beta, const void* C, Matrix* c,
                             void* D, Matrix* o, const void* algorithm, void* work, size_t bytes,
                             void* stream) {
  (void)h;
  if (!fits(d, a, b, c, o) || !algorithm || (bytes && !work)) return 7;
  if (*(const uint64_t*)algorithm != 0xC0FFEE) return 15; /* none of its own */
  void* driver = dlopen(getenv("RUSHLIGHT_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  void (*wait)(void*) = driver ? (void (*)(void*))dlsym(driver, "fake_wait_for_stream") : 0;
  void (*told)(const char*) = driver ? (void (*)(const char*))dlsym(driver, "fake_library_ran") : 0;
  if (wait) wait(stream);
  if (told) told("_Z9fake_gemmIfEvPKT_");
  fake_products++;
  fake_last_compute = d->compute;
  fake_last_epilogue = d->epilogue;
  const int64_t k = (int64_t)(d->ta ? a->rows : a->columns);
  const double x = scalar(alpha, d->scale), y = scalar(beta, d->scale);
  for (int32_t q = 0; q < o->count; q++)
    for (int64_t j = 0; j < (int64_t)o->columns; j++)
      for (int64_t i = 0; i < (int64_t)o->rows; i++) {
        double sum = 0;
        for (int64_t l = 0; l < k; l++)
          sum += read_at(A, a->type, q * a->offset + (d->ta ? l + i * a->ld : i + l * a->ld)) *
                 read_at(B, b->type, q * b->offset + (d->tb ? j + l * b->ld : l + j * b->ld));
        sum *= x;
        if (y != 0) sum += y * read_at(C, c->type, q * c->offset + i + j * c->ld);
        if (d->epilogue & 4) sum += read_at(d->bias, d->bias_type, i);
        write_at(D, o->type, q * o->offset + i + j * o->ld, sum);
      }
  return 0;
}
