// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "tugline/error.h"

namespace {

using tugline::Error;
using tugline::base::Json;

TEST(Json, KeepsTheOrderOfKeys) {
  Json document;
  document["zeta"] = 1;
  document["alpha"] = Json::array();
  document["alpha"].push_back("text");
  document["alpha"].push_back(2.5);
  document["nested"]["flag"] = true;
  document["nested"]["none"] = nullptr;
  EXPECT_EQ(document.dump(), R"({"zeta":1,"alpha":["text",2.5],"nested":{"flag":true,"none":null}})");
  EXPECT_EQ(Json::parse(document.dump()), document);
  EXPECT_EQ(Json::parse(document.dump(2)), document);
}

TEST(Json, DepthIsBounded) {
  using tugline::base::kDeepestJson;
  const auto nested = [](int levels, const std::string& open, const std::string& close) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    text += "1";
    for (int i = 0; i < levels; ++i) text += close;
    return text;
  };
  for (const auto& [open, close] : {std::pair<std::string, std::string>{"[", "]"}, {R"({"k":)", "}"}}) {
    const auto deepest = nested(kDeepestJson, open, close);
    EXPECT_EQ(Json::parse(deepest).dump(), deepest);
    for (const int levels : {kDeepestJson + 1, 1'000'000}) {
      try {
        Json::parse(nested(levels, open, close), "the file");
        ADD_FAILURE() << levels << " levels of " << open << " were read";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), tugline::ErrorCode::invalid_argument);
        EXPECT_THAT(error.what(),
                    testing::HasSubstr("the file nests arrays and objects 65 deep, at most 64 levels"));
      }
    }
  }
}

TEST(Json, ReadsEveryKind) {
  const auto document = Json::parse(R"({"i": -3, "d": 1e3, "s": "ä\n", "b": false, "n": null, "a": [1, 2]})");
  EXPECT_EQ(document["i"].as_int(), -3);
  EXPECT_DOUBLE_EQ(document["i"].as_double(), -3.0);
  EXPECT_DOUBLE_EQ(document["d"].as_double(), 1000.0);
  EXPECT_EQ(document["s"].as_string(), "ä\n");
  EXPECT_FALSE(document["b"].as_bool());
  EXPECT_TRUE(document["n"].is_null());
  EXPECT_EQ(document["a"][1].as_int(), 2);
  EXPECT_EQ(document.size(), 6U);
  std::string keys;
  for (const auto& [key, value] : document.members()) keys += key;
  EXPECT_EQ(keys, "idsbna");
  std::int64_t sum = 0;
  for (const auto& element : document["a"]) sum += element.as_int();
  EXPECT_EQ(sum, 3);
  EXPECT_TRUE(document.contains("i"));
  EXPECT_EQ(document.find("missing"), nullptr);
}

TEST(Json, KeepsIntegersOf64Bits) {
  const auto largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(Json::parse(Json(largest).dump()).as_int(), largest);
  EXPECT_EQ(Json::parse("-9223372036854775808").as_int(), std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(Json::parse("18446744073709551615").is_number());
  EXPECT_THROW(Json(std::numeric_limits<std::uint64_t>::max()), Error);
}

TEST(Json, NamesWhatIsWrong) {
  const auto message = [](auto function) -> std::string {
    try {
      function();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const auto document = Json::parse(R"({"a": 1})");
  EXPECT_THAT(message([] { (void)Json::parse("{\"a\": ", "plan.json"); }), testing::HasSubstr("plan.json"));
  EXPECT_THAT(message([&] { (void)document["b"]; }), testing::HasSubstr("\"b\" is missing"));
  EXPECT_THAT(message([&] { (void)document["a"].as_string(); }),
              testing::HasSubstr("string is needed, but int"));
  EXPECT_THAT(message([&] { (void)document[0]; }), testing::HasSubstr("array is needed, but object"));
  EXPECT_THAT(message([] { (void)Json::parse("[1]")[1]; }), testing::HasSubstr("the array has 1"));
}

TEST(Json, WritesWhatJsonHasNoWordForAsNull) {
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(Json(std::string("\xff")).dump(), "\"\xEF\xBF\xBD\"");
}

}  // namespace
