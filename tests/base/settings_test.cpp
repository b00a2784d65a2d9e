// SPDX-License-Identifier: Apache-2.0
#include "base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tugline/error.h"

namespace {

using testing::HasSubstr;
using tugline::Error;
using tugline::ErrorCode;
using tugline::base::Environment;
using tugline::base::make_settings;
using tugline::base::Origin;
using tugline::base::SettingsFile;

std::string message_of(const Environment& environment, const std::optional<SettingsFile>& file = {}) {
  try {
    make_settings(environment, file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(Settings, EnvironmentWinsOverFileWinsOverDefault) {
  const SettingsFile file{"f.toml", "spin_us = 7\nheartbeat_ms = 9\nplan = \"ring\"\ncheck = false\n"};
  const auto [settings, warnings] = make_settings({{"TUGLINE_SPIN_US", "11"}, {"HOME", "/x"}}, file);
  EXPECT_EQ(settings.spin_us, 11U);
  EXPECT_EQ(settings.heartbeat_ms, 9U);
  EXPECT_EQ(settings.plan, "ring");
  EXPECT_FALSE(settings.check);
  EXPECT_EQ(settings.scratch_bytes, tugline::base::Settings{}.scratch_bytes);
  EXPECT_EQ(settings.origin("spin_us"), Origin::environment);
  EXPECT_EQ(settings.origin("heartbeat_ms"), Origin::file);
  EXPECT_EQ(settings.origin("scratch_bytes"), Origin::default_value);
  EXPECT_EQ(settings.file, "f.toml");
  EXPECT_TRUE(warnings.empty());
  EXPECT_THROW(settings.origin("no_such"), Error);
}

TEST(Settings, ReadsEveryType) {
  const auto settings = make_settings({{"TUGLINE_RANK", "3"},
                                       {"TUGLINE_DEBUG", "INFO"},
                                       {"TUGLINE_REPORT_AFTER", "250ms"},
                                       {"TUGLINE_FAIL_AFTER", "2m"},
                                       {"TUGLINE_SCRATCH_BYTES", "16Mi"},
                                       {"TUGLINE_CHECK", "off"},
                                       {"TUGLINE_KERNEL", "5.10"},
                                       {"TUGLINE_JOB", ""}},
                                      {})
                            .settings;
  EXPECT_EQ(settings.rank, 3U);
  EXPECT_FALSE(settings.size.has_value());
  EXPECT_EQ(settings.debug, tugline::base::LogLevel::info);
  EXPECT_EQ(settings.report_after, std::chrono::milliseconds(250));
  EXPECT_EQ(settings.fail_after, std::chrono::minutes(2));
  EXPECT_EQ(settings.scratch_bytes, 16U << 20U);
  EXPECT_FALSE(settings.check);
  EXPECT_EQ(settings.kernel, "5.10");
  EXPECT_EQ(settings.origin("job"), Origin::default_value);
}

TEST(Settings, ErrorsNameVariableValueAndWhatIsAllowed) {
  EXPECT_THAT(message_of({{"TUGLINE_RANK", "-1"}}),
              testing::AllOf(HasSubstr("TUGLINE_RANK is \"-1\""), HasSubstr("an integer from 0 to 255")));
  EXPECT_THAT(message_of({{"TUGLINE_SIZE", "0"}}), HasSubstr("from 1 to 256"));
  EXPECT_THAT(message_of({{"TUGLINE_SIZE", "4x"}}), HasSubstr("TUGLINE_SIZE is \"4x\""));
  EXPECT_THAT(message_of({{"TUGLINE_CHECK", "maybe"}}), HasSubstr("on or off"));
  EXPECT_THAT(message_of({{"TUGLINE_DEBUG", "loud"}}), HasSubstr("error, warn, info, debug or trace"));
  EXPECT_THAT(message_of({{"TUGLINE_REPORT_AFTER", "5"}}), HasSubstr("a time with its unit"));
  EXPECT_THAT(message_of({{"TUGLINE_SCRATCH_BYTES", "99999999999999999999"}}), HasSubstr("a size in bytes"));
  EXPECT_THAT(message_of({{"TUGLINE_SCRATCH_BYTES", "17179869184G"}}), HasSubstr("a size in bytes"));
  for (const char* version : {"new", "2.4", "5.9", "5"})
    EXPECT_THAT(message_of({{"TUGLINE_KERNEL", version}}), HasSubstr("a version from 5.10 on, such as 5.15"));
  EXPECT_THAT(message_of({{"TUGLINE_PLAN", "bogus"}}),
              testing::AllOf(HasSubstr("TUGLINE_PLAN is \"bogus\""),
                             HasSubstr("one_shot_packet, direct, one_shot, two_shot, ring, recursive, tree, "
                                       "hierarchical or point_to_point")));
  EXPECT_THAT(message_of({}, SettingsFile{"f.toml", "plan = \"bogus\""}), HasSubstr("plan in f.toml is"));
  EXPECT_THAT(message_of({}, SettingsFile{"f.toml", "spin_us = \"many\""}),
              HasSubstr("spin_us in f.toml is"));
  EXPECT_THAT(message_of({}, SettingsFile{"f.toml", "\nspin_us = = 3"}),
              HasSubstr("f.toml line 2 is not TOML"));
  EXPECT_THAT(message_of({}, SettingsFile{"f.toml", "spin_us = [1]"}),
              HasSubstr("\"spin_us\" in f.toml line 1"));
}

TEST(Settings, UnknownNamesGiveOneWarning) {
  const auto warnings = make_settings({{"TUGLINE_SPIN", "1"}, {"TUGLINE_ZZZ", ""}, {"TUGLINEX", "1"}},
                                      SettingsFile{"f", "old = 1"})
                            .warnings;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], testing::AllOf(HasSubstr("TUGLINE_SPIN"), HasSubstr("TUGLINE_ZZZ"),
                                          HasSubstr("old in f"), testing::Not(HasSubstr("TUGLINEX"))));
}

TEST(Settings, AFileCannotSayWhatIsEachProcesssOwn) {
  for (const auto& [key, variable] :
       std::map<std::string, std::string>{{"config_file", "TUGLINE_CONFIG_FILE"},
                                          {"job", "TUGLINE_JOB"},
                                          {"rank", "TUGLINE_RANK"},
                                          {"size", "TUGLINE_SIZE"},
                                          {"local_rank", "TUGLINE_LOCAL_RANK"}})
    EXPECT_THAT(message_of({}, SettingsFile{"f", key + " = \"1\""}),
                testing::AllOf(HasSubstr(key + " in f is a setting that is read only from the environment"),
                               HasSubstr("set " + variable)));
}

TEST(Settings, DepthOfAFileIsBounded) {
  const auto times = [](int count, const std::string& part) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  for (const auto& deep : {times(200'000, "a.") + "a = 1", "[" + times(200'000, "a.") + "a]\n"})
    EXPECT_THAT(message_of({}, SettingsFile{"f", "spin_us = 1\n" + deep}),
                HasSubstr("f line 2 has more than 256 dots"));
  EXPECT_THAT(message_of({}, SettingsFile{"f", "a = " + times(200'000, "[")}), HasSubstr("f line 1"));
}

TEST(Settings, EveryRowIsNamedOnceAndRoundTrips) {
  std::set<std::string_view> names;
  const auto settings = make_settings({}, {}).settings;
  Environment again;
  for (const auto& [row, value, origin] : view_settings(settings)) {
    EXPECT_TRUE(names.insert(row->name).second) << row->name;
    EXPECT_FALSE(row->help.empty()) << row->name;
    EXPECT_EQ(value.empty(), !row->unset.empty()) << row->name;
    EXPECT_EQ(origin, Origin::default_value);
    if (!value.empty()) again[variable_of(*row)] = value;
  }
  const auto views = view_settings(make_settings(again, {}).settings);
  for (std::size_t i = 0; i < views.size(); ++i)
    EXPECT_EQ(views[i].value, view_settings(settings)[i].value) << views[i].row->name;
}

TEST(Settings, SecretsAreNeverShown) {
  const auto settings = make_settings({{"TUGLINE_TOKEN", "c0ffee"}}, {}).settings;
  EXPECT_EQ(settings.token, "c0ffee");
  for (const auto& view : view_settings(settings)) EXPECT_THAT(view.value, testing::Not(HasSubstr("c0ffee")));
}

TEST(Settings, FindsTheFileInOrder) {
  std::string pattern = testing::TempDir() + "tugline-settings-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path directory = pattern;
  std::filesystem::create_directories(directory / ".config");
  std::ofstream(directory / ".config/tugline.toml") << "spin_us = 1\n";
  std::ofstream(directory / "named.toml") << "spin_us = 2\n";
  const auto home = directory.string();
  std::vector<std::string> warnings;
  const auto path_of = [&](const Environment& environment) {
    const auto file = tugline::base::find_settings_file(environment, warnings);
    return file ? file->path : std::string("none");
  };
  EXPECT_EQ(path_of({{"HOME", home}}), home + "/.config/tugline.toml");
  EXPECT_EQ(path_of({{"HOME", home}, {"TUGLINE_CONFIG_FILE", home + "/named.toml"}}), home + "/named.toml");
  EXPECT_EQ(path_of({{"HOME", "/"}, {"XDG_CONFIG_HOME", home + "/.config"}}), home + "/.config/tugline.toml");
  EXPECT_THAT(warnings, testing::IsEmpty());
  try {
    path_of({{"TUGLINE_CONFIG_FILE", home}});
    ADD_FAILURE() << "a directory was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the settings file " + home + " is a directory"));
  }
  const auto pipe = (directory / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  try {
    path_of({{"TUGLINE_CONFIG_FILE", pipe}});
    ADD_FAILURE() << "a pipe was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the settings file " + pipe + " is a pipe"));
  }
  try {
    path_of({{"TUGLINE_CONFIG_FILE", "/dev/zero"}});
    ADD_FAILURE() << "a file without an end was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("the settings file /dev/zero is longer than 64 MiB"));
  }
  try {
    path_of({{"TUGLINE_CONFIG_FILE", home + "/missing.toml"}});
    ADD_FAILURE() << "a missing file was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
  }
  std::filesystem::remove_all(directory);
}

TEST(Settings, AFileThatNobodyNamedAndThatCannotBeReadIsOneWarning) {
  std::string pattern = testing::TempDir() + "tugline-settings-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path directory = pattern;
  std::filesystem::create_directories(directory / "tugline.toml");
  // Too many links on the way, as root, whom no permission stops, finds it too.
  std::filesystem::create_symlink("loop", directory / "loop");
  for (const auto& place : {directory.string(), (directory / "loop").string()}) {
    std::vector<std::string> warnings;
    const auto file = tugline::base::find_settings_file({{"XDG_CONFIG_HOME", place}}, warnings);
    EXPECT_TRUE(!file || file->path == "/etc/tugline.toml");
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_THAT(warnings[0], testing::AllOf(HasSubstr(place + "/tugline.toml"), HasSubstr("without it")));
    const Environment named{{"TUGLINE_CONFIG_FILE", place + "/tugline.toml"}};
    EXPECT_THROW(tugline::base::find_settings_file(named, warnings), Error);
  }
  std::filesystem::remove_all(directory);
}

TEST(Settings, PageInDocsIsTheTable) {
  std::ifstream file(TUGLINE_SOURCE_DIR "/docs/settings.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), tugline::base::describe_settings_markdown())
      << "write it again: build/release/bin/base_settings_page > docs/settings.md";
}

}  // namespace
