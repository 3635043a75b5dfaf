// SPDX-License-Identifier: Apache-2.0
// Sums of an array over MPI ranks; started by bench/rank_sums.
//   wflow_rank_sums ours|plain MEBIBYTES SECONDS
// ours: trainer/parallel's Communicator, all in one bucket; plain: MPI_Allreduce of the MPI library. Rank 0
// prints a line of JSON: sums, wall seconds, CPU seconds of all ranks.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <fmt/format.h>
#include <mpi.h>
#include <time.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/parallel/communicator.h"

namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cost {
  double wall = 0;
  double cpu = 0;
};

Cost cost_of(int sums, const std::function<void()>& sum) {
  const auto begin = Clock::now();
  const double cpu = cpu_seconds();
  for (int i = 0; i < sums; ++i) sum();
  return {std::chrono::duration<double>(Clock::now() - begin).count(), cpu_seconds() - cpu};
}

// Rank 0 finds the number that fills the time.
int sums_in(double seconds, const std::function<void()>& sum, const std::function<int(int)>& from_first) {
  sum();
  const double one = cost_of(3, sum).wall / 3;
  return from_first(std::max(3, static_cast<int>(std::ceil(seconds / one))));
}

void print(int sums, const Cost& cost) {
  fmt::print("{{\"sums\": {}, \"wall\": {}, \"cpu\": {}}}\n", sums, cost.wall, cost.cpu);
}

void ours(int argc, char** argv, std::vector<float>& values, double seconds) {
  wflow::trainer::Communicator communicator(argc, argv);
  const auto sum = [&] { communicator.all_reduce(values); };
  const int sums = sums_in(seconds, sum, [&](int own) {
    std::string text = std::to_string(own);
    communicator.broadcast(text);
    return std::stoi(text);
  });
  communicator.barrier();
  Cost cost = cost_of(sums, sum);
  double all = 0;
  for (const std::string& part : communicator.all_gather(std::to_string(cost.cpu))) all += std::stod(part);
  if (communicator.rank() == 0) print(sums, {cost.wall, all});
}

void plain(int argc, char** argv, std::vector<float>& values, double seconds) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto sum = [&] {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  };
  const int sums = sums_in(seconds, sum, [](int own) {
    MPI_Bcast(&own, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return own;
  });
  MPI_Barrier(MPI_COMM_WORLD);
  const Cost cost = cost_of(sums, sum);
  double all = 0;
  MPI_Reduce(&cost.cpu, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) print(sums, {cost.wall, all});
  MPI_Finalize();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: wflow_rank_sums ours|plain MEBIBYTES SECONDS\n");
    return 2;
  }
  // Zeros stay what they are, however often they are summed.
  std::vector<float> values((static_cast<std::size_t>(std::atoi(argv[2])) << 20) / sizeof(float));
  const double seconds = std::atof(argv[3]);
  std::string_view(argv[1]) == "ours" ? ours(argc, argv, values, seconds)
                                      : plain(argc, argv, values, seconds);
  return 0;
}
