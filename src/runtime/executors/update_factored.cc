// Adafactor on this device's range of a bucket: scaled gradients are seen whole, squares are summed by rows and
// columns, and every parameter that the range has elements of takes its step. All devices that have the bucket keep the
// same squares, of all of its parameters.
#include "runtime/update_factored.h"

#include <algorithm>

#include "base/invariant.h"
#include "runtime/executors/whole_parameters.h"

namespace piper {
namespace {

class UpdateFactored : public Executor {
 public:
  UpdateFactored(const Preparation& prepare, OpId index) : scale_(prepare, index), parameters_(prepare, index) {
    const std::vector<NameId> sized = sized_parameters(prepare.plan, prepare.step);
    const NameId first = prepare.bucket(prepare.op(index).label)->parameters[0].name;
    first_ = static_cast<size_t>(std::ranges::find(sized, first) - sized.begin());
    begin_ = whole_state_begin(parameters_.types(), Optimizer::Adafactor, parameters_.count());
    int64_t numbers = 0;
    for (const WholeParameters::Parameter& parameter : parameters_.all())
      numbers += whole_state_count(Optimizer::Adafactor, parameter.form.sizes);
    invariant(
        prepare.buffer(parameters_.state()).bytes == begin_ + numbers * piper::bytes_of(parameters_.types().moments),
        "plan and run agree on what is kept of whole parameters");
  }

  void run(Frame& frame) override {
    const std::optional<GradientScale> scale = scale_.of(frame);
    if (!scale) return;
    if (parameters_.gradients())
      for (const WholeParameters::Parameter& parameter : parameters_.all())
        if (parameter.here.count > 0)
          parameters_.here(frame[*parameters_.gradients()], parameter)
              .copy_(parameters_.gradient(frame, *scale, parameter));
    if (parameters_.weights()) update(frame);
  }

 private:
  void update(Frame& frame) const {
    const ElementTypes& types = parameters_.types();
    const at::Tensor& state = frame[parameters_.state()];
    const at::Tensor all = state.narrow(0, begin_, state.numel() - begin_).view(scalar_type(types.moments));
    const int64_t step = frame.settings().updates + 1;
    int64_t offset = 0;
    for (size_t p = 0; p < parameters_.all().size(); ++p) {
      const WholeParameters::Parameter& parameter = parameters_.all()[p];
      const OptimizerSettings settings = parameters_.settings_of(frame.settings(), parameter);
      const int64_t count = whole_state_count(Optimizer::Adafactor, parameter.form.sizes);
      const FactoredSquares squares = factored_squares(all.narrow(0, offset, count), parameter.form.sizes);
      offset += count;
      at::Tensor g =
          parameters_.direction(frame, parameter).to(parameters_.computes_in(), /*non_blocking=*/false, /*copy=*/true);
      if (settings.sign_rate) {
        if (parameter.here.count > 0)
          parameters_.take_step(frame, parameter, g.sign_(), 1, -*settings.sign_rate, settings.ema_decay);
        continue;
      }
      add_squares(settings.adafactor, step, g, squares);
      if (parameter.here.count == 0) continue;
      divide_by_roots(settings.adafactor, types.master.value_or(types.weights), squares, g);
      const double rate = factored_rate(settings, step, g.numel(), frame.scalars.parameter_squares[first_ + p]);
      parameters_.take_step(frame, parameter, g, 1 - settings.learning_rate * settings.weight_decay, rate,
                            settings.ema_decay);
    }
  }

  const UpdateScale scale_;
  const WholeParameters parameters_;
  size_t first_ = 0;   // of the parameters whose sizes are known
  int64_t begin_ = 0;  // of what is kept of whole parameters, in bytes of the state
};

}  // namespace

std::unique_ptr<Executor> make_update_factored(const Preparation& prepare, OpId op) {
  return std::make_unique<UpdateFactored>(prepare, op);
}

}  // namespace piper
