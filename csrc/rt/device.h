// Devices: a type and an index in one word, so that equal devices are equal numbers.
#pragma once
#include <cstdint>

namespace rl {

enum class DeviceType : uint8_t { CPU = 0, CUDA = 1, Meta = 2 };   // Meta: shapes and no data
constexpr int kDeviceTypes = 3;

// The type in the upper byte, the index in the lower one. CPU and Meta have one device each.
enum class Device : uint16_t { CPU = 0, CUDA = 0x100, Meta = 0x200 };

constexpr Device make_device(DeviceType type, int index) {
  return static_cast<Device>(static_cast<int>(type) << 8 | index);
}
constexpr DeviceType device_type(Device d) {
  return static_cast<DeviceType>(static_cast<uint16_t>(d) >> 8);
}
constexpr int device_index(Device d) { return static_cast<uint16_t>(d) & 0xFF; }
constexpr const char* device_type_name(DeviceType t) {
  constexpr const char* names[kDeviceTypes] = {"cpu", "cuda", "meta"};
  return names[static_cast<int>(t)];
}

}  // namespace rl
