// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// The member of the module with a parameter, buffer or constant (torchscript_source.cc), and the expression
// for it: "p_dense1_weight", "self.p_dense1_weight".
std::string member_of(const std::string& name);
std::string attribute_of(const std::string& name);

// The lines that compute a recurrent, attention or spectral layer; the last one sets `value`. Empty for other
// kinds. `inputs`: the values that the layer reads.
std::vector<std::string> sequence_lines(const Layer& layer, const std::string& value,
                                        const std::vector<std::string>& inputs);

}  // namespace wflow::trainer
