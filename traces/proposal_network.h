// SPDX-License-Identifier: Apache-2.0
// Evaluates the network of the layer trace_density one draw at a time, beside a running simulator:
// proposals.bin of a training, without libtorch.
//
// A draw's step reads the embedding of the observation, the previous draw, and address and prior of this draw
// (inference compilation, Le, Baydin and Wood 2017, arXiv:1610.09900, section 4; the shapes are those of
// Baydin et al. 2019, arXiv:1907.03382, with one hidden layer that all addresses share):
//
//   x_t = [embedding E | z | category 16 | place, width of the prior | address of t - 1 | address of t]
//   h_t, c_t = LSTM(x_t, h_(t-1), c_(t-1))          gates in PyTorch's order: input, forget, cell, output
//   y_t = head of the address (silu(W h_t + b))
//
// y_t has the logits, means and logarithms of widths of `components` normal distributions over the coordinate
// of the draw (DrawFeatures), or the logits of categories. A proposal is kPriorShare times the prior plus the
// rest times this density.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "traces/address_table.h"
#include "traces/run.h"

namespace wflow::traces {

inline constexpr int kProposalFormat = 1;
inline constexpr const char* kProposalFile = "proposals.bin";
inline constexpr std::size_t kAddressValues = 16;  // of an address's learned vector
inline constexpr std::size_t kCategoryValues = 16;
// The inputs of a step beside the embedding and the two addresses.
inline constexpr std::size_t kDrawValues = 1 + kCategoryValues + 2;

// The heads of the addresses, one behind the other in the rows of one matrix.
struct Heads {
  struct Head {
    Proposal form = Proposal::none;
    std::size_t first = 0;  // row
    std::size_t count = 0;
  };
  std::vector<Head> heads;  // by the number of the address in the table
  std::size_t rows = 0;
};
Heads heads_of(const AddressTable& table, std::size_t components);

// The values of a step's input that describe the draw before it and the prior of this one.
void write_draw_values(const DrawFeatures* previous, const DrawFeatures& current, std::span<float> to);

// The density of a head's values at a draw, mixed with the prior's share.
double log_proposal(Proposal form, std::span<const float> values, const DrawFeatures& draw,
                    std::size_t categories);
// A value that has this density.
double propose(Proposal form, std::span<const float> values, const Distribution& prior, Random& random);

class ProposalNetwork {
 public:
  struct Sizes {
    std::size_t embedding = 0;
    std::size_t units = 0;
    std::size_t components = 0;
    std::size_t inputs() const { return embedding + kDrawValues + 2 * kAddressValues; }
  };
  // The layer's parameters, row by row, in this order: address [addresses + 1, 16] (the last row stands
  // before the first draw), weight_ih [4 units, inputs], weight_hh [4 units, units], bias_ih, bias_hh [4
  // units], hidden_weight [units, units], hidden_bias [units], head_weight [rows, units], head_bias [rows].
  static std::vector<std::vector<std::int64_t>> shapes(const Sizes& sizes, const AddressTable& table);

  static std::size_t parameter_count(const Sizes& sizes, const AddressTable& table);

  ProposalNetwork(const Sizes& sizes, AddressTable table, std::span<const float> parameters);

  // The contents of proposals.bin. parse() throws Error{data} with `name`.
  static std::string text(const Sizes& sizes, const AddressTable& table, std::span<const float> parameters);
  static ProposalNetwork parse(const std::string& text, const std::string& name);

  const Sizes& sizes() const { return sizes_; }
  const AddressTable& table() const { return table_; }

  // The state between two draws.
  struct State {
    std::vector<float> hidden;
    std::vector<float> cell;
    DrawFeatures previous;
    std::size_t address = 0;  // of the previous draw; the number of addresses before the first one
    bool began = false;
  };
  State first() const;
  // The part of the gates that the observation gives, for all steps.
  std::vector<float> observe(std::span<const float> embedding) const;
  // hidden and cell after the step of a draw at the address, whose value the features need not have.
  void step(State& state, std::span<const float> observed, std::size_t address,
            const DrawFeatures& current) const;
  // The values of the address's head after its step.
  std::vector<float> head(const State& state, std::size_t address) const;
  // The number of a known address; nothing for others.
  const std::size_t* number_of(std::uint64_t hash) const;
  const Heads::Head& head_of(std::size_t address) const { return heads_.heads[address]; }

 private:
  Sizes sizes_;
  AddressTable table_;
  std::map<std::uint64_t, std::size_t> numbers_;
  Heads heads_;
  // Matrices are stored column by column: sums over columns need no reordering, and the compiler vectorises
  // them.
  std::vector<float> address_, weight_ih_, weight_hh_, bias_, hidden_weight_, hidden_bias_, head_weight_,
      head_bias_;
};

// Draws from the network's proposals; from the prior at addresses that it does not know.
class ProposalSampler final : public Sampler {
 public:
  ProposalSampler(const ProposalNetwork& network, std::span<const float> embedding);
  void begin() override;
  Choice choose(const Site& site, Random& random) override;
  void add(std::uint64_t hash, std::span<const double> row) override;
  void save() override;
  void restore() override;
  Loops loops() const override { return Loops::proposals; }
  std::uint64_t unknown() const { return unknown_; }  // draws at unknown addresses, of all runs

 private:
  std::vector<float> step_to(std::size_t number, const Site& site);

  const ProposalNetwork& network_;
  std::vector<float> observed_;
  ProposalNetwork::State state_;
  ProposalNetwork::State next_;  // after the step of a draw that is not kept yet
  ProposalNetwork::State saved_;
  bool has_next_ = false;
  // The first step after save(), which every try of a loop makes.
  struct FirstStep {
    std::uint64_t hash = 0;
    Row prior{};  // of the draw
    ProposalNetwork::State state;
    std::vector<float> head;
  };
  std::optional<FirstStep> first_;
  bool at_saved_ = false;  // no draw since save() or restore()
  std::uint64_t unknown_ = 0;
};

}  // namespace wflow::traces
