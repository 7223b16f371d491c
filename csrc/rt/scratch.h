// Room for a few elements inside, for more on the heap: what a routine needs for one call. A call on a few elements would
// spend more on the heap than on them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace rl {

template <class T, int Inside>
class Scratch {
  static_assert(std::is_trivially_copyable_v<T>, "elements are not constructed");

 public:
  Scratch() = default;
  explicit Scratch(int64_t n) { resize(n); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void resize(int64_t n) {  // what was there is lost
    if (n > Inside) more_ = std::make_unique<T[]>(static_cast<size_t>(n));
    data_ = n > Inside ? more_.get() : inside_;
    size_ = n;
  }
  int64_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  T* data_ = inside_;
  int64_t size_ = 0;
  T inside_[Inside];
  std::unique_ptr<T[]> more_;
};

}  // namespace rl
