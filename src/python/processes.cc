#include "python/processes.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "comm/processes/process_world.h"
#include "comm/tcp/tcp_transport.h"
#include "python/bind.h"
#include "python/errors.h"
#include "train/devices/join_mpi.h"

namespace piper::python {
namespace {

namespace py = pybind11;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
}

std::shared_ptr<World>& joined() {
  static std::shared_ptr<World> world;
  return world;
}

}  // namespace

std::shared_ptr<World> processes() {
  return joined();
}

void bind_processes(py::module_& module) {
  py::class_<TcpDoor>(module, "Door").def(py::init<std::string>()).def_property_readonly("address", &TcpDoor::address);
  module.def(
      "join_tcp",
      [](int rank, const TcpDoor& door, const std::vector<std::string>& doors, double timeout) {
        joined() = std::make_shared<ProcessWorld>(
            [&] { return make_tcp_transport(rank, door, doors, milliseconds(timeout)); });
      },
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "join_mpi", [](double timeout) { joined() = unwrap(join_mpi(milliseconds(timeout))); },
      py::call_guard<py::gil_scoped_release>());
  module.def("joined", [] { return processes() != nullptr; });
  module.def("rank", [] { return processes() ? processes()->rank() : 0; });
  module.def("processes", [] { return processes() ? processes()->ranks() : 1; });
  module.def(
      "leave_processes", [] { joined().reset(); }, py::call_guard<py::gil_scoped_release>());
}

}  // namespace piper::python
