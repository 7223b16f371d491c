// Copies between the host and a GPU, within one and between two; fills and sums into given memory.
// Invariant: only copies to the host wait; where the GPU has no kernel for a copy, the host makes it.
#include <algorithm>

#include "convert.h"
#include "cuda.h"
#include "dtype.h"
#include "operator.h"
#include "plan.h"
#include "rt/cuda_memory.h"

namespace core {

using rl::cuda::DeviceKernel;

namespace {

bool same_dims(const Layout* a, const Layout* b) {
  return a->ndim == b->ndim && !std::memcmp(a->dims, b->dims, sizeof(int64_t) * a->ndim);
}
bool same_place(const Layout* a, const Layout* b) {  // element for element at the same distance
  return a->dtype == b->dtype && same_dims(a, b) &&
         ((a->contiguous && b->contiguous) ||
             (a->dense && !std::memcmp(a->strides(), b->strides(), sizeof(int64_t) * a->ndim)));
}

// src seen in dst's shape: leading dims and dims of one step have stride 0.
Own<Tensor> spread(Tensor* src, const Layout* dst) {
  const Layout* l = src->layout;
  if (same_dims(l, dst)) return Own<Tensor>::borrow(src);
  int64_t strides[rl::kMaxDims];
  for (int d = 0; d < dst->ndim; d++) {
    const int k = d - (dst->ndim - l->ndim);
    strides[d] = k < 0 || l->dims[k] == 1 ? 0 : l->strides()[k];
  }
  rl::incref(src->storage);
  return tensor_make(src->storage,
      rl::layout_intern(l->dtype, l->device, dst->ndim, dst->shape(), strides), src->offset);
}

// The bytes that a tensor reaches, on the host: a tensor of the same strides there.
struct Image {
  Own<Tensor> host;
  int64_t low = 0, bytes = 0;
  char* device_at = nullptr;

  explicit Image(Tensor* t) {
    const Layout* l = t->layout;
    int64_t high = 0;
    rl::layout_extent(l, &low, &high);
    const int size = rl::itemsize(l->dtype);
    bytes = (high - low) * size;
    device_at = data_of(t) + low * size;
    Storage* s = rl::storage_alloc(std::max<int64_t>(bytes, 1));
    host = tensor_make(s, on_device(l, Device::CPU, l->dtype), -low);
    if (bytes) {
      rl::cuda::copy_to_host(cuda_index(l), s->data, device_at, bytes);
      cuda_stream_wait(cuda_index(l), rl::cuda::current_stream(cuda_index(l)));
    }
  }
  void write_back(int device) {
    rl::cuda::copy_to_device(device, device_at, host->storage->data, bytes);
  }
};

// No kernel for this copy: it is made on the host.
template <class F>
void through_host(Tensor* dst, F&& change) {
  rl::cuda::run_counts().fallbacks++;
  Image image(dst);
  change(image.host.get());
  image.write_back(cuda_index(dst->layout));
}

}  // namespace

Own<Tensor> dense_on(const Layout* like, Device device, DType dtype) {
  return tensor_empty(like->dense ? on_device(like, device, dtype)
                                  : rl::layout_dense(dtype, device, like->ndim, like->dims));
}

void cuda_copy_within(Tensor* dst, Tensor* given) {
  const int device = cuda_index(dst->layout);
  if (!dst->layout->numel) return;
  Own<Tensor> held = spread(given, dst->layout);
  Tensor* src = held.get();
  if (same_place(dst->layout, src->layout)) {
    if (data_of(dst) == data_of(src)) return;
    rl::cuda::run_counts().copies++;
    return rl::cuda::copy_on_device(device, data_of(dst), data_of(src), bytes_of(dst->layout));
  }
  const DType from = src->layout->dtype, to = dst->layout->dtype;
  const std::string key =
      from == to ? std::string("clone.") + dtype_name(from) + ".T"
                 : std::string("to.") + dtype_name(from) + ".T.dtype=" + dtype_name(to);
  if (DeviceKernel* kernel = cuda_kernel(key, device))
    return cuda_elementwise(kernel, &src, 1, dst, nullptr);
  Image image(src);
  through_host(dst, [&](Tensor* host) { copy_into(host, image.host.get()); });
}

namespace {

void copy_from_host(Tensor* dst, Tensor* src) {
  const Layout* l = dst->layout;
  const int device = cuda_index(l);
  if (!l->numel) return;
  const bool pinned = rl::cuda::is_pinned(src->storage);
  Own<Tensor> held = Own<Tensor>::borrow(src);
  if (src->layout->dtype != l->dtype || !src->layout->dense) {
    Own<Tensor> changed = dense_on(src->layout, Device::CPU, l->dtype);
    copy_into(changed.get(), src);
    held = std::move(changed);
  }
  rl::cuda::run_counts().copies++;
  if (same_place(l, held->layout)) {
    rl::cuda::copy_to_device(device, data_of(dst), data_of(held.get()), bytes_of(l));
  } else {
    Own<Tensor> there = dense_on(held->layout, l->device, l->dtype);
    rl::cuda::copy_to_device(
        device, data_of(there.get()), data_of(held.get()), bytes_of(held->layout));
    cuda_copy_within(dst, there.get());
  }
  // Pageable memory has been read when the driver returns; pinned memory is read later.
  if (!pinned || held.get() != src) return;
  if (cuda_non_blocking)
    rl::cuda::pinned_used_on(src->storage, device, rl::cuda::current_stream(device));
  else
    cuda_stream_wait(device, rl::cuda::current_stream(device));
}

void copy_to_host(Tensor* dst, Tensor* src) {
  const Layout* l = src->layout;
  const int device = cuda_index(l);
  if (!l->numel || !dst->layout->numel) return;
  const rl::cuda::Stream stream = rl::cuda::current_stream(device);
  const bool waits = !cuda_non_blocking || !rl::cuda::is_pinned(dst->storage);
  if (waits) cuda_wait_allowed();  // before anything is queued
  Own<Tensor> held = Own<Tensor>::borrow(src);
  if (!l->dense) {
    Own<Tensor> changed = tensor_empty(rl::layout_dense(l->dtype, l->device, l->ndim, l->dims));
    cuda_copy_within(changed.get(), src);
    held = std::move(changed);
  }
  rl::cuda::run_counts().copies++;
  if (same_place(dst->layout, held->layout)) {
    rl::cuda::copy_to_host(device, data_of(dst), data_of(held.get()), bytes_of(held->layout));
    if (!waits) return rl::cuda::pinned_used_on(dst->storage, device, stream);
    return cuda_stream_wait(device, stream, true);
  }
  Own<Tensor> here = dense_on(held->layout, Device::CPU, l->dtype);
  rl::cuda::copy_to_host(device, data_of(here.get()), data_of(held.get()), bytes_of(held->layout));
  cuda_stream_wait(device, stream, waits);
  copy_into(dst, here.get());
}

}  // namespace

void cuda_copy(Tensor* dst, Tensor* src) {
  if (!on_cuda(src->layout)) {
    if (src->layout->device != Device::CPU)
      raise(PyExc_NotImplementedError, "[copy_] Cannot copy out of a meta tensor: it holds no data");
    return copy_from_host(dst, src);
  }
  if (!on_cuda(dst->layout)) return copy_to_host(dst, src);
  if (dst->layout->device == src->layout->device) return cuda_copy_within(dst, src);
  const int from = cuda_index(src->layout), to = cuda_index(dst->layout);
  Own<Tensor> held = Own<Tensor>::borrow(src);
  if (!src->layout->dense) {
    held = tensor_empty(rl::layout_dense(
        src->layout->dtype, src->layout->device, src->layout->ndim, src->layout->dims));
    cuda_copy_within(held.get(), src);
  }
  Own<Tensor> there = Own<Tensor>::borrow(dst);
  if (!same_place(dst->layout, held->layout))
    there = dense_on(held->layout, dst->layout->device, held->layout->dtype);
  rl::cuda::run_counts().copies++;
  rl::cuda::copy_across(
      to, data_of(there.get()), from, data_of(held.get()), bytes_of(held->layout));
  if (there.get() != dst) cuda_copy_within(dst, there.get());
}

// ---- fills and sums

void cuda_fill(Tensor* dst, PyObject* number) {
  const Layout* l = dst->layout;
  if (!l->numel) return;
  const int device = cuda_index(l);
  char element[8] = {};
  store_scalar(l->dtype, element, number);
  if (l->dense &&
      std::all_of(element, element + rl::itemsize(l->dtype), [](char c) { return c == 0; }))
    return rl::cuda::fill_zero(device, data_of(dst), bytes_of(l));
  const char how = rl::is_floating(l->dtype) ? 'f' : 'i';
  const std::string key = std::string("fill.") + dtype_name(l->dtype) + ".T.value:" + how;
  if (DeviceKernel* kernel = cuda_kernel(key, device)) {
    const Number value = number_from(number, how);
    return cuda_elementwise(kernel, &dst, 1, dst, &value);
  }
  through_host(dst, [&](Tensor* host) { fill_number(host, number); });
}

void cuda_add(Tensor* dst, Tensor* given) {
  const Layout* l = dst->layout;
  if (!given->layout->numel) return;
  bool folded = false;
  for (int d = 0; d < l->ndim; d++) folded |= l->dims[d] > 1 && l->strides()[d] == 0;
  const int device = cuda_index(l);
  const std::string key = std::string("add.") + dtype_name(l->dtype) + ".TT";
  if (!folded && given->layout->dtype == l->dtype)
    if (DeviceKernel* kernel = cuda_kernel(key, device)) {
      Own<Tensor> src = spread(given, l);
      Tensor* operands[2] = {dst, src.get()};
      return cuda_elementwise(kernel, operands, 2, dst, nullptr);
    }
  Image image(given);
  through_host(dst, [&](Tensor* host) { add_into(host, image.host.get()); });
}

}  // namespace core
