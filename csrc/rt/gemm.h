// Matrix products. float64 and small float32: OpenBLAS, on our thread pool through its callback.
// Larger float32, float16 and bfloat16: oneDNN, primitives cached. Without either library: a plain blocked loop.
#pragma once
#include <cstdint>
#include "dtype.h"
#include "layout.h"

namespace rl {

// Where the libraries are (null: keep). They are opened at first use. Throws nothing.
void libraries_set(const char* openblas, const char* onednn);
const char* library_of_last_gemm();                    // "openblas sgemm", "onednn matmul", "rushlight gemm"

// Opens oneDNN, and with `gaps` makes what products need whose rows have gaps inside a batch: what their first run would wait
// for, on this thread.
void onednn_prepare(bool gaps);

struct GemmPlan;
// out[b, m, n] = x[b, m, k] @ y[b, k, n] (+ bias[n] or bias[m, n] broadcast when given). 2-D or 3-D layouts, any strides that
// the libraries take directly (one of the two inner strides is 1); others: throws NotImplemented and the caller copies first.
// The dtype of all operands is the same. Integers take the plain loop. Reference: gemm_free.
GemmPlan* gemm_plan(const char* op, const Layout* x, const Layout* y, const Layout* bias, const Layout* out);
bool gemm_takes(const Layout* operand);                // whether the strides are taken directly
void gemm_run(GemmPlan*, void* x, void* y, void* bias, void* out, double alpha, double beta);   // beta scales bias
void gemm_free(GemmPlan*);
bool gemm_release(const GemmPlan*);                    // predicted above 20 microseconds
const char* gemm_library(const GemmPlan*);             // which library the next run takes, with its routine

}  // namespace rl
