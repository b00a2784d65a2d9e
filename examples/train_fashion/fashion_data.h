// SPDX-License-Identifier: Apache-2.0
// Fashion-MNIST as Debian's package dataset-fashion-mnist installs it: gzip-compressed idx files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace train_fashion {

inline constexpr int kSide = 28;
inline constexpr int kPixels = kSide * kSide;
inline constexpr int kClasses = 10;
inline constexpr const char* kDefaultDataFolder = "/usr/share/datasets/fashion-mnist";

/// Images with their labels.
class FashionData {
 public:
  enum class Part { train, test };

  /// Throws tugline::Error: not_found (names the file and the package to install) or protocol (names the file
  /// and what is wrong in it).
  static FashionData load(const std::filesystem::path& folder, Part part);

  int size() const noexcept { return static_cast<int>(labels_.size()); }
  std::uint8_t label(std::uint32_t image) const noexcept { return labels_[image]; }
  /// Writes the images, scaled to mean 0 and deviation 1 over the training set, and their labels.
  void gather(std::span<const std::uint32_t> images, std::span<float> pixels,
              std::span<std::uint8_t> labels) const;

 private:
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace train_fashion
