/* SPDX-License-Identifier: Apache-2.0
 * An MPI program for the tests of tasks on several nodes: every rank says where it is, then they talk to each other
 * until a file appears. ring FILE [SECONDS]: and for so long after that. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char host[128] = "";
  gethostname(host, sizeof host - 1);
  char line[256];
  const int length = snprintf(line, sizeof line, "rank %d of %d on %s pid %d\n", rank, size, host, (int)getpid());
  if (write(1, line, (size_t)length) != length) return 1;
  const double seconds = argc > 2 ? atof(argv[2]) : 0;
  double end = -1;
  for (int open = 0, all = 0; end < 0 || MPI_Wtime() < end;) {
    open = access(argv[1], F_OK) == 0;
    MPI_Allreduce(&open, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all && end < 0) end = MPI_Wtime() + seconds;
    usleep(20000);
  }
  MPI_Finalize();
  return 0;
}
