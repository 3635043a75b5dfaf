// SPDX-License-Identifier: Apache-2.0
// The memory that a training step takes, counted from the graph before anything is allocated. Needs no
// library.
#pragma once

#include <cstdint>

#include "trainer/model/distribution.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Bytes for each sample that a rank computes at once: the outputs that the backward pass reads, with their
// halos, the gradients that exist at the same time, and what the kernels need besides. Without the samples
// themselves, and without the state. Null: each rank has whole samples.
//
// Counts as the kernels of this program keep arrays (groups of layers by oneDNN in blocks of 16 channels); a
// back end that computes layer by layer keeps up to three times as much.
std::int64_t step_bytes(const ModelGraph& graph, const Distribution* distribution, int rank);

}  // namespace wflow::trainer
