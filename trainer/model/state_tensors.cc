// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/state_tensors.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"

namespace wflow::trainer {
namespace {

at::Tensor view_of(const at::Tensor& flat, const FlatEntry& entry) {
  return flat.narrow(0, entry.offset, entry.count).view(entry.spec.shape);
}

}  // namespace

at::Tensor alias_of(std::span<const float> values, at::IntArrayRef shape) {
  // libtorch has no tensors of constants; nothing writes to one that is made of constants.
  return at::from_blob(const_cast<float*>(values.data()), shape, at::TensorOptions().dtype(at::kFloat));
}

void StageArrays::Shared::add() const {
  for (const at::Tensor& other : others) first.add_(other);
}

void StageArrays::add_shared() const {
  for (const Shared& shared : shared_) shared.add();
}

StateInPass::StateInPass(StateOnUse* state, std::vector<const StageArrays*> stages, Network::Pass pass)
    : state_(state), pass_(pass), stages_(std::move(stages)) {}

// Those of the next stage that has any.
const std::vector<std::size_t>* StateInPass::of_next() const {
  for (std::size_t next = at_ + 1; next < stages_.size(); ++next)
    if (!stages_[next]->weights.empty()) return &stages_[next]->weights;
  return nullptr;
}

void StateInPass::begin() {
  if (state_ == nullptr) return;
  const std::vector<std::size_t>& own = stages_[at_]->weights;
  if (own.empty()) return;
  state_->start(own);
  state_->wait(own);
  if (const auto* next = of_next()) state_->start(*next);
  if (pass_ == Network::Pass::backward) state_->expect_gradients(own);
}

void StateInPass::end() {
  if (state_ == nullptr) return;
  std::vector<std::size_t> done = stages_[at_]->weights;
  if (const auto* next = of_next())
    std::erase_if(done, [&](std::size_t array) { return std::ranges::find(*next, array) != next->end(); });
  state_->release(done);
  ++at_;
}

void StateInPass::pass_by() {
  if (state_ == nullptr) return;
  pass_ = Network::Pass::predict;  // nothing writes gradients
  while (at_ < stages_.size()) {
    begin();
    end();
  }
}

StateTensors::StateTensors(FlatState& state, at::Device device) : state_(state), on_cpu_(device.is_cpu()) {
  const auto mirror = [&](std::span<float> values) {
    return alias_of(values, {static_cast<std::int64_t>(values.size())}).to(device);
  };
  values_ = mirror(state.values());
  gradients_ = mirror(state.gradients());
  buffers_ = mirror(state.buffer_values());
  statistics_ = mirror(state.batch_statistics());
}

std::vector<LayerTensors> StateTensors::tensors_of(std::span<const Layer> layers, StageArrays& arrays) const {
  std::vector<LayerTensors> tensors(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const ParameterSpec& spec : layers[i].parameters) {
      const FlatEntry& entry = *state_.parameters().find(spec.name);
      const auto number = static_cast<std::size_t>(&entry - state_.parameters().entries.data());
      if (std::ranges::find(arrays.weights, number) == arrays.weights.end()) arrays.weights.push_back(number);
      if (layers[i].frozen) {
        // Its gradient is not wanted: it stays 0 in the exchange array.
        tensors[i].parameters.push_back({view_of(values_, entry), unread_gradient(entry), false});
        continue;
      }
      const at::Tensor gradient = own_place(gradients_, entry, gradient_owners_);
      tensors[i].parameters.push_back({view_of(values_, entry), gradient});
      arrays.gradients.emplace_back(spec.name, gradient);
      if (gradient_owners_.contains(spec.name)) continue;
      const std::int64_t begin = state_.gradients_begin() + entry.offset;
      if (arrays.gradients_from < 0) arrays.gradients_from = begin;
      arrays.gradient_floats = begin + entry.count - arrays.gradients_from;
    }
    for (const ParameterSpec& spec : layers[i].buffers) {
      const FlatEntry& entry = *state_.buffers().find(spec.name);
      tensors[i].running.push_back(view_of(buffers_, entry));
      tensors[i].statistics.push_back(own_place(statistics_, entry, statistic_owners_));
      arrays.statistics.emplace_back(spec.name, tensors[i].statistics.back());
    }
  }
  return tensors;
}

// Zeros that take no memory as long as no layer writes them.
at::Tensor StateTensors::unread_gradient(const FlatEntry& entry) const {
  if (!on_cpu_) return at::zeros(entry.spec.shape, gradients_.options());
  const auto memory = std::make_shared<FloatBuffer>(entry.count);
  return at::from_blob(
      memory->data(), entry.spec.shape, [memory](void*) {}, gradients_.options());
}

at::Tensor StateTensors::own_place(const at::Tensor& all, const FlatEntry& entry, const Owners& owners) {
  const at::Tensor first = view_of(all, entry);
  return owners.contains(entry.spec.name) ? at::zeros_like(first) : first;
}

void StateTensors::share(const StageArrays::NamedTensors& computed, Owners& owners) const {
  for (const auto& [name, tensor] : computed) {
    const auto [owner, is_first] = owners.emplace(name, Owner{stages_, {tensor, {}}});
    if (!is_first) owner->second.array.others.push_back(tensor);
  }
}

void StateTensors::add(const StageArrays& arrays) {
  share(arrays.gradients, gradient_owners_);
  share(arrays.statistics, statistic_owners_);
  ++stages_;
}

void StateTensors::finish(std::span<StageArrays* const> stages) {
  WFLOW_CHECK(stages.size() == stages_);
  for (const auto& [name, owner] : gradient_owners_)
    if (!owner.array.others.empty()) stages[owner.stage]->shared_.push_back(owner.array);
  for (const auto& [name, owner] : statistic_owners_)
    if (!owner.array.others.empty()) shared_statistics_.push_back(owner.array);
  std::int64_t end = 0;  // of the gradients of the stages before
  for (StageArrays* stage : stages) {
    stage->final_from = std::max(stage->gradients_from, end);
    if (stage->gradients_from >= 0) end = std::max(end, stage->gradients_from + stage->gradient_floats);
  }
}

void StateTensors::average_statistics() const {
  for (const StageArrays::Shared& shared : shared_statistics_) {
    shared.add();
    shared.first.div_(static_cast<double>(1 + shared.others.size()));
  }
  if (!on_cpu_) alias_of(state_.batch_statistics(), statistics_.sizes()).copy_(statistics_);
}

void StateTensors::download_gradients(const StageArrays& arrays) const {
  if (on_cpu_) return;
  const std::int64_t from = arrays.gradients_from - state_.gradients_begin();
  const at::Tensor found = gradients_.narrow(0, from, arrays.gradient_floats);
  alias_of(state_.gradients().subspan(static_cast<std::size_t>(from)), found.sizes()).copy_(found);
}

void StateTensors::upload() const {
  if (on_cpu_) return;
  values_.copy_(alias_of(state_.values(), values_.sizes()));
  buffers_.copy_(alias_of(state_.buffer_values(), buffers_.sizes()));
}

}  // namespace wflow::trainer
