// A folder of kernel libraries -> a table from key to kernel.
// Invariant: one library is loaded at a time: the best one present that this processor runs.
#include "kernels.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "error.h"
#include "threads.h"

namespace rl {
namespace {

struct Library {
  const KernelEntry* entries = nullptr;
  int64_t count = 0;
  std::unordered_map<std::string_view, const KernelEntry*> by_key;
  std::unordered_map<const KernelEntry*, const LongRow*> long_rows;
};

Library& library() {
  static Library* one = new Library;  // plans point into it: never destroyed
  return *one;
}

}  // namespace

void kernels_load(const char* folder) {
  const int best = cpu_isa()[1] - '0';
  std::string tried;
  for (int level = best; level >= 2; --level) {
    const std::string path = std::string(folder) + "/libkernels_v" + std::to_string(level) + ".so";
    if (access(path.c_str(), R_OK) != 0) {
      tried += (tried.empty() ? "" : ", ") + path;
      continue;
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail(ErrorKind::Runtime, "cannot load the kernel library: %s", dlerror());
    const void* entries = dlsym(handle, "rushlight_kernels");
    const void* count = dlsym(handle, "rushlight_kernel_count");
    if (!entries || !count)
      fail(ErrorKind::Runtime, "%s exports no kernel table; build it again", path.c_str());
    Library& l = library();
    l.entries = static_cast<const KernelEntry*>(entries);
    l.count = *static_cast<const int64_t*>(count);
    l.by_key.clear();
    l.by_key.reserve(static_cast<size_t>(l.count));
    for (int64_t i = 0; i < l.count; ++i) l.by_key[l.entries[i].key] = l.entries + i;
    l.long_rows.clear();  // a library may have none
    const auto* row = static_cast<const LongRow*>(dlsym(handle, "rushlight_long_rows"));
    for (; row && row->blocks; ++row)
      if (const KernelEntry* kernel = kernel_find(row->key)) l.long_rows[kernel] = row;
    return;
  }
  fail(ErrorKind::Runtime, "no kernel library for this processor (%s); looked for %s", cpu_isa(),
       tried.c_str());
}

const KernelEntry* kernel_find(const char* key) {
  const Library& l = library();
  const auto found = l.by_key.find(key);
  return found == l.by_key.end() ? nullptr : found->second;
}

int64_t kernel_count() { return library().count; }

const LongRow* long_row_of(const KernelEntry* kernel) {
  const auto& rows = library().long_rows;
  const auto found = rows.find(kernel);
  return found == rows.end() ? nullptr : found->second;
}

const KernelEntry* kernel_at(int64_t i) {
  const Library& l = library();
  if (i < 0 || i >= l.count)
    fail(ErrorKind::Index, "kernel %lld of %lld", static_cast<long long>(i),
         static_cast<long long>(l.count));
  return l.entries + i;
}

}  // namespace rl
