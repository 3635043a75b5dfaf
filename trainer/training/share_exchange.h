// SPDX-License-Identifier: Apache-2.0
// The exchanges of ranks that have shares of a flat array each (state_shards.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/page_pool.h"
#include "trainer/config.h"
#include "trainer/model/flat_state.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/state_shards.h"

namespace wflow::trainer {

// A collective call: every rank gets the others' shares of `values`, the whole array.
void gather_shares(Communicator& communicator, const StateShards& shards, std::span<float> values);

// A collective call: rank 0 gets `values` of an array, from position `first` of it on, which lie in the
// shares of several ranks. `own`: this rank's part of the array. `values`: for rank 0.
void collect_part(Communicator& communicator, const StateShards& shards, std::size_t array, std::size_t first,
                  std::size_t count, std::span<const float> own, std::span<float> values);

// The weights and gradients of a training of which each rank has a share. Each rank gets the sums of its
// gradients only. Where gradients or weights are divided, too, the places of the others' shares in the flat
// arrays have no memory while their layer is not in use.
class SharedState final : public StateOnUse {
 public:
  // All must outlive this object.
  SharedState(Communicator& communicator, const StateShards& shards, FlatState& state, Shard divided);
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;
  ~SharedState() override;

  void start(std::span<const std::size_t> arrays) override;
  void wait(std::span<const std::size_t> arrays) override;
  void release(std::span<const std::size_t> arrays) override;
  void expect_gradients(std::span<const std::size_t> arrays) override;

  bool shares_weights() const { return divided_ >= Shard::weights; }
  // The owners of values of the exchange array, from one position to before another.
  OwnedParts owners(std::int64_t begin, std::int64_t end) const;
  // These are summed; for the communication thread.
  void summed(std::int64_t begin, std::int64_t end);
  // All are summed.
  void all_summed();
  // In place of the gradients of a rank without samples.
  void clear_gradients();

  // Gives back the weights that others own.
  void keep_own_weights();
  // A collective call: rank 0 gets all weights, to write them as a model.
  void collect_on_first();

 private:
  template <class Call>
  void for_others(std::size_t array, std::span<float> flat, const Call& call) const;
  Range range_of(std::size_t array) const;  // its place in the flat arrays
  // The pages of the others' parts of an array come from the pool, and go back to it: of `within` alone.
  void lend(std::size_t array, std::span<float> flat);
  void take_back(std::size_t array, std::span<float> flat, const Range& within);

  Communicator& communicator_;
  const StateShards& shards_;
  FlatState& state_;
  const Shard divided_;
  enum class Where { elsewhere, coming, here };
  struct Array {
    Where where = Where::elsewhere;  // its weights
    Communicator::Ticket ticket = 0;
    bool has_gradients = false;
  };
  std::vector<Array> arrays_;
  PagePool pool_;
};

}  // namespace wflow::trainer
