// SPDX-License-Identifier: Apache-2.0
// From plan rank 0 to plan rank 1, chunk by chunk through the sender's scratch. The sender ends when its last
// chunk is published, not when it is read.
#include "core/plan/builder_parts.h"

namespace tugline::core {

Plan build_point_to_point(const PlanRequest& request) {
  constexpr std::int32_t kSender = 0;
  constexpr std::int32_t kReceiver = 1;
  constexpr std::uint8_t kPublished = 0;
  constexpr std::uint8_t kCredit = 1;

  validate(request);
  if (!can_build("point_to_point", request)) throw_cannot_build("point_to_point", request);
  PlanRequest cut = request;
  if (cut.chunk_bytes == 0) cut.chunk_bytes = message_chunk(request.bytes, kLongTradedChunkBytes);
  const Pipeline pipeline = *one_way_pipeline(cut, request.bytes);
  const CreditRule credits{pipeline.slots, pipeline.chunks()};

  Plan plan = empty_plan("point_to_point", request);
  plan.scratch_bytes = pipeline.scratch_bytes();
  write_programs(plan, request, [&](ProgramWriter& program) {
    for (std::uint64_t k = 0; k < pipeline.chunks(); ++k) {
      if (program.rank() == kSender) {
        if (auto credit = credits.needed(k)) program.wait(kReceiver, kCredit, credit);
        program.copy(program.scratch(pipeline.slot(k)), program.input(pipeline.offset(k)), pipeline.bytes(k));
        program.signal(kReceiver, kPublished, k + 1);
      } else {
        program.wait(kSender, kPublished, k + 1);
        program.copy(program.output(pipeline.offset(k)), ProgramWriter::scratch_of(kSender, pipeline.slot(k)),
                     pipeline.bytes(k));
        if (auto credit = credits.given(k)) program.signal(kSender, kCredit, credit);
      }
    }
  });
  return plan;
}

}  // namespace tugline::core
