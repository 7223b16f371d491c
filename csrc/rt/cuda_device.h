// Devices, streams and events. Every thread has a current device and, on each device, a current
// stream. Handles belong to whoever made them; the default stream is null. Contexts are the
// devices' primary ones, made at first use.
#pragma once
#include <cstdint>
#include <string>

#include "cuda_driver.h"

namespace rl::cuda {

constexpr int kMaxDevices = 64;

struct Properties {
  std::string name;
  int major, minor, processors, warp_size, threads_per_block, threads_per_processor;
  int registers_per_block, shared_per_block, shared_per_block_optin, shared_per_processor;
  int l2_bytes, clock_khz, integrated, multi_gpu_board, pci_bus, pci_device, pci_domain;
  int64_t memory;
  unsigned char uuid[16];
};

int device_count();    // 0 where there is no driver; throws nothing
int current_device();  // of this thread; 0 at first
// throws Runtime where there is no such device
void set_device(int);
int check_device(int);  // the same number, or Runtime
const Properties& properties(int device);
bool used(int device);  // whether its context exists

// Makes the device's context this thread's, which is cheap where it is already, and lets all that
// waits in the launch queue go first.
const Driver& activate(int device);
const Driver& ready(int device);  // the same without the queue: for calls whose order is free
Context context_of(int device);
// Around work between another library's: the device's context is this thread's, and then again the
// one that was.
Context context_borrow(int device);
void context_return(Context before);

Stream current_stream(int device);
void set_stream(int device, Stream);
Stream stream_create(int device, int priority);
void stream_release(int device, Stream);
bool stream_done(int device, Stream);
void stream_range(int device, int* least, int* greatest);

Event event_create(int device, bool timing, bool blocking);
void event_destroy(int device, Event);
void event_record(int device, Event, Stream);
bool event_done(int device, Event);
void event_synchronize(int device, Event);
double event_elapsed(int device, Event start, Event end);  // milliseconds
void stream_wait(int device, Stream, Event);               // the stream waits, the host does not

// The host waits. Errors that kernels left behind are asked for afterwards (raise_kernel_errors).
void stream_synchronize(int device, Stream);
void device_synchronize(int device);

}  // namespace rl::cuda
