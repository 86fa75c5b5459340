#include "train_loop/trained.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "base/hash.h"
#include "models/reference_tokens.h"
#include "must.h"
#include "plan/issue_order_memory.h"
#include "plan/memory_report.h"
#include "schedule/schedule_text.h"
#include "train_loop/apparatus.h"

namespace piper {
namespace {

bool copies_equal(Job& job) {
  std::map<std::string, at::Tensor> first;
  for (DeviceRun* device : job.devices())
    for (const auto& [name, weights] : weights_of(job.plan(), *device))
      if (const auto [found, fresh] = first.try_emplace(name, weights); !fresh && !at::equal(found->second, weights))
        return false;
  return true;
}

/// After those before it.
uint64_t bits_of(DeviceRun& device, uint64_t before) {
  StableHash hash;
  hash.add(before);
  const auto& buffers = device.program().buffers;
  for (const BufferId b : buffers.ids()) {
    if (!buffers[b].persistent) continue;
    const at::Tensor flat = device.frame()[b].cpu();
    hash.add(std::string_view(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()));
  }
  return hash.value();
}

Processor& processor_of(const TrainSettings& settings) {
  return settings.job.run.processor ? *settings.job.run.processor : host_processor();
}

/// What lives only inside an operation is gone when the operation ends; streams side by side hold it for longer.
int64_t serial_peak(const PlanTemplate& of) {
  const FirstTouches touches(of);
  int64_t now = 0, peak = 0;
  for (const PlanBuffer& buffer : of.buffers) now += buffer.persistent ? buffer.bytes : 0;
  for (const OpId i : of.ops.ids()) {
    int64_t inside = 0;
    for (const BufferId b : touches.of(i)) {
      const PlanBuffer& buffer = of.buffers[b];
      (buffer.category == Category::Temporaries ? inside : now) += buffer.bytes;
    }
    peak = std::max(peak, now + inside);
    for (const BufferId b : of.ops[i].frees)
      if (const PlanBuffer& buffer = of.buffers[b]; buffer.category != Category::Temporaries) now -= buffer.bytes;
  }
  return peak;
}

}  // namespace

Apparatus::Apparatus(const TrainableModel& model, const CapturedModel& captured, std::shared_ptr<const Plan> of,
                     const TrainSettings& settings)
    : plan(std::move(of)), real(captured, model.initialize, processor_of(settings).device()) {
  if (settings.plant) {
    Plan changed = *plan;
    settings.plant(changed);
    plan = std::make_shared<const Plan>(std::move(changed));
  }
  if (settings.computations) wrapped = settings.computations(real);
  const auto devices = static_cast<int>(template_of_device(*plan).size());
  std::vector<std::unique_ptr<Communicator>> world = settings.world
                                                         ? settings.world->make(devices, std::chrono::minutes(20))
                                                         : processor_of(settings).make_world(devices, {});
  if (settings.communicator)
    for (auto& communicator : world) communicator = settings.communicator(std::move(communicator));
  job = std::make_unique<Job>(plan, model.step, wrapped ? *wrapped : real, std::move(world), settings.job);
  job->set_parameters(model.initialize);
}

StepSettings step_settings(const TrainableModel& model, const TrainSettings& settings, int64_t step) {
  StepSettings at;
  at.step = step;
  at.updates = step;
  at.seed = seed_of_step(step);
  at.optimizer = settings.optimizer;
  at.groups = model.groups;
  at.clip = settings.clip;
  at.not_finite = settings.not_finite;
  at.fill = [&model, step](std::string_view input, int64_t first_sample, at::Tensor& into) {
    fill_input(model.step, step, input, first_sample, into);
  };
  return at;
}

void fill_input(const StepConfig& config, int64_t step, std::string_view input, int64_t first_sample,
                at::Tensor& into) {
  constexpr int64_t vocabulary = 31;  // of the smallest model
  const int64_t length = into.size(1), ahead = input == "targets" ? 1 : 0;
  const int64_t stream = input == "left" ? 1000 : input == "right" ? 2000 : 0;  // others are predicted from themselves
  std::vector<int64_t> row(static_cast<size_t>(length + 1));
  for (int64_t s = 0; s < into.size(0); ++s) {
    reference_tokens(stream + step, config.batch, first_sample + s, vocabulary, row);
    std::copy_n(row.data() + ahead, length, into.mutable_data_ptr<int64_t>() + s * length);
  }
}

uint64_t seed_of_step(int64_t step) {
  return 1000 + static_cast<uint64_t>(step);
}

std::string in_turn(int64_t slices) {
  return fmt::format("devices(1)\nsplit(batch, parts={}, as=mb)\nplace({{}}, devices=[0])\n", slices);
}

Trained train(const TrainableModel& model, const std::string& schedule, const TrainSettings& settings) {
  const Schedule parsed = must(parse_schedule(make_source("schedule.piper", schedule)));
  const PreparedTraining prepared = must(prepare_training(model, parsed));
  return train(model, *prepared.captured, prepared.plan, settings);
}

Trained train(const TrainableModel& model, const CapturedModel& captured, std::shared_ptr<const Plan> shared,
              const TrainSettings& settings) {
  const Apparatus apparatus(model, captured, std::move(shared), settings);
  const Plan& plan = *apparatus.plan;
  Job& job = *apparatus.job;
  Trained out;
  for (const TemplateId t : template_of_device(plan)) out.devices += t.valid();
  out.copies_equal = copies_equal(job);
  for (int64_t step = 0; step < settings.steps; ++step) {
    const StepOutcome outcome = job.step(step_settings(model, settings, step));
    out.losses.push_back(outcome.loss);
    out.norms.push_back(outcome.gradient_norm);
    for (DeviceRun* device : job.devices()) {
      uint64_t& bits = out.bits[device->device()];
      bits = bits_of(*device, bits);
    }
    if (settings.world) continue;
    Tensors& gradients = out.gradients.emplace_back();
    for (const PlanBucket& bucket : plan.buckets)
      for (const PlanParameter& parameter : bucket.parameters) {
        const std::string& name = plan.names[parameter.name];
        out.weights.try_emplace(name);
        const at::Tensor gradient = job.parameter(name, Kept::Gradient);
        if (!gradient.defined()) continue;  // frozen
        out.ordered[name] = parameter.ordered;
        gradients[name] = gradient / static_cast<double>(plan.losses);
      }
  }
  for (auto& [name, weight] : out.weights) {
    weight = job.parameter(name, Kept::Weight).clone();
    for (const auto& [kept, into] : {std::pair{Kept::Moment1, &out.moment1}, std::pair{Kept::Moment2, &out.moment2},
                                     std::pair{Kept::Master, &out.masters}})
      if (const at::Tensor moment = job.parameter(name, kept); moment.defined()) (*into)[name] = moment.clone();
  }
  out.copies_equal &= copies_equal(job);
  for (DeviceRun* device : job.devices()) out.peak_bytes.push_back(device->memory().peak());
  for (const TemplateId t : template_of_device(plan)) {
    if (!t.valid()) continue;  // a lost device
    const PlanTemplate& program = plan.templates[t];
    out.planned_bytes.push_back(memory_peak(plan, program).total);
    out.serial_bytes.push_back(serial_peak(program));
  }
  return out;
}

Trained without_key_bias(Trained of) {
  const auto is_bias = [](const auto& item) { return item.first.ends_with(".k.bias"); };
  for (Tensors* tensors : {&of.weights, &of.moment1, &of.moment2}) std::erase_if(*tensors, is_bias);
  for (Tensors& gradients : of.gradients) std::erase_if(gradients, is_bias);
  std::erase_if(of.ordered, is_bias);
  return of;
}

Difference compare(const Trained& run, const Trained& reference) {
  Difference worst;
  const auto note = [&](double error, const std::string& where) {
    if (!(error <= worst.error)) worst = {error, where};  // NaN too
  };
  const auto compare_all = [&](const Tensors& a, const Tensors& b, const std::string& what) {
    if (a.size() != b.size()) note(INFINITY, fmt::format("{}: {} tensors, not {}", what, a.size(), b.size()));
    for (const auto& [name, expected] : b) {
      const auto found = a.find(name);
      if (found == a.end()) {
        note(INFINITY, what + " " + name + " is missing");
        continue;
      }
      const at::Tensor wide = expected.to(at::kDouble);
      const double scale = wide.abs().max().item<double>();
      const double error = (found->second.to(at::kDouble) - wide).abs().max().item<double>();
      note(scale > 0 ? error / scale : error, what + " " + name);
    }
  };
  if (run.losses.size() != reference.losses.size()) note(INFINITY, "steps");
  for (size_t s = 0; s < reference.losses.size() && s < run.losses.size(); ++s) {
    note(std::abs(run.losses[s] - reference.losses[s]) / std::abs(reference.losses[s]), fmt::format("loss {}", s));
    note(std::abs(run.norms[s] - reference.norms[s]) / reference.norms[s], fmt::format("norm {}", s));
    compare_all(run.gradients[s], reference.gradients[s], fmt::format("gradient in step {}:", s));
  }
  compare_all(run.weights, reference.weights, "weight");
  compare_all(run.masters, reference.masters, "master copy of");
  compare_all(run.moment1, reference.moment1, "first moment");
  compare_all(run.moment2, reference.moment2, "second moment");
  return worst;
}

std::vector<std::string> wrongly_ordered(const Trained& run, const Trained& reference) {
  // after the first update all weights depend on all gradients, whatever their order
  const bool all = std::all_of(run.ordered.begin(), run.ordered.end(), [](const auto& item) { return item.second; });
  std::vector<std::string> out;
  const auto check = [&](const Tensors& ours, const Tensors& theirs, const std::string& what) {
    for (const auto& [name, tensor] : ours)
      if (run.ordered.contains(name) && run.ordered.at(name) && !at::equal(tensor, theirs.at(name)))
        out.push_back(what + " " + name);
  };
  for (size_t s = 0; s < (all ? run.gradients.size() : 1); ++s)
    check(run.gradients[s], reference.gradients[s], fmt::format("gradient in step {}:", s));
  if (!all) return out;
  check(run.weights, reference.weights, "weight");
  check(run.masters, reference.masters, "master copy of");
  check(run.moment1, reference.moment1, "first moment");
  check(run.moment2, reference.moment2, "second moment");
  return out;
}

std::vector<std::string> complaints(const Trained& run, const Trained& reference, double tolerance) {
  std::vector<std::string> out;
  if (const Difference worst = compare(run, reference); !(worst.error <= tolerance))
    out.push_back(fmt::format("{}: {:.3g}", worst.where, worst.error));
  for (const std::string& name : wrongly_ordered(run, reference)) out.push_back("not in order: " + name);
  if (!run.copies_equal) out.push_back("copies differ");
  return out;
}

}  // namespace piper
