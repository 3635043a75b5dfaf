// SPDX-License-Identifier: Apache-2.0
// In place of libtorch's header in a build without libtorch: there are no gradients by themselves.
#pragma once

namespace at {
struct NoGradGuard {
  NoGradGuard() {}
};
}  // namespace at
