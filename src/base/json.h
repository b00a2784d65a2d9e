// SPDX-License-Identifier: Apache-2.0
// A small JSON document: what the plan files, topology files and --json outputs are read and written with.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tugline::base {

struct JsonMember;

/// Arrays and objects within each other that parse() reads.
inline constexpr int kDeepestJson = 64;

/// One JSON value. Objects keep the order in which their keys were inserted. Accessors of the wrong kind
/// throw Error{invalid_argument} that names what was wanted and what is there. Not thread-safe for writing.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<JsonMember>;

  Json() noexcept;
  Json(std::nullptr_t) noexcept;
  template <std::same_as<bool> T>
  Json(T value) : Json(Value(value)) {}
  /// Integers are stored as 64 signed bits; a larger unsigned value throws.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value) : Json(Value(checked(value))) {}
  template <std::floating_point T>
  Json(T value) : Json(Value(static_cast<double>(value))) {}
  Json(std::string text);
  Json(std::string_view text);
  Json(const char* text);
  ~Json();
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;

  /// An empty array or object; a list of elements.
  static Json array();
  static Json object();
  template <class Range>
  static Json array_of(const Range& range) {
    Json result = array();
    for (const auto& element : range) result.push_back(Json(element));
    return result;
  }

  /// Parses one document. `origin` (a path) stands in the error. Throws Error{invalid_argument} with the
  /// byte's position, and for more than kDeepestJson levels.
  static Json parse(std::string_view text, std::string_view origin = "JSON text");
  /// Text; `indent` spaces per level, or one line when negative. Bytes that are not UTF-8 are replaced;
  /// numbers that are not finite become null, as JSON has no word for them.
  std::string dump(int indent = -1) const;

  bool is_null() const noexcept;
  bool is_bool() const noexcept;
  bool is_int() const noexcept;
  bool is_number() const noexcept;  ///< integer or floating point
  bool is_string() const noexcept;
  bool is_array() const noexcept;
  bool is_object() const noexcept;
  std::string_view kind() const noexcept;  ///< "null", "bool", "int", "double", "string", "array", "object"

  bool as_bool() const;
  std::int64_t as_int() const;
  double as_double() const;  ///< also of an integer
  const std::string& as_string() const;

  /// Elements of an array or members of an object; 0 for all others.
  std::size_t size() const noexcept;
  std::span<const Json> items() const;          ///< of an array
  std::span<const JsonMember> members() const;  ///< of an object: {key, value}
  Array::const_iterator begin() const;          ///< over an array
  Array::const_iterator end() const;

  /// The member `key`, made (null) if it is not there; a null value becomes an object first.
  Json& operator[](std::string_view key);
  Json& operator[](const char* key) { return (*this)[std::string_view(key)]; }
  const Json& operator[](std::string_view key) const { return at(key); }
  const Json& operator[](const char* key) const { return at(std::string_view(key)); }
  template <std::integral T>
  Json& operator[](T index) {
    return const_cast<Json&>(std::as_const(*this).element(static_cast<std::size_t>(index)));
  }
  template <std::integral T>
  const Json& operator[](T index) const {
    return element(static_cast<std::size_t>(index));
  }
  const Json& at(std::string_view key) const;  ///< throws when the key is missing
  const Json* find(std::string_view key) const noexcept;
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }
  /// Appends; a null value becomes an array first.
  void push_back(Json value);

  /// An integer and a floating-point number of equal value are different.
  friend bool operator==(const Json& left, const Json& right);

 private:
  using Value = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object>;
  explicit Json(Value value);

  template <std::integral T>
  static std::int64_t checked(T value) {
    if (!std::in_range<std::int64_t>(value)) throw_too_large(static_cast<std::uint64_t>(value));
    return static_cast<std::int64_t>(value);
  }
  [[noreturn]] static void throw_too_large(std::uint64_t value);
  [[noreturn]] void throw_wrong_kind(std::string_view wanted) const;
  const Json& element(std::size_t index) const;

  Value value_;
};

struct JsonMember {
  std::string key;
  Json value;
  friend bool operator==(const JsonMember&, const JsonMember&) = default;
};

}  // namespace tugline::base
