// Muon on this device's range of a bucket of matrices: momentum takes the place of gradients; then every matrix that
// the range has elements of is made orthogonal, as a whole.
#include "base/invariant.h"
#include "runtime/executors/whole_parameters.h"
#include "runtime/update_matrix.h"

namespace piper {
namespace {

class UpdateMatrices : public Executor {
 public:
  UpdateMatrices(const Preparation& prepare, OpId index) : scale_(prepare, index), matrices_(prepare, index) {
    for (const WholeParameters::Parameter& matrix : matrices_.all())
      invariant(matrix.form.sizes.size() == 2, "a matrix has two dimensions");
  }

  void run(Frame& frame) override {
    const std::optional<GradientScale> scale = scale_.of(frame);
    if (!scale) return;
    for (const WholeParameters::Parameter& matrix : matrices_.all()) {
      if (matrix.here.count == 0) continue;
      const OptimizerSettings settings = matrices_.settings_of(frame.settings(), matrix);
      if (matrices_.gradients()) find_direction(frame, settings, *scale, matrix);
      if (matrices_.weights()) update(frame, settings, matrix);
    }
  }

 private:
  void find_direction(Frame& frame, const OptimizerSettings& settings, const GradientScale& scale,
                      const WholeParameters::Parameter& matrix) const {
    const at::Tensor g = matrices_.gradient(frame, scale, matrix);
    const at::Tensor stored = matrices_.kept(frame, 0, matrices_.types().moments, matrix);
    const at::Tensor momentum = stored.to(matrices_.computes_in()).lerp_(g, 1 - settings.momentum);
    stored.copy_(momentum);
    matrices_.here(frame[*matrices_.gradients()], matrix)
        .copy_(settings.nesterov ? g.lerp_(momentum, settings.momentum) : momentum);
  }

  void update(Frame& frame, const OptimizerSettings& settings, const WholeParameters::Parameter& matrix) const {
    const std::vector<int64_t>& sizes = matrix.form.sizes;
    const at::Tensor step =
        orthogonal(matrices_.direction(frame, matrix), settings.newton_schulz_steps, matrices_.types().arithmetic())
            .contiguous();
    matrices_.take_step(frame, matrix, step, 1 - settings.learning_rate * settings.weight_decay,
                        -muon_rate(settings, sizes[0], sizes[1]), settings.ema_decay);
  }

  const UpdateScale scale_;
  const WholeParameters matrices_;
};

}  // namespace

std::unique_ptr<Executor> make_update_matrices(const Preparation& prepare, OpId op) {
  return std::make_unique<UpdateMatrices>(prepare, op);
}

}  // namespace piper
