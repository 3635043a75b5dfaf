// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/run_data.h"

#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace wflow::trainer {
namespace {

// The same for processes that may name each other.
std::string machine() {
  std::string name;
  try {
    name = read_file("/proc/sys/kernel/random/boot_id");
  } catch (const Error&) {
    // Nothing but the name of the machine is known.
  }
  std::array<char, 256> text{};
  if (::gethostname(text.data(), text.size() - 1) == 0) name += text.data();
  const ssize_t length = ::readlink("/proc/self/ns/pid", text.data(), text.size());
  if (length > 0) name.append(text.data(), static_cast<std::size_t>(length));
  return name;
}

}  // namespace

ChunkSharing share_chunks(Communicator& group, std::size_t slots, std::size_t slot_bytes) {
  const std::vector<std::string> machines = group.all_gather(machine());
  const auto self = static_cast<std::size_t>(group.rank());
  std::vector<std::size_t> here;
  for (std::size_t rank = 0; rank < machines.size(); ++rank)
    if (machines[rank] == machines[self]) here.push_back(rank);
  ChunkSharing sharing;
  sharing.ranks = here.size();
  while (here[sharing.rank] != self) ++sharing.rank;
  const bool leads = sharing.rank == 0;
  if (leads && here.size() > 1) sharing.chunks = converters::SharedChunks::make(slots, slot_bytes);
  const std::vector<std::string> names = group.all_gather(sharing.chunks ? sharing.chunks->name() : "");
  if (!leads && !names[here.front()].empty())
    sharing.chunks = converters::SharedChunks::open(names[here.front()]);
  // All of a machine have it, or none.
  const std::vector<std::string> has = group.all_gather(sharing.chunks ? "1" : "0");
  for (const std::size_t rank : here)
    if (has[rank] != "1") sharing.chunks.reset();
  return sharing;
}

}  // namespace wflow::trainer
