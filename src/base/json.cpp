// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tugline/error.h"

namespace tugline::base {
namespace {

using Library = nlohmann::ordered_json;

Json from_library(const Library& source) {
  switch (source.type()) {
    case Library::value_t::boolean:
      return Json(source.get<bool>());
    case Library::value_t::number_integer:
      return Json(source.get<std::int64_t>());
    case Library::value_t::number_unsigned: {
      const auto value = source.get<std::uint64_t>();
      // Past 63 bits JSON readers agree on nothing but a double.
      if (!std::in_range<std::int64_t>(value)) return Json(static_cast<double>(value));
      return Json(value);
    }
    case Library::value_t::number_float:
      return Json(source.get<double>());
    case Library::value_t::string:
      return Json(source.get_ref<const std::string&>());
    case Library::value_t::array: {
      Json result = Json::array();
      for (const auto& element : source) result.push_back(from_library(element));
      return result;
    }
    case Library::value_t::object: {
      Json result = Json::object();
      for (const auto& [key, value] : source.items()) result[key] = from_library(value);
      return result;
    }
    default:
      return {};
  }
}

Library to_library(const Json& source) {
  if (source.is_bool()) return source.as_bool();
  if (source.is_int()) return source.as_int();
  if (source.is_number()) return source.as_double();
  if (source.is_string()) return source.as_string();
  if (source.is_array()) {
    auto result = Library::array();
    for (const auto& element : source) result.push_back(to_library(element));
    return result;
  }
  if (source.is_object()) {
    auto result = Library::object();
    for (const auto& [key, value] : source.members()) result[key] = to_library(value);
    return result;
  }
  return nullptr;
}

}  // namespace

Json::Json() noexcept : value_(nullptr) {}
Json::Json(std::nullptr_t) noexcept : value_(nullptr) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(Value value) : value_(std::move(value)) {}
Json::~Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;

Json Json::array() {
  return Json(Value(Array{}));
}
Json Json::object() {
  return Json(Value(Object{}));
}

Json Json::parse(std::string_view text, std::string_view origin) {
  // Whoever goes through a document does so level by level on his stack, from_library() first.
  const auto bounded = [&](int depth, Library::parse_event_t event, const Library&) {
    const bool opens =
        event == Library::parse_event_t::array_start || event == Library::parse_event_t::object_start;
    if (opens && depth >= kDeepestJson)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} nests arrays and objects {} deep, at most {} levels are read", origin,
                              depth + 1, kDeepestJson),
                  "give a document of the kind that is asked for", {.operation = "reading JSON"});
    return true;
  };
  try {
    return from_library(Library::parse(text, bounded));
  } catch (const Library::exception& failure) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} is not JSON: {}", origin, failure.what()),
                "correct the text at that place", {.operation = "reading JSON"});
  }
}

std::string Json::dump(int indent) const {
  return to_library(*this).dump(indent, ' ', false, Library::error_handler_t::replace);
}

bool Json::is_null() const noexcept {
  return std::holds_alternative<std::nullptr_t>(value_);
}
bool Json::is_bool() const noexcept {
  return std::holds_alternative<bool>(value_);
}
bool Json::is_int() const noexcept {
  return std::holds_alternative<std::int64_t>(value_);
}
bool Json::is_number() const noexcept {
  return is_int() || std::holds_alternative<double>(value_);
}
bool Json::is_string() const noexcept {
  return std::holds_alternative<std::string>(value_);
}
bool Json::is_array() const noexcept {
  return std::holds_alternative<Array>(value_);
}
bool Json::is_object() const noexcept {
  return std::holds_alternative<Object>(value_);
}

std::string_view Json::kind() const noexcept {
  constexpr std::string_view kKinds[] = {"null", "bool", "int", "double", "string", "array", "object"};
  return kKinds[value_.index()];
}

bool Json::as_bool() const {
  if (!is_bool()) throw_wrong_kind("bool");
  return std::get<bool>(value_);
}

std::int64_t Json::as_int() const {
  if (!is_int()) throw_wrong_kind("int");
  return std::get<std::int64_t>(value_);
}

double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<std::int64_t>(value_));
  if (!is_number()) throw_wrong_kind("number");
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  if (!is_string()) throw_wrong_kind("string");
  return std::get<std::string>(value_);
}

std::size_t Json::size() const noexcept {
  if (const auto* elements = std::get_if<Array>(&value_)) return elements->size();
  if (const auto* object = std::get_if<Object>(&value_)) return object->size();
  return 0;
}

std::span<const Json> Json::items() const {
  if (!is_array()) throw_wrong_kind("array");
  return std::get<Array>(value_);
}

std::span<const JsonMember> Json::members() const {
  if (!is_object()) throw_wrong_kind("object");
  return std::get<Object>(value_);
}

Json::Array::const_iterator Json::begin() const {
  if (!is_array()) throw_wrong_kind("array");
  return std::get<Array>(value_).begin();
}

Json::Array::const_iterator Json::end() const {
  if (!is_array()) throw_wrong_kind("array");
  return std::get<Array>(value_).end();
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object{};
  if (!is_object()) throw_wrong_kind("object");
  auto& object = std::get<Object>(value_);
  for (auto& member : object)
    if (member.key == key) return member.value;
  return object.emplace_back(JsonMember{std::string(key), Json()}).value;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) throw_wrong_kind("object");
  if (const auto* value = find(key)) return *value;
  throw Error(ErrorCode::invalid_argument, fmt::format("the key \"{}\" is missing in {}", key, dump()),
              "add the key", {.operation = "reading JSON"});
}

const Json* Json::find(std::string_view key) const noexcept {
  if (const auto* object = std::get_if<Object>(&value_))
    for (const auto& member : *object)
      if (member.key == key) return &member.value;
  return nullptr;
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array{};
  if (!is_array()) throw_wrong_kind("array");
  std::get<Array>(value_).push_back(std::move(value));
}

bool operator==(const Json& left, const Json& right) {
  return left.value_ == right.value_;
}

void Json::throw_too_large(std::uint64_t value) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{} does not fit a JSON integer of 63 bits", value),
              "write it as a string", {.operation = "writing JSON"});
}

void Json::throw_wrong_kind(std::string_view wanted) const {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} is needed, but {} is there: {}", wanted, kind(), dump().substr(0, 200)),
              "correct the document", {.operation = "reading JSON"});
}

const Json& Json::element(std::size_t index) const {
  if (!is_array()) throw_wrong_kind("array");
  const auto& elements = std::get<Array>(value_);
  if (index < elements.size()) return elements[index];
  throw Error(ErrorCode::invalid_argument,
              fmt::format("element {} is needed, but the array has {}", index, elements.size()),
              "correct the document", {.operation = "reading JSON"});
}

}  // namespace tugline::base
