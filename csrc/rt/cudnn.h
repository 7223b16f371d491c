// Convolutions on a GPU by cuDNN, opened at first use: float16, bfloat16, float32, float64, one to
// three spatial dims.
#pragma once
#include <cstdint>
#include <memory>

#include "layout.h"
#include "vendor_library.h"

namespace rl::cuda {

VendorLibrary& cudnn();
bool cudnn_tf32_allowed(int set = -1);  // 0 or 1 sets it first; returns what was

struct DeviceConvolution;
// The routine `convolution` (convolution.cpp says what its ints are) for these layouts; null where
// the library does not do it.
std::shared_ptr<DeviceConvolution> device_convolution(const char* op, const Layout* const* in,
                                                      int nin, const Layout* out,
                                                      const int64_t* ints, int nints);
// what an operand must be brought to; null: as it lies
Layout* device_convolution_layout(DeviceConvolution*, int operand);
void device_convolution_run(DeviceConvolution*, int device, void* const* in, void* out);

}  // namespace rl::cuda
