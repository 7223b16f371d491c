// Matrix products on a GPU by cuBLASLt, opened at first use: float16, bfloat16, float32 (TF32 where
// allowed), float64.
#pragma once
#include <cstdint>
#include <memory>

#include "layout.h"
#include "vendor_library.h"

namespace rl::cuda {

VendorLibrary& cublas();
// What its first product would wait for: opened, and its handle made. Any thread may call it.
void cublas_prepare(int device);
// of float32 products; 0 or 1 sets it first; returns what was
bool tf32_allowed(int set = -1);
bool device_gemm_takes(DType operands, DType out);  // and the library is there

struct DeviceGemm;
// As gemm_plan (gemm.h) promises; out's rows have unit stride. Throws Runtime where the library
// refuses.
std::shared_ptr<DeviceGemm> device_gemm(const char* op, const Layout* x, const Layout* y,
                                        const Layout* bias, const Layout* out);
// Whether the bias must lie in the output before the run, and be handed over as such.
bool device_gemm_lays_bias(const DeviceGemm*, double beta);
void device_gemm_run(DeviceGemm*, int device, const void* x, const void* y, const void* bias,
                     void* out, double alpha, double beta);

}  // namespace rl::cuda
