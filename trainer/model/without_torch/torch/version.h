// SPDX-License-Identifier: Apache-2.0
// In place of libtorch's header in a build without libtorch.
#pragma once

#define TORCH_VERSION "none"
