// SPDX-License-Identifier: Apache-2.0
// Time of MPI_Allreduce of one double, back to back, the input changed before every operation: the peer that
// `make demo` shows beside tugline's. Prints microseconds per operation, the median of many batches.
// Build: mpicc.openmpi -O2 mpi_all_reduce.c; run: mpirun.openmpi -np 2.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBatches = 1000, kOperations = 100, kWarmup = 10000 };  // batches as tugline bench makes them

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static double times[kBatches];
  double value = 0;
  double sum = 0;
  long wrong = 0;
  for (int batch = -1; batch < kBatches; ++batch) {
    const int operations = batch < 0 ? kWarmup : kOperations;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < operations; ++i) {
      value = i + rank;
      MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      wrong += sum != (double)i * size + size * (size - 1) / 2;
    }
    if (batch >= 0) times[batch] = (MPI_Wtime() - start) * 1e6 / operations;
  }
  qsort(times, kBatches, sizeof times[0], by_value);
  if (rank == 0) printf("%.3f\n", times[kBatches / 2]);
  MPI_Finalize();
  return wrong != 0;
}
