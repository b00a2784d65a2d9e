// SPDX-License-Identifier: Apache-2.0
// The JSON form of plans: docs/plans.md describes it.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "core/plan/print.h"
#include "tugline/error.h"

namespace tugline::core {

namespace {

using base::Json;
using base::JsonMember;

constexpr std::string_view kEveryoneName = "everyone";

/// Which fields a kind of step has; all of them are required but `flag` and `payload_offset`.
struct StepFields {
  bool destination = false;
  bool source = false;
  bool second = false;  ///< and, where there are more operands, `more`
  bool peer = false;
  bool flag_and_value = false;
  bool bytes = false;
  bool payload_offset = false;
};
constexpr StepFields fields_of(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::copy:
    case StepKind::put:
      return {.destination = true, .source = true, .bytes = true};
    case StepKind::reduce:
      return {.destination = true, .source = true, .second = true, .bytes = true};
    case StepKind::scale:
      return {.destination = true, .bytes = true};
    case StepKind::put_packet:
      return {.source = true, .bytes = true};
    case StepKind::copy_packet:
    case StepKind::reduce_packet:
      return {.destination = true, .peer = true, .bytes = true, .payload_offset = true};
    case StepKind::signal:
    case StepKind::wait:
      return {.peer = true, .flag_and_value = true};
  }
  return {};
}

[[noreturn]] void refuse(const std::string& where, const std::string& problem, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, fmt::format("plan: {} {}", where, problem), remedy);
}

std::string shown(const Json& value) {
  constexpr std::size_t kShownLength = 80;
  std::string text = value.dump();
  if (text.size() > kShownLength) text = text.substr(0, kShownLength) + "...";
  return text;
}

/// Reads the members of one object; names them by their path in every error.
class Reader {
 public:
  Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object())
      refuse(path_.empty() ? "the document" : path_, fmt::format("= {} is not an object", shown(object)),
             "write {...}");
  }

  std::string where(std::string_view field) const {
    return path_.empty() ? std::string(field) : fmt::format("{}.{}", path_, field);
  }
  bool has(std::string_view field) const { return object_.find(field) != nullptr; }
  const Json& required(std::string_view field) const {
    const Json* value = object_.find(field);
    if (value == nullptr) refuse(where(field), "is missing", "add it");
    return *value;
  }

  template <class Integer>
  Integer integer(std::string_view field) const {
    const Json& value = required(field);
    const auto most = std::min<std::uint64_t>(std::numeric_limits<Integer>::max(),
                                              std::numeric_limits<std::int64_t>::max());
    if (!value.is_int() || value.as_int() < 0 || static_cast<std::uint64_t>(value.as_int()) > most) {
      refuse(where(field), fmt::format("= {} is not an integer from 0 to {}", shown(value), most),
             "write a whole number in that range");
    }
    return static_cast<Integer>(value.as_int());
  }
  template <class Integer>
  Integer integer_or(std::string_view field, Integer otherwise) const {
    return has(field) ? integer<Integer>(field) : otherwise;
  }
  template <class Integer = std::uint64_t>
  std::vector<Integer> integers(std::string_view field) const {
    const Json& value = required(field);
    if (!value.is_array())
      refuse(where(field), fmt::format("= {} is not a list", shown(value)), "write [...]");
    std::vector<Integer> numbers;
    for (const Json& item : value.items()) {
      if (!item.is_int() || item.as_int() < 0 || !std::in_range<Integer>(item.as_int()))
        refuse(fmt::format("{}[{}]", where(field), numbers.size()),
               fmt::format("= {} is not a whole number from 0 on", shown(item)), "write one");
      numbers.push_back(static_cast<Integer>(item.as_int()));
    }
    return numbers;
  }
  bool boolean_or(std::string_view field, bool otherwise) const {
    if (!has(field)) return otherwise;
    const Json& value = required(field);
    if (!value.is_bool())
      refuse(where(field), fmt::format("= {} is not a bool", shown(value)), "write true or false");
    return value.as_bool();
  }
  const std::string& string(std::string_view field) const {
    const Json& value = required(field);
    if (!value.is_string())
      refuse(where(field), fmt::format("= {} is not a string", shown(value)), "quote it");
    return value.as_string();
  }
  /// A value of an enumeration with `count` values, by its name.
  template <class Enum>
  Enum named(std::string_view field, int count) const {
    const std::string& name = string(field);
    std::string names;
    for (int i = 0; i < count; ++i) {
      const std::string_view candidate = name_of(static_cast<Enum>(i));
      if (candidate == name) return static_cast<Enum>(i);
      names += (names.empty() ? "" : ", ") + std::string(candidate);
    }
    refuse(where(field), fmt::format("= \"{}\" does not exist", name), fmt::format("use one of: {}", names));
  }
  std::int32_t peer(std::string_view field) const {
    const Json& value = required(field);
    if (value.is_string() && value.as_string() == kEveryoneName) return kEveryone;
    return integer<std::int32_t>(field);
  }
  /// SPACE[@RANK][+OFFSET]
  Place place(std::string_view field, std::int32_t self) const {
    return place_from(string(field), field, self);
  }
  std::vector<Place> places_or_none(std::string_view field, std::int32_t self) const {
    std::vector<Place> places;
    if (!has(field)) return places;
    const Json& items = required(field);
    if (!items.is_array())
      refuse(where(field), fmt::format("= {} is not a list", shown(items)), "write [...]");
    for (const Json& item : items.items()) {
      if (!item.is_string()) refuse(where(field), fmt::format("has {}, no string", shown(item)), "quote it");
      places.push_back(place_from(item.as_string(), field, self));
    }
    return places;
  }

  void allow_only(std::initializer_list<std::string_view> fields) const {
    for (const JsonMember& member : object_.members()) {
      if (std::find(fields.begin(), fields.end(), member.key) != fields.end()) continue;
      refuse(where(member.key), fmt::format("= {} is not a field here", shown(member.value)), "remove it");
    }
  }
  void forbid(std::string_view field, StepKind kind) const {
    if (!has(field)) return;
    refuse(where(field), fmt::format("= {} is no field of {}", shown(required(field)), name_of(kind)),
           "remove it");
  }

 private:
  Place place_from(const std::string& text, std::string_view field, std::int32_t self) const;

  const Json& object_;
  std::string path_;
};

Place Reader::place_from(const std::string& text, std::string_view field, std::int32_t self) const {
  const auto malformed = [&](std::string_view part) {
    refuse(
        where(field), fmt::format("= \"{}\" has no valid {}", text, part),
        "write SPACE, SPACE+OFFSET or SPACE@RANK+OFFSET, as in \"scratch@1+512\"; SPACE is input, output or "
        "scratch");
  };
  const auto number = [&](std::string_view digits, std::string_view part, auto& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()) malformed(part);
  };
  std::string_view rest = text;
  Place place{Space::input, self, 0};
  if (const auto plus = rest.find('+'); plus != std::string_view::npos) {
    number(rest.substr(plus + 1), "offset", place.offset);
    rest = rest.substr(0, plus);
  }
  if (const auto at = rest.find('@'); at != std::string_view::npos) {
    number(rest.substr(at + 1), "rank", place.rank);
    rest = rest.substr(0, at);
  }
  for (Space space : {Space::input, Space::output, Space::scratch}) {
    if (name_of(space) != rest) continue;
    place.space = space;
    return place;
  }
  malformed("space");
  return place;
}

Step step_from(const Json& json, const std::string& path, std::int32_t self) {
  const Reader reader(json, path);
  reader.allow_only({"kind", "destination", "source", "second", "more", "peer", "flag", "value", "bytes",
                     "payload_offset"});
  Step step;
  step.kind = reader.named<StepKind>("kind", kStepKindCount);
  const StepFields fields = fields_of(step.kind);
  const auto if_field = [&](bool belongs, std::string_view field, auto read) {
    if (belongs) {
      read();
    } else {
      reader.forbid(field, step.kind);
    }
  };
  if_field(fields.destination, "destination", [&] { step.destination = reader.place("destination", self); });
  if_field(fields.source, "source", [&] { step.source = reader.place("source", self); });
  if_field(fields.second, "second", [&] { step.second = reader.place("second", self); });
  if_field(fields.second, "more", [&] { step.more = reader.places_or_none("more", self); });
  if_field(fields.peer, "peer", [&] { step.peer = reader.peer("peer"); });
  if_field(fields.flag_and_value, "flag", [&] { step.flag = reader.integer_or<std::uint8_t>("flag", 0); });
  if_field(fields.flag_and_value, "value", [&] { step.value = reader.integer<std::uint32_t>("value"); });
  if_field(fields.bytes, "bytes", [&] { step.bytes = reader.integer<std::uint64_t>("bytes"); });
  if_field(fields.payload_offset, "payload_offset", [&] {
    step.source = {Space::scratch, std::max(step.peer, 0),
                   reader.integer_or<std::uint64_t>("payload_offset", 0)};
  });
  return step;
}

std::span<const Json> list(const Json& json, const std::string& path) {
  if (!json.is_array()) refuse(path, fmt::format("= {} is not a list", shown(json)), "write [...]");
  return json.items();
}

std::string to_text(const Place& place, std::int32_t self) {
  return fmt::format("{}+{}", print(place, self), place.offset);
}

std::string to_text(const Step& step, std::int32_t self) {
  const StepFields fields = fields_of(step.kind);
  Json json = Json::object();
  json["kind"] = name_of(step.kind);
  if (fields.destination) json["destination"] = to_text(step.destination, self);
  if (fields.source) json["source"] = to_text(step.source, self);
  if (fields.second) json["second"] = to_text(step.second, self);
  if (!step.more.empty()) {
    Json more = Json::array();
    for (const Place& place : step.more) more.push_back(to_text(place, self));
    json["more"] = std::move(more);
  }
  if (fields.peer) json["peer"] = step.peer == kEveryone ? Json(kEveryoneName) : Json(step.peer);
  if (fields.flag_and_value) {
    json["flag"] = static_cast<std::uint32_t>(step.flag);
    json["value"] = step.value;
  }
  if (fields.bytes) json["bytes"] = step.bytes;
  if (fields.payload_offset && step.source.offset != 0) json["payload_offset"] = step.source.offset;
  return json.dump();
}

/// Lists with one item a line.
template <class Items, class ToText>
std::string lines(const Items& items, int indent, ToText to_item_text) {
  if (items.empty()) return "[]";
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string text = "[";
  const char* separator = "\n";
  for (const auto& item : items) {
    text += fmt::format("{}{}  {}", separator, margin, to_item_text(item));
    separator = ",\n";
  }
  return text + "\n" + margin + "]";
}

}  // namespace

std::string to_json(const Plan& plan) {
  std::string text = "{\n";
  const auto field = [&](std::string_view name, const Json& value) {
    text += fmt::format("  \"{}\": {},\n", name, value.dump());
  };
  field("name", plan.name);
  field("collective", name_of(plan.collective));
  field("ranks", plan.ranks);
  field("root", plan.root);
  field("element_bytes", plan.element_bytes);
  if (has_blocks(plan.collective)) {
    Json blocks = Json::array();
    for (std::uint64_t bytes : plan.blocks) blocks.push_back(bytes);
    field("blocks", blocks);
  }
  if (!plan.groups.empty()) {
    Json groups = Json::array();
    for (std::int32_t group : plan.groups) groups.push_back(group);
    field("groups", groups);
  }
  field("bytes", plan.bytes);
  field("scratch_bytes", plan.scratch_bytes);
  field("in_place", plan.in_place);
  field("average", plan.average);
  field("direct", plan.direct);
  field("trades_scratch", plan.trades_scratch);
  field("order", name_of(plan.order));
  std::int32_t rank = -1;
  text += "  \"programs\": " + lines(plan.programs, 2, [&](const std::vector<Program>& channels) {
            ++rank;
            return lines(channels, 4, [&](const Program& program) {
              return lines(program, 6, [&](const Step& step) { return to_text(step, rank); });
            });
          });
  return text + "\n}\n";
}

Plan plan_from_json(std::string_view text) {
  const Json json = Json::parse(text, "plan");
  const Reader reader(json, "");
  reader.allow_only({"name", "comment", "collective", "ranks", "root", "element_bytes", "bytes",
                     "scratch_bytes", "in_place", "average", "direct", "trades_scratch", "order", "blocks",
                     "groups", "programs"});
  Plan plan;
  plan.name = reader.string("name");
  plan.collective = reader.named<Collective>("collective", kCollectiveCount);
  plan.ranks = reader.integer<std::int32_t>("ranks");
  plan.root = reader.integer_or<std::int32_t>("root", 0);
  plan.element_bytes = reader.integer<std::uint64_t>("element_bytes");
  plan.bytes = reader.integer<std::uint64_t>("bytes");
  plan.scratch_bytes = reader.integer_or<std::uint64_t>("scratch_bytes", 0);
  plan.in_place = reader.boolean_or("in_place", false);
  plan.average = reader.boolean_or("average", false);
  plan.direct = reader.boolean_or("direct", false);
  plan.trades_scratch = reader.boolean_or("trades_scratch", false);
  plan.order = reader.named<ReductionOrder>("order", kReductionOrderCount);
  if (has_blocks(plan.collective)) {
    plan.blocks = reader.integers("blocks");
    const auto n = static_cast<std::size_t>(plan.ranks);
    const std::size_t wanted = plan.collective == Collective::all_to_all_v ? n * n : n;
    if (plan.blocks.size() != wanted)
      refuse("blocks", fmt::format("has {} sizes for {} ranks", plan.blocks.size(), plan.ranks),
             fmt::format("write {}", wanted));
  } else if (reader.has("blocks")) {
    refuse("blocks", fmt::format("is no field of {}", name_of(plan.collective)), "remove it");
  }

  if (reader.has("groups")) plan.groups = reader.integers<std::int32_t>("groups");

  for (const Json& rank : list(reader.required("programs"), "programs")) {
    const std::size_t r = plan.programs.size();
    const std::string rank_path = fmt::format("programs[{}]", r);
    auto& channels = plan.programs.emplace_back();
    for (const Json& channel : list(rank, rank_path)) {
      const std::string channel_path = fmt::format("{}[{}]", rank_path, channels.size());
      Program& program = channels.emplace_back();
      for (const Json& step : list(channel, channel_path)) {
        program.push_back(step_from(step, fmt::format("{}[{}]", channel_path, program.size()),
                                    static_cast<std::int32_t>(r)));
      }
    }
  }
  return plan;
}

}  // namespace tugline::core
