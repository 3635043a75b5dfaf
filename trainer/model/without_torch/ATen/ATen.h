// SPDX-License-Identifier: Apache-2.0
// In place of libtorch's header in a build without libtorch (-DWFLOW_TORCH=OFF): single-precision tensors of
// a processor, with those functions of ATen that the layers by oneDNN and the hand-written kernels call.
// Names and meanings are ATen's, so that the same sources compile with either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include <ATen/Parallel.h>

namespace at {

// ATen's refers to the values of others.
class IntArrayRef {
 public:
  IntArrayRef(std::initializer_list<std::int64_t> values) : values_(values) {}
  IntArrayRef(const std::vector<std::int64_t>& values) : values_(values) {}
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  std::size_t size() const { return values_.size(); }
  std::int64_t operator[](std::size_t i) const { return values_[i]; }
  const std::vector<std::int64_t>& vec() const { return values_; }

 private:
  std::vector<std::int64_t> values_;
};

enum class ScalarType { Float };
inline constexpr ScalarType kFloat = ScalarType::Float;
enum class DeviceType { CPU, CUDA };
inline constexpr DeviceType kCPU = DeviceType::CPU;
inline constexpr DeviceType kCUDA = DeviceType::CUDA;

class Device {
 public:
  Device(DeviceType /*type*/) {}
  bool is_cpu() const { return true; }
};
inline bool hasCUDA() {
  return false;
}

class TensorOptions {
 public:
  TensorOptions dtype(ScalarType /*type*/) const { return {}; }
};

// Copies share the memory, and so do views, as in libtorch.
class Tensor {
 public:
  Tensor() = default;
  // Contiguous values that `memory` keeps alive.
  Tensor(std::shared_ptr<void> memory, float* data, std::vector<std::int64_t> sizes);

  bool defined() const { return data_ != nullptr; }
  void reset() { *this = {}; }
  std::int64_t dim() const { return static_cast<std::int64_t>(sizes_.size()); }
  IntArrayRef sizes() const { return sizes_; }
  // A negative axis counts from the last one.
  std::int64_t size(std::int64_t axis) const { return sizes_[index_of(axis)]; }
  std::int64_t stride(std::int64_t axis) const { return strides_[index_of(axis)]; }
  std::int64_t numel() const;
  TensorOptions options() const { return {}; }
  Device device() const { return kCPU; }
  bool is_cpu() const { return true; }
  bool is_contiguous() const;
  template <class Value>
  Value* data_ptr() const {
    return data_;
  }

  Tensor to(Device /*device*/) const { return *this; }
  Tensor contiguous() const { return is_contiguous() ? *this : clone(); }
  Tensor clone() const;
  // One of the sizes may be -1: as many as there are.
  Tensor reshape(IntArrayRef sizes) const;
  Tensor view(IntArrayRef sizes) const { return reshape(sizes); }
  Tensor narrow(std::int64_t axis, std::int64_t first, std::int64_t size) const;
  Tensor select(std::int64_t axis, std::int64_t index) const;
  Tensor permute(IntArrayRef axes) const;
  Tensor expand(IntArrayRef sizes) const;

  // `other` may have fewer axes, or axes of one value, which are repeated.
  const Tensor& copy_(const Tensor& other) const;
  const Tensor& add_(const Tensor& other) const;
  const Tensor& mul_(const Tensor& other) const;
  const Tensor& mul_(double factor) const;
  const Tensor& div_(double divisor) const { return mul_(1 / divisor); }
  const Tensor& zero_() const;
  const Tensor& exp_() const;
  const Tensor& tanh_() const;
  Tensor add(const Tensor& other) const {
    return changed([&](const Tensor& x) { x.add_(other); });
  }
  Tensor mul(const Tensor& other) const {
    return changed([&](const Tensor& x) { x.mul_(other); });
  }
  Tensor mul(double factor) const {
    return changed([&](const Tensor& x) { x.mul_(factor); });
  }
  Tensor div(double divisor) const { return mul(1 / divisor); }
  Tensor tanh() const {
    return changed([](const Tensor& x) { x.tanh_(); });
  }
  Tensor sum(IntArrayRef axes) const;
  Tensor mean(IntArrayRef axes) const;

 private:
  std::size_t index_of(std::int64_t axis) const {
    return static_cast<std::size_t>(axis < 0 ? axis + dim() : axis);
  }
  template <class Change>
  Tensor changed(const Change& change) const {
    Tensor copy = clone();
    change(copy);
    return copy;
  }
  template <class Function>
  void for_each(const Tensor& other, const Function& function) const;
  template <class Function>
  void for_each(const Function& function) const;

  std::shared_ptr<void> memory_;
  float* data_ = nullptr;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
};

// Any content.
Tensor empty(IntArrayRef sizes, TensorOptions options = {});
Tensor zeros(IntArrayRef sizes, TensorOptions options = {});
inline Tensor empty_like(const Tensor& x) {
  return empty(x.sizes());
}
inline Tensor zeros_like(const Tensor& x) {
  return zeros(x.sizes());
}
Tensor from_blob(float* data, IntArrayRef sizes, TensorOptions options);
// Calls `end` when the last tensor of this memory is gone.
Tensor from_blob(float* data, IntArrayRef sizes, const std::function<void(void*)>& end,
                 TensorOptions options);
Tensor cat(const std::vector<Tensor>& parts, std::int64_t axis);
void sum_out(const Tensor& sum, const Tensor& x, IntArrayRef axes);
// scale (1 - y^2), the derivative of tanh by its value.
Tensor tanh_backward(const Tensor& gradient, const Tensor& y);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return a.add(b);
}
Tensor operator-(double a, const Tensor& b);

struct Context {
  void setDeterministicAlgorithms(bool /*on*/, bool /*warns*/) {}
};
inline Context globalContext() {
  return {};
}

}  // namespace at
