// Images as planes: a tensor [n..., c, space...] as n images of c channels of `area` elements, each found by three strides.
// Layouts that are not so (a slice of the pixels) are copied into C order.
#pragma once
#include <memory>

#include "routines.h"

namespace rl {

struct Planes {
  int nd;                     // spatial dims, the last of the layout
  int64_t n, c, area;
  int64_t image, channel, step;   // strides in elements, of an image, a channel and a pixel
  int64_t sizes[3];           // of the spatial dims, with 1 for those before
  void* data;
  std::shared_ptr<void> copy;     // holds data where it was copied

  template <class T>
  T* plane(int64_t i) const { return static_cast<T*>(data) + i / c * image + i % c * channel; }
  // Whether channels lie side by side and pixels do not.
  bool channels_inside() const { return c > 1 && channel == 1 && step != 1; }
};

// Dims before the channels are images (none: one). `readable`: its memory may be replaced by a copy.
Planes planes_of(const RoutineOperand&, int nd, bool readable);

}  // namespace rl
