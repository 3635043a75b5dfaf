// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <new>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace at {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t kValuesOfThread = 1 << 14;  // fewer cost less than a second thread

std::int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

// Calls function(offset of the first, offset of the second) for all values of `sizes`, from this axis on.
template <class Function>
void walk(const Sizes& sizes, const Sizes& first, const Sizes& second, std::size_t axis, std::int64_t at,
          std::int64_t at_second, const Function& function) {
  if (axis == sizes.size()) return function(at, at_second);
  const std::int64_t count = sizes[axis];
  if (axis + 1 < sizes.size()) {
    for (std::int64_t i = 0; i < count; ++i)
      walk(sizes, first, second, axis + 1, at + i * first[axis], at_second + i * second[axis], function);
  } else if (first[axis] == 1 && second[axis] == 1) {  // with vectors
    for (std::int64_t i = 0; i < count; ++i) function(at + i, at_second + i);
  } else {
    for (std::int64_t i = 0; i < count; ++i) function(at + i * first[axis], at_second + i * second[axis]);
  }
}

// The strides of a tensor that is repeated along axes that it lacks.
Sizes repeated(const Tensor& x, IntArrayRef sizes) {
  Sizes strides(sizes.size(), 0);
  const std::size_t more = sizes.size() - static_cast<std::size_t>(x.dim());
  for (std::size_t i = more; i < sizes.size(); ++i) {
    const auto axis = static_cast<std::int64_t>(i - more);
    WFLOW_CHECK(x.size(axis) == sizes[i] || x.size(axis) == 1);
    if (x.size(axis) == sizes[i]) strides[i] = x.stride(axis);
  }
  return strides;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<void> memory, float* data, Sizes sizes)
    : memory_(std::move(memory)),
      data_(data),
      sizes_(std::move(sizes)),
      strides_(contiguous_strides(sizes_)) {}

std::int64_t Tensor::numel() const {
  return product(sizes_);
}

bool Tensor::is_contiguous() const {
  const Sizes strides = contiguous_strides(sizes_);
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    if (sizes_[i] != 1 && strides_[i] != strides[i]) return false;
  return true;
}

Tensor Tensor::clone() const {
  Tensor copy = at::empty(sizes_);
  copy.copy_(*this);
  return copy;
}

Tensor Tensor::reshape(IntArrayRef sizes) const {
  Sizes known = sizes.vec();
  const auto open = std::find(known.begin(), known.end(), -1);
  if (open != known.end()) {
    *open = 1;
    *open = numel() / product(known);
  }
  WFLOW_CHECK(product(known) == numel());
  const Tensor values = contiguous();
  return {values.memory_, values.data_, std::move(known)};
}

Tensor Tensor::narrow(std::int64_t axis, std::int64_t first, std::int64_t size) const {
  Tensor part = *this;
  part.sizes_[index_of(axis)] = size;
  part.data_ += first * strides_[index_of(axis)];
  return part;
}

Tensor Tensor::select(std::int64_t axis, std::int64_t index) const {
  Tensor part = narrow(axis, index, 1);
  const auto at = static_cast<std::ptrdiff_t>(index_of(axis));
  part.sizes_.erase(part.sizes_.begin() + at);
  part.strides_.erase(part.strides_.begin() + at);
  return part;
}

Tensor Tensor::permute(IntArrayRef axes) const {
  Tensor turned = *this;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    turned.sizes_[i] = size(axes[i]);
    turned.strides_[i] = stride(axes[i]);
  }
  return turned;
}

Tensor Tensor::expand(IntArrayRef sizes) const {
  Tensor wide = *this;
  wide.strides_ = repeated(*this, sizes);
  wide.sizes_ = sizes.vec();
  return wide;
}

template <class Function>
void Tensor::for_each(const Tensor& other, const Function& function) const {
  float* to = data_;
  const float* from = other.data_;
  if (other.sizes_ == sizes_ && is_contiguous() && other.is_contiguous()) {
    parallel_for(0, numel(), kValuesOfThread, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) function(to[i], from[i]);
    });
    return;
  }
  walk(sizes_, strides_, repeated(other, sizes_), 0, 0, 0,
       [&](std::int64_t i, std::int64_t j) { function(to[i], from[j]); });
}

template <class Function>
void Tensor::for_each(const Function& function) const {
  for_each(*this, [&](float& value, float /*itself*/) { function(value); });
}

const Tensor& Tensor::copy_(const Tensor& other) const {
  for_each(other, [](float& to, float from) { to = from; });
  return *this;
}
const Tensor& Tensor::add_(const Tensor& other) const {
  for_each(other, [](float& to, float from) { to += from; });
  return *this;
}
const Tensor& Tensor::mul_(const Tensor& other) const {
  for_each(other, [](float& to, float from) { to *= from; });
  return *this;
}
const Tensor& Tensor::mul_(double factor) const {
  for_each([by = static_cast<float>(factor)](float& value) { value *= by; });
  return *this;
}
const Tensor& Tensor::zero_() const {
  for_each([](float& value) { value = 0; });
  return *this;
}
const Tensor& Tensor::exp_() const {
  for_each([](float& value) { value = std::exp(value); });
  return *this;
}
const Tensor& Tensor::tanh_() const {
  for_each([](float& value) { value = std::tanh(value); });
  return *this;
}

Tensor Tensor::sum(IntArrayRef axes) const {
  Sizes left = sizes_;
  for (const std::int64_t axis : axes) left[index_of(axis)] = 1;
  Sizes strides = contiguous_strides(left);
  for (const std::int64_t axis : axes) strides[index_of(axis)] = 0;
  std::vector<double> sums(static_cast<std::size_t>(product(left)));
  walk(sizes_, strides_, strides, 0, 0, 0,
       [values = data_, into = sums.data()](std::int64_t from, std::int64_t to) {
         into[to] += static_cast<double>(values[from]);
       });
  Sizes kept;
  for (std::int64_t axis = 0; axis < dim(); ++axis) {
    const auto is_axis = [&](std::int64_t summed) { return index_of(summed) == index_of(axis); };
    if (std::none_of(axes.begin(), axes.end(), is_axis)) kept.push_back(size(axis));
  }
  Tensor result = at::empty(kept);
  std::transform(sums.begin(), sums.end(), result.data_, [](double sum) { return static_cast<float>(sum); });
  return result;
}

Tensor Tensor::mean(IntArrayRef axes) const {
  const Tensor sums = sum(axes);
  return sums.div(static_cast<double>(numel() / sums.numel()));
}

Tensor empty(IntArrayRef sizes, TensorOptions /*options*/) {
  constexpr std::size_t kLine = 64;
  const std::size_t bytes = static_cast<std::size_t>(product(sizes.vec())) * sizeof(float);
  void* memory = std::aligned_alloc(kLine, (bytes / kLine + 1) * kLine);
  if (memory == nullptr) throw std::bad_alloc();
  return {std::shared_ptr<void>(memory, std::free), static_cast<float*>(memory), sizes.vec()};
}

Tensor zeros(IntArrayRef sizes, TensorOptions options) {
  Tensor x = at::empty(sizes, options);
  x.zero_();
  return x;
}

Tensor from_blob(float* data, IntArrayRef sizes, TensorOptions /*options*/) {
  return {nullptr, data, sizes.vec()};
}

Tensor from_blob(float* data, IntArrayRef sizes, const std::function<void(void*)>& end,
                 TensorOptions /*options*/) {
  return {std::shared_ptr<void>(data, end), data, sizes.vec()};
}

Tensor cat(const std::vector<Tensor>& parts, std::int64_t axis) {
  Sizes sizes = parts.front().sizes().vec();
  const auto at = static_cast<std::size_t>(axis < 0 ? axis + parts.front().dim() : axis);
  sizes[at] = 0;
  for (const Tensor& part : parts) sizes[at] += part.size(axis);
  Tensor all = at::empty(sizes);
  std::int64_t first = 0;
  for (const Tensor& part : parts) {
    all.narrow(axis, first, part.size(axis)).copy_(part);
    first += part.size(axis);
  }
  return all;
}

void sum_out(const Tensor& sum, const Tensor& x, IntArrayRef axes) {
  sum.copy_(x.sum(axes));
}

Tensor tanh_backward(const Tensor& gradient, const Tensor& y) {
  return gradient.mul(1 - y.mul(y));
}

Tensor operator-(double a, const Tensor& b) {
  Tensor y = b.mul(-1);
  const float first = static_cast<float>(a);
  y.add_(from_blob(const_cast<float*>(&first), {1}, {}));
  return y;
}

#ifdef _OPENMP
void set_num_threads(int threads) {
  omp_set_num_threads(threads);
}
int get_num_threads() {
  return omp_get_max_threads();
}
#else
void set_num_threads(int /*threads*/) {}
int get_num_threads() {
  return 1;
}
#endif

}  // namespace at
