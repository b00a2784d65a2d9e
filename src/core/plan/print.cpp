// SPDX-License-Identifier: Apache-2.0
#include "core/plan/print.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/count.h"
#include "core/plan/groups.h"

namespace tugline::core {

namespace {

std::string range(const Place& place, std::uint64_t bytes, std::int32_t self) {
  return fmt::format("{}[{}, {})", print(place, self), place.offset, place.offset + bytes);
}

}  // namespace

std::string print(const Place& place, std::int32_t self) {
  if (place.rank == self) return std::string(name_of(place.space));
  return fmt::format("{}@{}", name_of(place.space), place.rank);
}

std::string print(const Step& step, std::int32_t self) {
  const std::string_view kind = name_of(step.kind);
  const auto destination = [&] { return range(step.destination, step.bytes, self); };
  const auto source = [&] { return range(step.source, step.bytes, self); };
  switch (step.kind) {
    case StepKind::copy:
    case StepKind::put:
      return fmt::format("{} {} <- {}", kind, destination(), source());
    case StepKind::reduce: {
      std::string text = fmt::format("{} {} <- {} op {}", kind, destination(), source(),
                                     range(step.second, step.bytes, self));
      for (const Place& operand : step.more) text += " op " + range(operand, step.bytes, self);
      return text;
    }
    case StepKind::scale:
      return fmt::format("{} {}", kind, destination());
    case StepKind::put_packet:
      return fmt::format("{} {}", kind, source());
    case StepKind::copy_packet:
      return fmt::format("{} {} <- packet@{}[{}, {})", kind, destination(), step.peer, step.source.offset,
                         step.source.offset + step.bytes);
    case StepKind::reduce_packet:
      if (step.peer == kEveryone)
        return fmt::format("{} {} <- all packets[{}, {})", kind, destination(), step.source.offset,
                           step.source.offset + step.bytes);
      return fmt::format("{} {} <- {} op packet@{}[{}, {})", kind, destination(), destination(), step.peer,
                         step.source.offset, step.source.offset + step.bytes);
    case StepKind::signal:
      if (step.peer == kEveryone)
        return fmt::format("{} flag {} at everyone to {}", kind, step.flag, step.value);
      return fmt::format("{} flag {} at rank {} to {}", kind, step.flag, step.peer, step.value);
    case StepKind::wait:
      return fmt::format("{} flag {} of rank {} for {}", kind, step.flag, step.peer, step.value);
  }
  return fmt::format("step of unknown kind {}", static_cast<int>(step.kind));
}

std::string print_header(const Plan& plan) {
  std::string text = fmt::format("{} {}: {}, {}, elements of {}", plan.name, name_of(plan.collective),
                                 base::counted(plan.ranks, "rank"), base::counted(plan.bytes, "byte"),
                                 base::counted(plan.element_bytes, "byte"));
  if (has_blocks(plan.collective) && !plan.blocks.empty()) {
    const auto [least, most] = std::minmax_element(plan.blocks.begin(), plan.blocks.end());
    text += fmt::format(" in blocks of {} to {}", *least, *most);
  }
  if (has_root(plan.collective)) text += fmt::format(", root {}", plan.root);
  if (!plan.groups.empty()) text += fmt::format(", {}", base::counted(Groups(plan.groups).count(), "group"));
  if (plan.in_place) text += ", in place";
  if (plan.direct) text += ", direct";
  if (plan.average) text += ", average";
  if (plan.order != ReductionOrder::none) text += fmt::format(", {}", name_of(plan.order));
  return text + fmt::format(", {} of scratch a rank", base::counted(plan.scratch_bytes, "byte"));
}

std::string print(const Plan& plan) {
  std::size_t steps = 0;
  for (const auto& channels : plan.programs) {
    for (const Program& program : channels) steps += program.size();
  }
  std::string text = fmt::format("{}, {}\n", print_header(plan), base::counted(steps, "step"));
  for (std::size_t rank = 0; rank < plan.programs.size(); ++rank) {
    const auto& channels = plan.programs[rank];
    for (std::size_t channel = 0; channel < channels.size(); ++channel) {
      text += fmt::format("rank {}", rank);
      if (channels.size() > 1) text += fmt::format(" channel {}", channel);
      text += fmt::format(": {} steps\n", channels[channel].size());
      for (std::size_t index = 0; index < channels[channel].size(); ++index) {
        text += fmt::format("  {:>4} {}\n", index,
                            print(channels[channel][index], static_cast<std::int32_t>(rank)));
      }
    }
  }
  return text;
}

}  // namespace tugline::core
