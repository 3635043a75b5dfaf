// SPDX-License-Identifier: Apache-2.0
// The precompiled headers (WflowSettings.cmake) belong to a library; this is all that is in it.
