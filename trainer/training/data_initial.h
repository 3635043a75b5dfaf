// SPDX-License-Identifier: Apache-2.0
// Initial weights from the data (Kraehenbuehl et al. 2016; Mishkin and Matas 2016): each convolution and each
// hidden dense layer in turn is scaled and shifted, so that over some training samples every channel of its
// output has mean 0 and variance 1. What a norm does for the begin of a training, without a norm behind it.
#pragma once

#include "trainer/data/run_data.h"
#include "trainer/model/flat_state.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

// The same values on all ranks and, but for rounding, on any number of ranks.
void initialise_from_data(const ModelGraph& graph, RunData& data, Communicator& communicator,
                          FlatState& state);

}  // namespace wflow::trainer
