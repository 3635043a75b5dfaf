// SPDX-License-Identifier: Apache-2.0
#pragma once

// Included before every source that includes libtorch where clang is older than 16: with a constexpr
// std::vector (libstdc++ 12, C++20), it instantiates vectors of ATen's IValue where that class is incomplete,
// and rejects the headers. Here std::vector is not constexpr.

// <memory> declares a constexpr function of this name that <vector> defines.
#define __fill_a1 __constexpr_fill_a1
#include <memory>
#include <string>
#undef __fill_a1

#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#include <vector>
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR constexpr
