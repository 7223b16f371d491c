// Errors of the runtime: a kind that maps to a Python exception class, and a whole sentence.
#pragma once
#include <stdexcept>
#include <string>

namespace rl {

enum class ErrorKind { Runtime, Value, Type, Index, Memory, NotImplemented, LinearAlgebra };

struct Error : std::runtime_error {
  ErrorKind kind;
  Error(ErrorKind k, const std::string& what) : std::runtime_error(what), kind(k) {}
};

// printf-style.
[[noreturn]] void fail(ErrorKind, const char* format, ...) __attribute__((format(printf, 2, 3)));
std::string shape_text(int ndim, const int64_t* shape);      // "[2, 3]"

}  // namespace rl
