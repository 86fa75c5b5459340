// Whole parameters, in and out of the flat buffers that devices hold.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "runtime/device_run.h"

namespace piper {

/// The shard of a whole parameter: a view, or a copy if it consists of parts of several blocks.
at::Tensor shard_of(const at::Tensor& whole, const ParameterForm& form, const LocalShards& shards);
/// Copies it back into the whole.
void put_shard(const at::Tensor& whole, const ParameterForm& form, const LocalShards& shards, const at::Tensor& shard);

/// What is kept for every element of a parameter; `Whole`: for the parameter as a whole (model/whole_state.h), one
/// state after another.
enum class Kept { Weight, Gradient, Moment1, Moment2, Master, Ema, Whole };

/// Its dtype; nothing if it is not kept.
std::optional<DType> kept_dtype(const PlanBucket& bucket, const StepConfig& step, Kept kept);

/// What a device keeps for its part of a bucket, as a flat tensor, and which elements of the part these are. State of
/// whole parameters: all of it, whatever the part.
struct KeptElements {
  at::Tensor flat;  // undefined: nothing is kept
  ElementRange range;
};
KeptElements kept_elements(DeviceRun& device, const PlanBucket& bucket, const BucketPart& part, const StepConfig& step,
                           Kept kept);

/// What is kept for a parameter as a whole, among that of its bucket.
ElementRange whole_state_of(const Plan& plan, const PlanBucket& bucket, const StepConfig& step,
                            const Computations& computations, const std::string& name);

/// The weights of a bucket, as the device keeps them from step to step; undefined: it does not hold the bucket.
at::Tensor lasting_weights(DeviceRun& device, const PlanBucket& bucket);

/// Where a parameter lies.
struct ParameterPlace {
  BucketId bucket;
  ElementRange range;  // of the part that a device has of the bucket
};
/// None: the plan does not have it.
std::optional<ParameterPlace> place_of(const Plan& plan, const std::string& name);
/// Of all parameters of the plan, by name.
std::map<std::string, ParameterPlace> places_of(const Plan& plan);

ElementRange common(ElementRange a, ElementRange b);

/// Gives every device its part of a bucket's weights. `fill` is called with an empty tensor of each whole parameter, if
/// one of the devices holds the bucket.
void set_weights(const Plan& plan, const PlanBucket& bucket, Computations& computations,
                 const std::vector<DeviceRun*>& devices,
                 const std::function<void(const std::string& name, at::Tensor& whole)>& fill);

/// Gives every device its part, and lets the optimizer start anew. `fill` is called once for every parameter that one
/// of them holds, with an empty tensor of the whole.
void set_parameters(const Plan& plan, const StepConfig& step, Computations& computations,
                    const std::vector<DeviceRun*>& devices,
                    const std::function<void(const std::string& name, at::Tensor& whole)>& fill);

/// The whole of what is kept for a parameter, from its first holder; zeros where that one's devices are not given.
/// Undefined where nothing is kept. What is kept for the whole parameter is flat.
at::Tensor get_parameter(const Plan& plan, const StepConfig& step, Computations& computations,
                         const std::vector<DeviceRun*>& devices, const std::string& name, Kept kept);

/// Gives every device its part of what is kept for a parameter, after `set_parameters`. Nothing happens where nothing
/// is kept.
void set_parameter(const Plan& plan, const StepConfig& step, Computations& computations,
                   const std::vector<DeviceRun*>& devices, const std::string& name, Kept kept, const at::Tensor& whole);

/// The weights of all parameters that a device has whole, by name: equal on all devices that hold them.
std::vector<std::pair<std::string, at::Tensor>> weights_of(const Plan& plan, DeviceRun& device);

}  // namespace piper
