// A job in which something goes wrong: all-reduces until one fails, then the process ends all others.
//   victim FAULT RANK TIMEOUT_MS    FAULT of process RANK in the 20th exchange: kill stop exit hang abort none;
//                                    cut: runs until somebody pulls a cable
// TIMEOUT_MS is that of exchanges from the 20th on: what came before may take as long as it does on a busy machine.
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "comm/mpi/mpi_world.h"

int main(int argc, char** argv) {
  using namespace piper;
  if (argc != 4) return 2;
  const std::string fault = argv[1];
  const int rank = std::atoi(argv[2]);
  const std::chrono::milliseconds timeout(std::atoi(argv[3]));
  MpiWorld world;
  std::vector<int> members;
  for (int d = 0; d < world.ranks(); ++d) members.push_back(d);
  std::vector<float> x(300'000, 1);
  auto last = std::chrono::steady_clock::now();
  try {
    const auto patient = world.make(world.ranks(), std::chrono::minutes(10));
    patient[0]->make_group(members);
    for (int64_t k = 0; k < 20; ++k)
      patient[0]->all_reduce(0, k, std::as_writable_bytes(std::span(x)), DataType::Float32);
    const auto devices = world.make(world.ranks(), timeout);
    Communicator& device = *devices[0];
    const int group = device.make_group(members);
    if (world.rank() == 0) std::cout << "running" << std::endl;
    last = std::chrono::steady_clock::now();
    for (int64_t k = 20; fault == "cut" || k < 40; ++k) {
      if (k == 20 && world.rank() == rank) {
        if (fault == "kill") std::raise(SIGKILL);
        if (fault == "stop") std::raise(SIGSTOP);
        if (fault == "exit") std::_Exit(9);
        if (fault == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
        if (fault == "abort") device.abort("process " + std::to_string(rank) + " has had enough");
      }
      device.all_reduce(group, k, std::as_writable_bytes(std::span(x)), DataType::Float32);
      last = std::chrono::steady_clock::now();
    }
  } catch (const CommunicationError& problem) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - last;
    std::cout << "process " << world.rank() << " after " << waited.count() << " s: " << problem.what() << std::endl;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for the others to tell it too
    world.end_everywhere(3);
  }
  if (world.rank() == 0) std::cout << "all is well" << std::endl;
}
