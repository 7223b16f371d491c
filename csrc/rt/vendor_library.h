// A library of the GPU's vendor, opened at first use.
// Invariant: what went wrong is kept and told again, until other names are given.
#pragma once
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace rl::cuda {

class VendorLibrary {
 public:
  struct Symbol {
    template <class F>
    Symbol(F** function, const char* symbol)
        : into(reinterpret_cast<void**>(function)), name(symbol) {}
    void** into;
    const char* name;
  };
  VendorLibrary(const char* title, const char* package, std::vector<Symbol> symbols)
      : title_(title), package_(package), symbols_(std::move(symbols)) {}

  // Paths, or names for the loader: the first that opens is taken. One that is open stays.
  void look_for(std::vector<std::string> names);
  // Why its symbols cannot be used, in words; empty: they can.
  std::string missing();

 private:
  void open();

  std::mutex mutex_;  // a thread of its own may open it, while a graph is captured

  const char *title_, *package_;
  std::vector<Symbol> symbols_;
  std::vector<std::string> names_;
  bool looked_ = false;
  std::string missing_;
};

}  // namespace rl::cuda
