// SPDX-License-Identifier: Apache-2.0
#include "fashion_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "tugline/error.h"

namespace train_fashion {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DataFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "train_fashion_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    images_ = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28};
    images_.resize(16 + 2 * kPixels, 10);
    images_[16 + kPixels] = 255;
    labels_ = {0, 0, 8, 1, 0, 0, 0, 2, 9, 4};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::vector<std::uint8_t>& bytes) {
    gzFile file = gzopen((folder_ / name).c_str(), "wb");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    ASSERT_EQ(gzclose(file), Z_OK);
  }
  void write_both() {
    write(kImages, images_);
    write(kLabels, labels_);
  }
  std::string error_of_load(tugline::ErrorCode expected) {
    try {
      FashionData::load(folder_, FashionData::Part::train);
    } catch (const tugline::Error& error) {
      EXPECT_EQ(error.code(), expected) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "load() threw nothing";
    return "";
  }

  static constexpr const char* kImages = "train-images-idx3-ubyte.gz";
  static constexpr const char* kLabels = "train-labels-idx1-ubyte.gz";
  std::filesystem::path folder_;
  std::vector<std::uint8_t> images_;
  std::vector<std::uint8_t> labels_;
};

TEST_F(DataFolder, LoadsWhatTheFilesHold) {
  write_both();
  const auto data = FashionData::load(folder_, FashionData::Part::train);
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(data.label(0), 9);
  std::vector<float> pixels(2 * kPixels);
  std::vector<std::uint8_t> labels(2);
  data.gather(std::array<std::uint32_t, 2>{1, 0}, pixels, labels);
  EXPECT_EQ(labels, (std::vector<std::uint8_t>{4, 9}));
  EXPECT_NEAR(pixels[0], (1.0F - 0.2860F) / 0.3530F, 1e-5F);
  EXPECT_NEAR(pixels[kPixels], (10.0F / 255 - 0.2860F) / 0.3530F, 1e-5F);
}

TEST_F(DataFolder, MissingFileNamesPathAndPackage) {
  EXPECT_THAT(
      error_of_load(tugline::ErrorCode::not_found),
      AllOf(HasSubstr((folder_ / kImages).string()), HasSubstr("apt-get install dataset-fashion-mnist")));
}

TEST_F(DataFolder, CutOffFileIsNamed) {
  write_both();
  const auto path = folder_ / kImages;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(error_of_load(tugline::ErrorCode::protocol),
              AllOf(HasSubstr(path.string()), HasSubstr("corrupt")));
}

TEST_F(DataFolder, FlippedByteIsFound) {
  write_both();
  const auto path = folder_ / kLabels;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-6, std::ios::end);  // within the CRC
  const char kept = static_cast<char>(file.get());
  file.seekp(-6, std::ios::end);
  file.put(static_cast<char>(kept ^ 1));
  file.close();
  EXPECT_THAT(error_of_load(tugline::ErrorCode::protocol), HasSubstr(path.string()));
}

TEST_F(DataFolder, WrongMagicIsFound) {
  images_[3] = 1;
  write_both();
  EXPECT_THAT(error_of_load(tugline::ErrorCode::protocol), HasSubstr("00 00 08 01, expected 00 00 08 03"));
}

TEST_F(DataFolder, HugeCountIsRefusedWithoutAllocating) {
  images_[4] = 0xff;
  write_both();
  EXPECT_THAT(error_of_load(tugline::ErrorCode::protocol), HasSubstr("claims"));
}

TEST_F(DataFolder, DifferentCountsAreFound) {
  labels_[7] = 1;
  labels_.pop_back();
  write_both();
  EXPECT_THAT(error_of_load(tugline::ErrorCode::protocol), HasSubstr("1 labels for 2 images"));
}

TEST_F(DataFolder, TrailingBytesAreFound) {
  labels_.push_back(1);
  write_both();
  EXPECT_THAT(error_of_load(tugline::ErrorCode::protocol), HasSubstr("more bytes"));
}

TEST_F(DataFolder, LabelOutOfRangeIsFound) {
  labels_[9] = 10;
  write_both();
  EXPECT_THAT(error_of_load(tugline::ErrorCode::protocol), HasSubstr("label 1 is 10"));
}

TEST(FashionMnist, TheInstalledPackageIsWhole) {
  if (!std::filesystem::exists(kDefaultDataFolder)) {
    GTEST_SKIP() << kDefaultDataFolder << " is missing: apt-get install dataset-fashion-mnist";
  }
  EXPECT_EQ(FashionData::load(kDefaultDataFolder, FashionData::Part::train).size(), 60000);
  EXPECT_EQ(FashionData::load(kDefaultDataFolder, FashionData::Part::test).size(), 10000);
}

}  // namespace
}  // namespace train_fashion
