// What a model was captured for. Plans repeat it, so that a run captures the same model.
#pragma once

#include <string>

#include "model/model_graph.h"

namespace piper {

class Scanner;
class StableHash;

struct CaptureForm {
  bool ring = false;                            // attention is the steps of a ring along cp
  TokenOrder token_order = TokenOrder::Zigzag;  // along cp
  ByShardKind<bool> labelled = {};              // for which kinds its dimensions are, besides experts and parameters
  friend bool operator==(const CaptureForm&, const CaptureForm&) = default;
};

CaptureForm capture_form(const ModelGraph& model, TokenOrder order);

/// `ring contiguous sequence context`: a word for each.
std::string print(const CaptureForm& form);
CaptureForm parse_capture_form(Scanner& in);
void add(StableHash& hash, const CaptureForm& form);

}  // namespace piper
