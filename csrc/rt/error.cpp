// A printf-style sentence -> a thrown rl::Error.
// Invariant: `fail` never returns.
#include "error.h"

#include <cstdarg>
#include <cstdio>

namespace rl {

void fail(ErrorKind kind, const char* format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(static_cast<size_t>(length > 0 ? length : 0), '\0');
  std::vsnprintf(&text[0], text.size() + 1, format, again);
  va_end(again);
  throw Error(kind, text);
}

std::string shape_text(int ndim, const int64_t* shape) {
  std::string text = "[";
  for (int d = 0; d < ndim; ++d) {
    if (d) text += ", ";
    text += std::to_string(shape[d]);
  }
  return text + "]";
}

}  // namespace rl
