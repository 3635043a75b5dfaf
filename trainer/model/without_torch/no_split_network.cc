// SPDX-License-Identifier: Apache-2.0
// In place of split_network.cc in a build without libtorch.
#include "trainer/model/split_network.h"

namespace wflow::trainer {

std::unique_ptr<Network> make_split_network(const ModelGraph& /*graph*/, FlatState& /*state*/,
                                            const Distribution& /*distribution*/, RankGroup& /*group*/,
                                            KernelChoice /*kernels*/) {
  needs_torch("'grid', by which several ranks share a sample,");
}

}  // namespace wflow::trainer
