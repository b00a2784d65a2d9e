// SPDX-License-Identifier: Apache-2.0
#include "fashion_data.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <memory>
#include <numeric>
#include <string>

#include "tugline/error.h"

namespace train_fashion {
namespace {

constexpr float kMean = 0.2860F;  // of the training pixels, scaled to 0 .. 1
constexpr float kDeviation = 0.3530F;
constexpr std::uint32_t kMaxImages = 10'000'000;
constexpr const char* kInstall = "apt-get install dataset-fashion-mnist, or name the folder by --data";
constexpr const char* kReinstall = "apt-get install --reinstall dataset-fashion-mnist";

struct CloseGzip {
  void operator()(gzFile_s* file) const noexcept { gzclose(file); }
};

tugline::ErrorContext context(long native_code = 0) {
  tugline::ErrorContext context;
  context.operation = "load Fashion-MNIST";
  context.native_code = native_code;
  return context;
}

[[noreturn]] void fail_corrupt(const std::filesystem::path& path, const std::string& what) {
  throw tugline::Error(tugline::ErrorCode::protocol, tugline::Remedy::fix_call,
                       fmt::format("{} is corrupt: {}", path.string(), what), kReinstall, context());
}

/// An idx file: two zero bytes, type (8: unsigned byte), number of dimensions, the dimensions (32 bits,
/// big-endian), the elements.
class IdxFile {
 public:
  explicit IdxFile(std::filesystem::path path) : path_(std::move(path)) {
    errno = 0;
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (file_ == nullptr) {
      throw tugline::Error(tugline::ErrorCode::not_found,
                           fmt::format("cannot open the data file {}", path_.string()), kInstall,
                           context(errno));
    }
    gzbuffer(file_.get(), 1 << 17);
  }

  template <std::size_t Dimensions>
  std::array<std::uint32_t, Dimensions> header() {
    std::array<std::uint8_t, 4 + 4 * Dimensions> bytes;
    read(bytes);
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != Dimensions) {
      fail_corrupt(path_,
                   fmt::format("its first bytes are {:02x} {:02x} {:02x} {:02x}, expected 00 00 08 {:02x}",
                               bytes[0], bytes[1], bytes[2], bytes[3], Dimensions));
    }
    std::array<std::uint32_t, Dimensions> sizes;
    for (std::size_t i = 0; i < Dimensions; ++i) {
      const std::uint8_t* at = bytes.data() + 4 + 4 * i;
      sizes[i] = std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
    }
    if (sizes[0] == 0 || sizes[0] > kMaxImages)
      fail_corrupt(path_, fmt::format("it claims {} images", sizes[0]));
    return sizes;
  }

  void read(std::span<std::uint8_t> bytes) {
    const int got = gzread(file_.get(), bytes.data(), static_cast<unsigned>(bytes.size()));
    if (got == static_cast<int>(bytes.size())) return;
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    fail_corrupt(path_, code != Z_OK && code != Z_BUF_ERROR
                            ? fmt::format("zlib says \"{}\"", message)
                            : fmt::format("it ends after {} of {} bytes of a block", got, bytes.size()));
  }

  void expect_end() {
    std::uint8_t extra = 0;
    const int got = gzread(file_.get(), &extra, 1);
    if (got > 0) fail_corrupt(path_, "it holds more bytes than its header says");
    if (got < 0) {
      int code = Z_OK;
      fail_corrupt(path_, fmt::format("zlib says \"{}\"", gzerror(file_.get(), &code)));
    }
  }

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, CloseGzip> file_;
};

}  // namespace

FashionData FashionData::load(const std::filesystem::path& folder, Part part) {
  const std::string stem = part == Part::train ? "train" : "t10k";
  IdxFile images(folder / (stem + "-images-idx3-ubyte.gz"));
  IdxFile labels(folder / (stem + "-labels-idx1-ubyte.gz"));
  const auto [count, rows, columns] = images.header<3>();
  const auto [label_count] = labels.header<1>();
  if (rows != kSide || columns != kSide) {
    fail_corrupt(images.path(), fmt::format("its images are {} x {}, expected 28 x 28", rows, columns));
  }
  if (label_count != count) {
    fail_corrupt(labels.path(), fmt::format("it holds {} labels for {} images", label_count, count));
  }
  FashionData data;
  data.pixels_.resize(std::size_t{count} * kPixels);
  images.read(data.pixels_);
  images.expect_end();
  data.labels_.resize(count);
  labels.read(data.labels_);
  labels.expect_end();
  for (std::size_t i = 0; i < data.labels_.size(); ++i) {
    if (data.labels_[i] >= kClasses) {
      fail_corrupt(labels.path(), fmt::format("label {} is {}, expected 0 to 9", i, data.labels_[i]));
    }
  }
  return data;
}

void FashionData::gather(std::span<const std::uint32_t> images, std::span<float> pixels,
                         std::span<std::uint8_t> labels) const {
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::uint8_t* from = pixels_.data() + std::size_t{images[i]} * kPixels;
    float* to = pixels.data() + i * kPixels;
    for (int p = 0; p < kPixels; ++p) {
      to[p] = (static_cast<float>(from[p]) * (1.0F / 255) - kMean) * (1 / kDeviation);
    }
    labels[i] = labels_[images[i]];
  }
}

}  // namespace train_fashion
