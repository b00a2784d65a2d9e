// SPDX-License-Identifier: Apache-2.0
// The protocol that production runs.
#include "core/agreement_protocol.h"

#define TUGLINE_PROTOCOL tugline::core::agreement
#define TUGLINE_ADAPTER TrueProtocol
#include "agreement_model/adapter.inc"

namespace tugline::core::model {

const Protocol& true_protocol() {
  static const TrueProtocol protocol;
  return protocol;
}

std::vector<NamedProtocol>& mutants() {
  static std::vector<NamedProtocol> list;
  return list;
}

}  // namespace tugline::core::model
