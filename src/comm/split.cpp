// SPDX-License-Identifier: Apache-2.0
// split(): all ranks exchange (color, key); the groups follow from that alone, so nobody has to be asked.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/state.h"

namespace tugline::comm {

std::shared_ptr<CommunicatorState> CommunicatorState::split(int color, int key) {
  client_->require_member("split()");
  const auto epoch = current();
  const std::uint64_t number = ++splits_;  // equal on all ranks: split is collective
  using Entry = std::array<std::int32_t, 2>;
  std::vector<Entry> entries(epoch->size);
  const Entry mine{color, key};
  Call call;
  call.collective = core::Collective::all_gather;
  call.send = mine.data();
  call.recv = entries.data();
  call.count = mine.size();
  call.type = DataType::i32;
  call.of_split = true;
  submit(call, Target());
  if (color < 0) return nullptr;

  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < epoch->size; ++rank)
    if (entries[rank][0] == color) ranks.push_back(rank);
  std::stable_sort(ranks.begin(), ranks.end(), [&](auto a, auto b) { return entries[a][1] < entries[b][1]; });

  Identity identity;
  // Counted anew in each epoch: a split that failed counted on some ranks only.
  const std::string in_epoch = epoch->generation == 0 ? "" : "@" + epoch->path;
  identity.name = fmt::format("{}.{}{}.{}", identity_.name, number, in_epoch, color);
  identity.size = static_cast<std::uint32_t>(ranks.size());
  identity.own_core = place_.own_core;
  identity.locality = identity_.locality;
  identity.process = identity_.process;
  identity.parent = shared_from_this();
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == epoch->rank) identity.rank = i;
    identity.parent_originals.push_back(epoch->originals[ranks[i]]);
    // All of them have taken part in the exchange, so all are on the board.
    identity.members.push_back(static_cast<broker::MemberId>(member_of(epoch->originals[ranks[i]])));
  }
  auto child = create(client_, device_, std::move(identity));
  // Each keeps the memory of a communicator that was dropped.
  std::erase_if(children_, [](const auto& dropped) { return dropped.expired(); });
  children_.push_back(child);
  return child;
}

}  // namespace tugline::comm
