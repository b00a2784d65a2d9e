// SPDX-License-Identifier: Apache-2.0
// Open MPI or MPICH, whichever compiles it, in the timing loop of bench/peers/timing_loop.h.
// Usage: mpirun -np N mpi_peer BUDGET_MS LIMIT_S CORES CASES...
#include <mpi.h>

#include "peers/timing_loop.h"

namespace {

using peers::Collective;

class Mpi {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void max(std::vector<std::uint64_t>& values) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_UINT64_T, MPI_MAX,
                  MPI_COMM_WORLD);
  }

  peers::Places prepare(const peers::Shape& shape) {
    shape_ = shape;
    count_ = static_cast<int>(shape.count);
    places_ =
        buffers_.make(shape.collective == Collective::broadcast ? 0 : shape.send_count, shape.recv_count);
    if (places_.input == nullptr) places_.input = places_.output;
    return places_;
  }

  void operate() {
    float* in = places_.input;
    float* out = places_.output;
    switch (shape_.collective) {
      case Collective::barrier:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
      case Collective::all_reduce:
        MPI_Allreduce(in, out, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::all_gather:
        MPI_Allgather(in, count_, MPI_FLOAT, out, count_, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(in, out, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::broadcast:
        MPI_Bcast(out, count_, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case Collective::all_to_all:
        MPI_Alltoall(in, count_, MPI_FLOAT, out, count_, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Collective::send_recv:
        MPI_Sendrecv(in, count_, MPI_FLOAT, (rank_ + 1) % size_, 0, out, count_, MPI_FLOAT,
                     (rank_ + size_ - 1) % size_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    }
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  int count_ = 0;
  peers::PrivateBuffers buffers_;
  peers::Shape shape_;
  peers::Places places_;
};

/// "4.1.4" of "Open MPI v4.1.4, package: ..." or "MPICH Version: 4.0.2".
std::string version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string all(text.data(), static_cast<std::size_t>(length));
  auto first = all.find_first_of("0123456789");
  if (first == std::string::npos) return all;
  return all.substr(first, all.find_first_not_of("0123456789.", first) - first);
}

/// Launchers say the rank before MPI_Init in variables of their own.
const char* rank_variable() {
  return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK";
}

}  // namespace

int main(int argc, char** argv) try {
  auto order = peers::order_of({argv + 1, argv + argc});
  peers::begin(order, peers::rank_from(rank_variable()));
  MPI_Init(&argc, &argv);
  try {
    Mpi mpi;
    peers::run(mpi, order, version());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_peer: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);  // the others wait for this rank
  }
  MPI_Finalize();
} catch (const std::exception& error) {
  std::fprintf(stderr, "mpi_peer: %s\n", error.what());
  return 1;
}
