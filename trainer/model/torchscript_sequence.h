// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// The module's attribute with a parameter, buffer or constant (torchscript_source.cc).
std::string attribute_of(std::string name);

// The lines that compute a recurrent, attention or spectral layer; the last one sets `value`. Empty for other
// kinds. `inputs`: the values that the layer reads.
std::vector<std::string> sequence_lines(const Layer& layer, const std::string& value,
                                        const std::vector<std::string>& inputs);

}  // namespace wflow::trainer
