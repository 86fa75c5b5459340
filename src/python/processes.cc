#include "python/processes.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "comm/processes/process_world.h"
#include "comm/tcp/tcp_wire.h"
#include "python/bind.h"
#include "python/errors.h"
#include "train/devices/join_mpi.h"

namespace piper::python {
namespace {

namespace py = pybind11;

constexpr auto patience_to_connect = std::chrono::minutes(1);  // everybody's door is open by then

std::unique_ptr<World>& joined() {
  static std::unique_ptr<World> world;
  return world;
}

}  // namespace

World* processes() {
  return joined().get();
}

void bind_processes(py::module_& module) {
  py::class_<TcpDoor>(module, "Door").def(py::init<std::string>()).def_property_readonly("address", &TcpDoor::address);
  module.def(
      "join_tcp",
      [](int rank, const TcpDoor& door, const std::vector<std::string>& doors) {
        joined() =
            std::make_unique<ProcessWorld>([&] { return make_tcp_wire(rank, door, doors, patience_to_connect); });
      },
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "join_mpi", [] { joined() = unwrap(join_mpi()); }, py::call_guard<py::gil_scoped_release>());
  module.def("joined", [] { return processes() != nullptr; });
  module.def("rank", [] { return processes() ? processes()->rank() : 0; });
  module.def("processes", [] { return processes() ? processes()->ranks() : 1; });
  module.def(
      "leave_processes", [] { joined().reset(); }, py::call_guard<py::gil_scoped_release>());
}

}  // namespace piper::python
