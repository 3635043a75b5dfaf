// SPDX-License-Identifier: Apache-2.0
// Networks with shortcuts around their convolutions, for fields of one to three dimensions.
#pragma once

#include "trainer/model/family_chain.h"

namespace wflow::trainer {

// Field to numbers: He et al. 2016 (arXiv 1512.03385), blocks of two convolutions; with `pre_activation`
// those of arXiv 1603.05027. The first convolution keeps the grid, as in the paper's networks for 32 x 32
// cells.
ModelGraph build_resnet(const ModelConfig& config, Chain chain, const ModelTask& task);

// Field to field: the encoder of resnet, its last level with dilation in place of another halving, parallel
// convolutions of several dilations, and a decoder on the whole grid that also reads the first level (Chen et
// al. 2018, arXiv 1802.02611; Kurth et al. 2018, arXiv 1810.01993, for the decoder).
ModelGraph build_deeplab(const ModelConfig& config, Chain chain, const ModelTask& task);

// Field to field: Jegou et al. 2017 (arXiv 1611.09326), dense blocks on the way down and up.
ModelGraph build_tiramisu(const ModelConfig& config, Chain chain, const ModelTask& task);

}  // namespace wflow::trainer
