#include "vendor_library.h"

#include <dlfcn.h>

#include <utility>

namespace rl::cuda {

void VendorLibrary::look_for(std::vector<std::string> names) {
  std::lock_guard<std::mutex> hold(mutex_);
  names_ = std::move(names);
  if (!missing_.empty()) looked_ = false;
}

std::string VendorLibrary::missing() {
  std::lock_guard<std::mutex> hold(mutex_);
  if (!looked_) open();
  return missing_;
}

void VendorLibrary::open() {
  looked_ = true;
  missing_.clear();
  void* so = nullptr;
  std::string tried;
  for (const std::string& name : names_) {
    if ((so = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
    tried += (tried.empty() ? "" : ", ") + name;
  }
  if (!so) {
    missing_ = std::string(title_) + " cannot be opened (" + tried + "): install " + package_;
    return;
  }
  for (const Symbol& s : symbols_)
    if (!(*s.into = dlsym(so, s.name)))
      missing_ = std::string(title_) + " is too old: it lacks " + s.name;
}

}  // namespace rl::cuda
